"""What came, went and changed between two flag schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fleetctl.engines.sglang.schema import Flag, Schema

KEYS = ("type", "nargs", "default", "required", "deprecated", "replacement", "fatal", "dest")


@dataclass(frozen=True, slots=True)
class Comparison:
    """``changed`` holds (spelling, key, before, after); choices tell only what came or went."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[tuple[str, str, Any, Any], ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def to_json(self) -> dict[str, Any]:
        """Return the documented object."""
        rows = [dict(zip(("flag", "key", "before", "after"), r, strict=True)) for r in self.changed]
        return {"added": list(self.added), "removed": list(self.removed), "changed": rows}


def compare(old: Schema, new: Schema) -> Comparison:
    """Return the differences, sorted by spelling."""
    changed: list[tuple[str, str, Any, Any]] = []
    for name in sorted(old.flags.keys() & new.flags.keys()):
        if name == new.flags[name].name or new.flags[name].name not in old.flags:
            changed += _flag(name, old.flags[name], new.flags[name])
    return Comparison(
        tuple(sorted(new.flags.keys() - old.flags.keys())),
        tuple(sorted(old.flags.keys() - new.flags.keys())),
        tuple(changed),
    )


def _flag(name: str, old: Flag, new: Flag) -> list[tuple[str, str, Any, Any]]:
    rows = [
        (name, key, getattr(old, key), getattr(new, key))
        for key in KEYS
        if getattr(old, key) != getattr(new, key)
    ]
    before, after = (set(map(str, f.choices or ())) for f in (old, new))
    if before != after:
        rows.append((name, "choices", sorted(before - after), sorted(after - before)))
    return rows
