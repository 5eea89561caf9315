"""What a host answered, read with care: an older or half-failed answer is no fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleetctl.doctor.expect import DEFAULT, Expect

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Look:
    """One answer of ``doctor.look``, with what is expected of that host and how its clock compares.

    ``offset`` is the host's clock minus ours in seconds, ``unsure`` half the round trip.
    """

    facts: Mapping[str, Any]
    expect: Expect = DEFAULT
    offset: float | None = None
    unsure: float = 0.0
    gpus: int = 0  # of the inventory; 0: not said
    model: str | None = None

    def group(self, name: str) -> dict[str, Any]:
        """Return a group's facts, empty when it was not asked for or failed."""
        value = self.facts.get(name)
        return dict(value) if isinstance(value, Mapping) else {}

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return a group that is a list."""
        value = self.facts.get(name)
        return [dict(v) for v in value] if isinstance(value, list) else []


def gib(size: float) -> str:
    """Return a size for a person."""
    return f"{size / GIB:.1f} GiB" if size >= GIB / 10 else f"{size / 1024**2:.0f} MiB"
