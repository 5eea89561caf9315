"""A profile as the words of a command line, with the way back from a word to its place in a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fleetctl.engines.sglang.argv import Parsed
from fleetctl.engines.sglang.schema import Flag, Schema
from fleetctl.model.fleet import Profile
from fleetctl.render.arguments import flag_words


@dataclass(frozen=True)
class Words:
    """What argparse would see of a profile; ``owner[i]`` is the profile's flag of word i."""

    profile: Profile
    schema: Schema
    argv: list[str]
    owner: list[str]
    parsed: Parsed

    def where(self, name: str, kind: str = "flags") -> str:
        """Return where a flag or variable was written, the profile's own place when nobody knows."""
        origin = self.profile.origins.get(f"{kind}.{name}") or self.profile.origins.get(
            f"secrets.{kind}.{name}"
        )
        return origin.where if origin else ""

    def given(self, spelling: str) -> bool:
        """Return whether the profile gives that flag, by whatever spelling."""
        flag = self.schema.flags.get(spelling)
        return flag is not None and any(u.flag is flag for u in self.parsed.uses)

    def owner_of(self, spelling: str) -> str:
        """Return the profile's name for a flag; "" when it is not given."""
        flag = self.schema.flags.get(spelling)
        used = [u for u in self.parsed.uses if u.flag is flag]
        return self.owner[used[-1].index] if used else ""

    def value(self, spelling: str) -> Any:
        """Return the converted value, else the default; None for a flag this version does not have.

        A flag that stores into the same place (a deprecated spelling) counts too, as in argparse.
        """
        flag = self.schema.flags.get(spelling)
        if flag is None:
            return None
        values = [u.value for u in self.parsed.uses if u.flag.dest == flag.dest]
        return values[-1] if values else flag.default

    def number(self, spelling: str, fallback: int = 1) -> int:
        """Return a whole number; the fallback when the flag is absent, not a number, or has no value."""
        value = self.value(spelling)
        return value if isinstance(value, int) and not isinstance(value, bool) else fallback


def words_of(profile: Profile, schema: Schema) -> Words:
    """Return the profile's command line, parsed. Secret flags stand with a dummy that fits their type."""
    argv, owner = (
        (["--model-path", profile.model], ["model", "model"]) if profile.model else ([], [])
    )
    values: dict[str, Any] = dict(profile.flags)
    for name in profile.secret_flags:
        flag = schema.flags.get(f"--{name}")
        values[name] = dummy(flag)
    for name in sorted(values):
        words = flag_words({name: values[name]})
        argv += words
        owner += [name] * len(words)
    return Words(profile, schema, argv, owner, schema.parse(argv))


def dummy(flag: Flag | None) -> str:
    """Return a value of the flag's type: a secret is not looked at here."""
    if flag is not None and flag.choices:
        return str(flag.choices[0])
    return "1" if flag is not None and flag.type in ("int", "float") else "secret"
