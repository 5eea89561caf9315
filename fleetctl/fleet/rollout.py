"""Which hosts a rolling change takes next, and when it stops. Pure: what happened comes in as events.

The first host is a canary and goes alone. A next batch starts only when every host of the one before
has come to its end, and only while no more hosts failed than were allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from fleetctl.errors import UsageError


class Place(StrEnum):
    """How far one host has come."""

    PENDING = "pending"
    RUNNING = "running"
    READY = "ready"
    UNCHANGED = "unchanged"  # had this configuration already, and serves
    FAILED = "failed"
    STARTING = "starting"  # restarted, and its watch was interrupted


@dataclass(frozen=True, slots=True)
class Limits:
    """What was asked for. ``batch``: hosts at once; ``pause`` and ``soak`` in seconds."""

    batch: int = 1
    max_fail: int = 0
    pause: float = 0.0
    soak: float = 0.0
    canary: bool = True


@dataclass(frozen=True, slots=True)
class Start:
    """Deploy to these hosts, together."""

    names: tuple[str, ...]
    canary: bool = False


@dataclass(frozen=True, slots=True)
class Soak:
    """Watch that the canary stays ready so many seconds."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Hosts are on their way."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing is left to do. ``why`` is empty when every host came to its end."""

    why: str = ""


Action = Start | Soak | Pause | Wait | Finish


@dataclass(frozen=True, slots=True)
class Rollout:
    """A rolling change on its way: each host's place, and what stands between two batches."""

    order: tuple[str, ...]
    places: Mapping[str, Place]
    limits: Limits
    canary: str | None = None  # the host that went first
    soaked: bool = False
    paused: bool = True  # nothing ran since the last pause
    why: str = ""  # it was stopped

    # --- what happened ---

    def started(self, names: Sequence[str]) -> Rollout:
        """These hosts are on their way."""
        first = self.canary or (names[0] if self.limits.canary else None)
        placed = self._place(dict.fromkeys(names, Place.RUNNING))
        return replace(placed, canary=first, paused=False)

    def ended(self, name: str, place: Place) -> Rollout:
        """A host came to its end, or (pending) was given back untouched."""
        after = self._place({name: place})
        if place == Place.FAILED and name == self.canary:
            return after.stopped(f"the canary {name} failed")
        if place == Place.PENDING and name == self.canary:
            return replace(after, canary=None)
        return after

    def soak_ended(self, fault: str) -> Rollout:
        """The soak of the canary is over: ``fault`` is empty when it stayed ready."""
        assert self.canary is not None
        after = replace(self, soaked=True)
        if fault:
            after = after._place({self.canary: Place.FAILED})
            return after.stopped(f"the canary {self.canary} did not stay ready: {fault}")
        return after

    def pause_ended(self) -> Rollout:
        """The pause is over."""
        return replace(self, paused=True)

    def stopped(self, why: str) -> Rollout:
        """Nothing more is begun."""
        return self if self.why else replace(self, why=why)

    # --- what next ---

    def next(self) -> Action:
        """Return what to do now."""
        if self.of(Place.RUNNING):
            return Wait()
        if self.why:
            return Finish(self.why)
        failed = self.of(Place.FAILED)
        if len(failed) > self.limits.max_fail:
            return Finish(f"{len(failed)} failed, and {self.limits.max_fail} may")
        waiting = self.of(Place.PENDING)
        if self._soak_due():
            assert self.canary is not None
            return Soak(self.canary, self.limits.soak)
        if not waiting:
            return Finish()
        if not self.paused and self.limits.pause:
            return Pause(self.limits.pause)
        if self.limits.canary and self.canary is None:
            return Start(waiting[:1], canary=True)
        return Start(waiting[: self.limits.batch])

    def of(self, place: Place) -> tuple[str, ...]:
        """Return the hosts at that place, in order."""
        return tuple(n for n in self.order if self.places[n] == place)

    def _soak_due(self) -> bool:
        if not self.limits.soak or self.soaked or self.canary is None:
            return False
        return self.places[self.canary] == Place.READY

    def _place(self, changes: Mapping[str, Place]) -> Rollout:
        return replace(self, places=MappingProxyType({**self.places, **changes}))


def begin(places: Mapping[str, Place], limits: Limits, *, resume: bool = False) -> Rollout:
    """Return a change that has not begun. ``places``: what each host was found to be, in order.

    ``resume``: where a host already serves this configuration, it was the canary.
    """
    order = tuple(places)
    passed = next((n for n in order if places[n] == Place.UNCHANGED), None) if resume else None
    return Rollout(
        order, MappingProxyType(dict(places)), limits, canary=passed, soaked=bool(passed)
    )


def batch_size(text: str, hosts: int) -> int:
    """Return how many hosts go at once, of ``3`` or ``25%`` (rounded down, at least one).

    Raises UsageError ``bad-batch``.
    """
    number, percent = text.removesuffix("%"), text.endswith("%")
    if not number.isdecimal() or int(number) < 1 or (percent and int(number) > 100):
        raise UsageError("bad-batch", f"{text!r} is no batch", hint="write 1, 4 or 25%")
    return max(1, hosts * int(number) // 100) if percent else int(number)
