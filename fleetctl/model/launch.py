"""Launch records: every launch leaves one, also the good ones. Bisect, rollback and history read them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA = "fleetctl.launch/1"


@dataclass(frozen=True, slots=True)
class Atom:
    """One difference between two launches: what a bisect can switch.

    ``kind`` is flag, env, unit, version, model or patch; None stands for "not there".
    """

    kind: str
    name: str
    before: Any
    after: Any

    def __str__(self) -> str:
        prefix = "" if self.kind == "flag" else f"{self.kind} "
        before, after = (self.value(v) for v in (self.before, self.after))
        if self.before is None:
            return f"{prefix}+{self.name}" + ("" if self.after is True else f"={after}")
        if self.after is None:
            return f"{prefix}-{self.name}"
        return f"{prefix}{self.name}: {before} → {after}"

    def value(self, side: Any) -> str:
        """Return one side for a person; of a patch's hash, the beginning."""
        return shown(side)[:DIGEST] if self.kind == "patch" else shown(side)


LONGEST = 200  # characters
DIGEST = 12  # characters of a hash, for a person


def brief(atom: Atom | str) -> str:
    """Return an atom's text for a person, cut where it would hide all else. Not for comparing."""
    text = str(atom)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"


def shown(value: Any) -> str:
    """Return a value as a person would write it on one line."""
    if isinstance(value, list | tuple):
        return ",".join(str(v) for v in value)
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else str(value)


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """The resolved configuration of one launch, without any secret's value."""

    profile: str
    model: str
    flags: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    unit: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)  # sglang, torch, driver …
    patches: dict[str, str] = field(default_factory=dict)  # name → sha256 of what was applied

    def digest(self) -> str:
        """Return a short hash that is equal for equal configurations, whatever the profile's name."""
        body = asdict(self)
        del body["profile"]
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def diff_configs(before: LaunchConfig, after: LaunchConfig) -> tuple[Atom, ...]:
    """Return every difference as atoms, sorted by kind and name."""
    atoms: list[Atom] = []
    for kind, old, new in (
        ("flag", before.flags, after.flags),
        ("env", before.env, after.env),
        ("unit", before.unit, after.unit),
        ("version", before.versions, after.versions),
        ("patch", before.patches, after.patches),
    ):
        for name in sorted(old.keys() | new.keys()):
            left, right = old.get(name), new.get(name)
            if shown(left) != shown(right):
                atoms.append(Atom(kind, name, left, right))
    if before.model != after.model:
        atoms.append(Atom("model", "model", before.model, after.model))
    return tuple(atoms)


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """One launch on one host: what was asked for, and what became of it."""

    id: str
    host: str
    service: str
    config: LaunchConfig
    started_at: str
    invocation_id: str | None = None
    outcome: str = "starting"  # the states of deploy's result event
    phase: str = "unknown"
    label: str | None = None
    signature: str | None = None
    fingerprint: str | None = None
    incident: str | None = None
    ended_at: str | None = None
    ready_seconds: float | None = None
    changed: tuple[str, ...] = ()  # atoms against the launch before, as text
    by: str = ""
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the stored object."""
        return {"schema": SCHEMA} | asdict(self) | {"digest": self.config.digest()}
