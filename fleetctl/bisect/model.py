"""What a bisect speaks of: atoms that are on or off, trials, what was observed, and the verdict.

A set of atoms is an int: bit ``i`` stands for atom ``i`` of the space. The good end is 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from fleetctl.model.triage import PHASE_ORDER

INFRA_IN_A_ROW = 4  # launches that the host spoils before it is given up


class Outcome(StrEnum):
    """What became of a trial, seen from the hunted crash."""

    PASS = "pass"  # noqa: S105  served
    SAME = "same"  # the hunted crash
    OTHER = "other"  # another failure: a lead of its own
    INVALID = "invalid"  # rejected before it ran, or skipped: nothing is known
    INFRA = "infra"  # the host's fault: run it again


class Purpose(StrEnum):
    """Why a trial is run."""

    CALIBRATE = "calibrate"
    SEARCH = "search"
    OUTRIGHT = "outright"  # the likeliest set by itself: a search that is proof when it crashes
    CONFIRM = "confirm"
    ISOLATE = "isolate"  # one variable at a time
    PAID = "paid"  # a launch that was there before the bisect


@dataclass(frozen=True, slots=True)
class Observation:
    """One line of the history: which atoms were on, and what came of it."""

    on: int
    outcome: Outcome
    purpose: Purpose = Purpose.SEARCH
    phase: str = "unknown"
    signature: str = ""
    label: str = ""
    full: bool = True  # False: with dummy weights, which is no proof


@dataclass(frozen=True, slots=True)
class Trial:
    """The next launch: the good profile with these atoms switched to their bad value."""

    on: int
    purpose: Purpose
    why: str = ""
    parent: int | None = None  # the nearest set that was run before
    confounded: bool = False  # differs from its parent by more than one atom


@dataclass(frozen=True, slots=True)
class Cause:
    """Atoms that bring the crash together, and those that could not be told apart from them."""

    flags: int
    undetermined: int = 0
    masked_by: str | None = None
    confirmed: bool = False
    without: int = 0  # atoms that had to be off as well for "bad without the cause" to be seen
    probability: float = 1.0


class Status(StrEnum):
    """How a bisect ended."""

    FOUND = "found"
    NOT_FLAGS = "not-flags"
    DOES_NOT_REPRODUCE = "does-not-reproduce"
    INCONCLUSIVE = "inconclusive"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer. ``suspects`` lists (set, probability) where the search ended early."""

    status: Status
    causes: tuple[Cause, ...] = ()
    innocent: int = 0
    reason: str = ""
    suspects: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Options:
    """How far to go. Trials that were paid before count for nothing here."""

    max_trials: int | None = None
    bad_runs: int = 6  # launches of the bad end without the crash before "does not reproduce"
    infra_in_a_row: int = INFRA_IN_A_ROW
    strategy: str = "adaptive"  # adaptive | one-at-a-time


@dataclass(frozen=True, slots=True)
class Problem:
    """All that the planner knows of the atoms: how suspicious each is, most suspicious first."""

    weights: tuple[float, ...]
    options: Options = field(default_factory=Options)

    @property
    def size(self) -> int:
        """Return the number of atoms."""
        return len(self.weights)

    @property
    def full(self) -> int:
        """Return the bad end: every atom on."""
        return (1 << len(self.weights)) - 1


History = tuple[Observation, ...]


def members(mask: int) -> Iterator[int]:
    """Yield the atoms of a set, the most suspicious first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def hunted_phase(history: History) -> str:
    """Return the phase of the hunted crash, from its first sighting."""
    return next((o.phase for o in history if o.outcome is Outcome.SAME), "unknown")


def gets_past(phase: str, hunted: str) -> bool:
    """Return whether a failure in ``phase`` shows that the hunted one is gone: it came later."""
    if "unknown" in (phase, hunted):
        return False
    return PHASE_ORDER.get(phase, -1) > PHASE_ORDER.get(hunted, 1 << 30)


def is_earlier(phase: str, hunted: str) -> bool:
    """Return whether a failure in ``phase`` comes before the hunted one, so that it masks it."""
    if "unknown" in (phase, hunted):
        return False
    return PHASE_ORDER.get(phase, 1 << 30) < PHASE_ORDER.get(hunted, -1)


def tells(seen: Observation, hunted: str) -> Outcome:
    """Return what an observation says of the hunted crash: a failure in a later phase, that it is gone."""
    if seen.outcome is Outcome.OTHER and gets_past(seen.phase, hunted):
        return Outcome.PASS
    return seen.outcome


@dataclass(frozen=True, slots=True)
class Evidence:
    """The history sorted by what it says of the hunted crash."""

    crashes: tuple[int, ...]
    passes: tuple[int, ...]
    masked: tuple[int, ...]  # another failure came first, or the combination cannot run


def sort_out(history: History) -> Evidence:
    """Return crashes, passes and masked sets; a failure in a later phase counts as a pass."""
    hunted = hunted_phase(history)
    crashes: list[int] = []
    passes: list[int] = []
    masked: list[int] = []
    for seen in history:
        match tells(seen, hunted):
            case Outcome.SAME:
                crashes.append(seen.on)
            case Outcome.PASS:
                passes.append(seen.on)
            case Outcome.OTHER | Outcome.INVALID:
                masked.append(seen.on)
            case Outcome.INFRA:
                pass
    return Evidence(tuple(crashes), tuple(passes), tuple(masked))
