"""What a profile must change to be launched by another release, by what SGLang itself says of its flags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from fleetctl.engines.sglang import history
from fleetctl.engines.sglang.schema import Flag, Schema
from fleetctl.lint.flags import successor
from fleetctl.model.fleet import Profile

_BRACES = re.compile(r"(.*)\{([^{}]*)\}(.*)")
_ASKED = re.compile(r"<([a-z-]+)>")
_PLACE = re.compile(r"(?P<file>.*):(?P<line>\d+):(?P<col>\d+)", re.DOTALL)
KEEP = "keep"  # the value stays as it is written


@dataclass(frozen=True, slots=True)
class Change:
    """One change: ``new`` is name → value (True, text, or KEEP); empty takes the flag away.

    ``by_hand`` says why nobody but a person can do it; then ``new`` is empty and nothing is written.
    """

    flag: str
    where: str
    why: str
    new: tuple[tuple[str, Any], ...] = ()
    by_hand: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the documented object."""
        return asdict(self) | {"new": dict(self.new)}


def plan(profile: Profile, schema: Schema) -> list[Change]:
    """Return the changes that a launch by this schema's release wants, in the order of the flags."""
    found: list[Change] = []
    gone: set[str] = set()
    for name in sorted(profile.flags):
        change = _change(profile, name, schema)
        if change is not None:
            found.append(change)
            gone |= set(_asked(profile, name, schema))
    known = {c.flag for c in found}
    for name in sorted(gone - known):
        where = profile.origins[f"flags.{name}"].where
        found.append(
            Change(name, where, "its value is taken over by the flag that replaces the other")
        )
    return found


def _change(profile: Profile, name: str, schema: Schema) -> Change | None:
    origin = profile.origins.get(f"flags.{name}")
    where = origin.where if origin else ""
    spelling, value = f"--{name}", profile.flags[name]
    flag = schema.flags.get(spelling)
    if flag is not None and not flag.deprecated:
        return _choice(name, where, value, flag)
    if flag is None and history.flag(spelling) is None:
        return Change(name, where, "no release has it", by_hand="see `fleetctl lint`")
    life = history.flag(spelling)
    ended = life.gone_before(schema.version) if life and schema.version else None
    why = f"deprecated in {schema.version}" if flag else f"gone after {ended}"
    new = (flag.replacement if flag else None) or successor(schema, spelling)
    if flag is None and life and schema.version and life.came_after(schema.version):
        return Change(
            name, where, f"came with {life.came_after(schema.version)}", by_hand="take it away"
        )
    if new is None:
        return Change(name, where, f"{why}, without a successor")
    if not new.startswith("--"):
        return Change(name, where, why, by_hand=f"set {new} in env instead")
    return _replacement(profile, Change(name, where, why), new, schema)


def _choice(name: str, where: str, value: Any, flag: Flag) -> Change | None:
    texts = value if isinstance(value, tuple) else (value,)
    wrong = [str(t) for t in texts if flag.choices and str(t) not in map(str, flag.choices)]
    if not wrong or value is True:
        return None
    choices = ", ".join(str(c) for c in flag.choices or ())
    return Change(name, where, f"{wrong[0]} is no choice there", by_hand=f"choose from {choices}")


def _asked(profile: Profile, name: str, schema: Schema) -> Iterator[str]:
    """Yield the flags whose values a replacement takes over (``--attn-dp-size <dp-size>``)."""
    flag = schema.flags.get(f"--{name}")
    for other in _ASKED.findall((flag.replacement if flag else None) or ""):
        if other in profile.flags:
            yield other


def _replacement(profile: Profile, change: Change, new: str, schema: Schema) -> Change:
    """Return the change with what stands in place of the flag, or why a person must decide."""
    value = profile.flags[change.flag]
    pairs: list[tuple[str, Any]] = []
    for one in _expanded(new):
        spelling, _, given = one.partition("=" if "=" in one else " ")
        taken = _ASKED.fullmatch(given)
        target = schema.flags.get(spelling)
        if taken:
            given = str(profile.flags.get(taken.group(1), ""))
        if target is None or (taken and not given):
            return _left(change, new)
        if given:
            pairs.append((spelling[2:], given))
        elif target.switch == (value is True):
            pairs.append((spelling[2:], KEEP))
        else:
            return _left(change, new)
    there = next((n for n, _ in pairs if n in profile.flags and n != change.flag), None)
    if there is not None:
        why = f"{there} is set too: keep the value that you mean under that name"
        return Change(change.flag, change.where, change.why, by_hand=why)
    return Change(change.flag, change.where, change.why, tuple(pairs))


def _left(change: Change, new: str) -> Change:
    return Change(change.flag, change.where, change.why, by_hand=f"SGLang says: use {new}")


def _expanded(text: str) -> list[str]:
    match = _BRACES.fullmatch(text)
    if match is None:
        return [text]
    return [f"{match[1]}{part}{match[3]}" for part in match[2].split(",")]


def rewritten(text: str, changes: Iterable[Change]) -> tuple[str, list[Change]]:
    """Return a file's text with the changes made, and those that its layout does not allow.

    Only ``name: value`` on a line of its own is touched; comments and order stay.
    """
    lines = text.split("\n")
    left: list[Change] = []
    for change in changes:
        place = _PLACE.fullmatch(change.where)
        if change.by_hand or place is None or not _edit(lines, change, int(place["line"]) - 1):
            left.append(change)
    return "\n".join(line for line in lines if line != _GONE), left


_GONE = "\0"  # a line that was taken away; the numbers of the others stay


def _edit(lines: list[str], change: Change, number: int) -> bool:
    pattern = rf"(\s*){re.escape(change.flag)}(\s*:\s+)(.*?)(\s+#.*|\s*)"
    match = re.fullmatch(pattern, lines[number]) if number < len(lines) else None
    if match is None or not match[3]:
        return False
    if match[3][0] in "[{|>&*" and not match[3].endswith(("]", "}")):
        return False  # goes on below
    if not change.new:
        lines[number] = _GONE
        return True
    written = [
        f"{match[1]}{name}{match[2]}{match[3] if value is KEEP else value}"
        for name, value in change.new
    ]
    lines[number] = "\n".join(written) + match[4]
    return True
