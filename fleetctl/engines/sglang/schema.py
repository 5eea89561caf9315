"""Flag schemas of SGLang as data: shipped ones, ones read from a tree, and what they say of a command line."""

from __future__ import annotations

import difflib
import functools
import gzip
import importlib.resources
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetctl.engines.sglang import argv as command_line
from fleetctl.engines.sglang.argv import Parsed, Problem
from fleetctl.errors import ConfigError

SCHEMA = "fleetctl.flags/1"
DATA = "fleetctl.engines.sglang.schemas"


@dataclass(frozen=True, slots=True)
class Flag:
    """One launch flag. ``unresolved`` names what only the running program knows: key → its source text."""

    names: tuple[str, ...]
    dest: str
    action: str = "store"
    nargs: int | str | None = None  # 0 for a switch; None for exactly one value
    type: str | None = None
    choices: tuple[Any, ...] | None = None
    default: Any = None
    const: Any = None
    required: bool = False
    help: str = ""  # the first sentence
    hidden: bool = False
    deprecated: bool = False
    replacement: str | None = None
    fatal: str | None = None  # SGLang stops with these words when it is given
    file: str = ""
    line: int = 0
    unresolved: dict[str, str] = field(default_factory=dict, hash=False)

    @property
    def name(self) -> str:
        """Return the first spelling."""
        return self.names[0]

    @property
    def switch(self) -> bool:
        """Return whether it takes no value."""
        return self.nargs == 0

    @property
    def many(self) -> bool:
        """Return whether it takes several values."""
        return self.nargs in ("+", "*") or (isinstance(self.nargs, int) and self.nargs > 1)

    def to_json(self) -> dict[str, Any]:
        """Return the plain object, without keys that say nothing."""
        found: dict[str, Any] = {}
        for key in self.__dataclass_fields__:
            value = getattr(self, key)
            says = value is not False and value not in ("", {})
            if value is not None and (says or key in ("default", "const")):
                found[key] = list(value) if isinstance(value, tuple) else value
        return found

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Flag:
        """Return a flag from its plain object; unknown keys are dropped."""
        known = {k: v for k, v in body.items() if k in cls.__dataclass_fields__}
        known["names"] = tuple(known["names"])
        if known.get("choices") is not None:
            known["choices"] = tuple(known["choices"])
        return cls(**known)


HELP = Flag(("-h", "--help"), "help", "help", 0, help="Show this help and exit.")


@dataclass(frozen=True)
class Schema:
    """The flags and environment variables of one SGLang."""

    version: str | None
    all: tuple[Flag, ...]
    env: dict[str, Any] = field(default_factory=dict)
    digest: str = ""
    origin: str = "shipped"  # shipped | host | file | tree
    help = HELP  # argparse's own, in no list

    @functools.cached_property
    def flags(self) -> dict[str, Flag]:
        """Return spelling (with dashes) → flag."""
        return {name: flag for flag in self.all for name in flag.names}

    @functools.cached_property
    def env_names(self) -> frozenset[str]:
        """Return every environment variable that this version reads or still knows by an old name."""
        return frozenset(
            [
                *self.env.get("declared", {}),
                *self.env.get("used", ()),
                *self.env.get("deprecated", {}),
            ]
        )

    def find(self, name: str) -> Flag | None:
        """Return the flag of a spelling, with or without the dashes; underscores count as dashes."""
        return self.flags.get("--" + name.lstrip("-").replace("_", "-"))

    def prefixed(self, prefix: str) -> list[str]:
        """Return the spellings that start so, in the order argparse would list them."""
        return [name for name in self.flags if name.startswith(prefix)]

    def nearest(self, name: str, count: int = 1) -> list[str]:
        """Return the spellings most like a mistyped one, best first."""
        bare = name.lstrip("-").replace("_", "-")
        names = {n.lstrip("-"): n for n in self.flags}
        words = set(bare.split("-"))
        ranked = sorted(
            difflib.get_close_matches(bare, names, n=8, cutoff=0.6),
            key=lambda n: (
                -difflib.SequenceMatcher(None, bare, n).ratio()
                - 0.1 * len(words & set(n.split("-")))
            ),
        )
        return [names[n] for n in ranked[:count]]

    def parse(self, argv: Sequence[str]) -> Parsed:
        """Return what argparse would make of these words."""
        return command_line.parse(self, argv)

    def check(self, argv: Sequence[str]) -> list[Problem]:
        """Return every fault of a command line; the first is the one that SGLang would print."""
        return self.parse(argv).problems

    def to_json(self) -> dict[str, Any]:
        """Return the stored object."""
        return {
            "schema": SCHEMA,
            "version": self.version,
            "digest": self.digest,
            "flags": [flag.to_json() for flag in self.all],
            "env": self.env,
        }

    @classmethod
    def from_json(cls, body: Any, origin: str = "file") -> Schema:
        """Return a schema from its stored object; ConfigError when it is none."""
        if not isinstance(body, dict) or not str(body.get("schema", "")).startswith(
            "fleetctl.flags/"
        ):
            raise ConfigError(
                "not-a-flag-schema",
                'not a flag schema: no `"schema": "fleetctl.flags/1"` in it',
                hint="`fleetctl flags list --sglang TREE --json` writes one",
            )
        return cls(
            version=body.get("version"),
            all=tuple(Flag.from_json(f) for f in body["flags"]),
            env=body.get("env", {}),
            digest=body.get("digest", ""),
            origin=origin,
        )


def sort_key(version: str) -> tuple[int, ...]:
    """Return what orders ``0.5.9`` before ``0.5.12`` before ``0.5.12.post1``."""
    return tuple(
        int(part.removeprefix("post"))
        for part in version.split(".")
        if part.removeprefix("post").isdigit()
    )


@functools.cache
def shipped() -> tuple[str, ...]:
    """Return the versions whose schemas are part of this package, oldest first."""
    names = [p.name for p in importlib.resources.files(DATA).iterdir()]
    found = [n.removesuffix(".json.gz") for n in names if n[:1].isdigit()]
    return tuple(sorted(found, key=sort_key))


@functools.cache
def load(version: str) -> Schema:
    """Return the shipped schema of a release; ConfigError ``no-schema`` when it is not shipped."""
    path = importlib.resources.files(DATA).joinpath(f"{version}.json.gz")
    if version not in shipped():
        raise ConfigError(
            "no-schema",
            f"no flag schema of sglang {version} is shipped",
            hint=f"the nearest is {nearest_version(version)}; "
            f"`fleetctl flags fetch {version}` reads this one from its wheel",
        )
    return Schema.from_json(json.loads(gzip.decompress(path.read_bytes())), origin="shipped")


def nearest_version(version: str) -> str:
    """Return the newest shipped version that is not newer than this one, else the oldest."""
    older = [v for v in shipped() if sort_key(v) <= sort_key(version)]
    return older[-1] if older else shipped()[0]


def read(path: Path | str) -> Schema:
    """Return the schema of a wheel, an installed tree or a checkout, or of a schema file (.json, .json.gz)."""
    path = Path(path)
    if path.name.endswith((".json", ".json.gz")):
        return read_file(path)
    from fleetctl.engines.sglang.reader import read_json

    return Schema.from_json(read_json(path), origin="tree")


def read_file(path: Path) -> Schema:
    """Return the schema in a file; ConfigError when it cannot be read as one."""
    try:
        data = path.read_bytes()
        body = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
        return Schema.from_json(body)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            "bad-schema-file", f"not a flag schema: {error}", where=str(path)
        ) from error
    except ConfigError as error:
        raise ConfigError(
            error.reference, error.message, where=str(path), hint=error.hint
        ) from error


def spellings(schemas: Sequence[Schema]) -> Iterator[str]:
    """Yield every spelling of several schemas once."""
    yield from dict.fromkeys(name for schema in schemas for name in schema.flags)
