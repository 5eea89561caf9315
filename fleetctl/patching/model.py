"""What a patch is: where it goes, what it inserts, what it will say, and how long it may stay."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
Value = str | int | float | bool


class Rung(StrEnum):
    """How deep a patch reaches into a host, the least first."""

    ENVIRONMENT = "environment"
    OVERLAY = "overlay"
    EDIT = "edit"


class AtExpiry(StrEnum):
    """What happens when its time is over."""

    WARN = "warn"  # every command says so
    REVERT = "revert"  # the host takes it out itself; the next start runs the original


@dataclass(frozen=True, slots=True)
class Target:
    """A function to instrument: a module or package, and the qualified name inside it."""

    module: str
    symbol: str
    block: str  # the snippet's text, not yet rendered
    block_file: str
    sglang: str = ""  # only for these versions
    optional: bool = False  # no fault where it is not defined
    variables: tuple[tuple[str, Value], ...] = ()  # more names for the snippet
    rebinds: tuple[str, ...] = ()  # locals that the block may assign

    def __str__(self) -> str:
        return f"{self.module}:{self.symbol}"


@dataclass(frozen=True, slots=True)
class Diff:
    """A unified diff, bound to versions; ``base`` names the hashes of the files it was made from."""

    file: str
    text: str
    sglang: str
    base: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value that snippets and the environment may use, set by ``--param``."""

    name: str
    default: Value
    help: str = ""
    choices: tuple[Value, ...] = ()
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, slots=True)
class Marker:
    """What the patch prints, what each captured field means, and what silence means."""

    regex: str = ""  # empty: the standard line ``fleetctl-patch <name> v1 {json}``
    captures: tuple[tuple[str, str], ...] = ()
    silent: str = ""


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch as written in its folder, checked."""

    name: str
    folder: Path
    summary: str
    sglang: str
    rung: Rung
    expire: float  # seconds
    at_expiry: AtExpiry
    why: str = ""
    tried: tuple[str, ...] = ()  # versions that its author tried
    targets: tuple[Target, ...] = ()
    diffs: tuple[Diff, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    parameters: tuple[Parameter, ...] = ()
    marker: Marker = Marker()

    def parameter(self, name: str) -> Parameter | None:
        """Return the declared parameter of that name, or None."""
        return next((p for p in self.parameters if p.name == name), None)


@dataclass(frozen=True, slots=True)
class Rendered:
    """A patch with its parameters filled in, for one version: what travels to a host."""

    name: str
    edits: tuple[tuple[str, str, str], ...] = ()  # module, symbol, block
    optional: frozenset[tuple[str, str]] = frozenset()
    beacon: str = ""
    diffs: tuple[str, ...] = ()
    bases: tuple[tuple[str, str], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    parameters: dict[str, Value] = field(default_factory=dict)

    def digest(self) -> str:
        """Return the hash of what this patch does: equal for equal blocks, diffs and variables."""
        return digest_of(self.edits, self.diffs, self.environment)

    def to_json(self) -> dict[str, Any]:
        """Return the object for the agent."""
        return {
            "name": self.name,
            "digest": self.digest(),
            "targets": [
                {"module": m, "symbol": s, "block": b, "optional": (m, s) in self.optional}
                for m, s, b in self.edits
            ],
            "beacon": self.beacon,
            "diffs": list(self.diffs),
            "environment": dict(self.environment),
            "parameters": self.parameters,
        }


def digest_of(
    edits: tuple[tuple[str, str, str], ...],
    diffs: tuple[str, ...],
    environment: tuple[tuple[str, str], ...],
) -> str:
    """Return a sha256 over what a patch does."""
    body = json.dumps([edits, diffs, sorted(environment)], separators=(",", ":"))
    return hashlib.sha256(body.encode()).hexdigest()
