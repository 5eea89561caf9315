"""How many launches a bisect still takes: the planner is played forward against what is believed now."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from random import Random

from fleetctl.bisect.belief import believe
from fleetctl.bisect.model import (
    History,
    Observation,
    Outcome,
    Problem,
    Verdict,
    sort_out,
)
from fleetctl.bisect.planner import next_round

PLAYS = 12
FEWER = 4  # of many switches, where each play takes long
LONGEST = 60


@dataclass(frozen=True, slots=True)
class Estimate:
    """Launches to come: the mean, and what nine of ten plays stay below."""

    mean: float
    high: int

    def minutes(self, seconds: float) -> str:
        """Return a span for a person, given how long a launch takes."""
        low, high = (max(1, round(n * seconds / 60)) for n in (self.mean, self.high))
        return f"about {low} min" if low == high else f"{low} to {high} min"

    def __str__(self) -> str:
        if not self.high:
            return "none"
        low = max(1, round(self.mean))
        return f"about {low}" if low == self.high else f"{low} to {self.high}"


def remaining(problem: Problem, history: History, hosts: int = 1) -> Estimate:
    """Return how many launches are left if the crash is certain; rounds where there are several hosts."""
    rng = Random(len(history))  # noqa: S311  a simulation
    plays = PLAYS if problem.size <= 20 else FEWER
    counts = sorted(_play(problem, history, hosts, rng) for _ in range(plays))
    mean = sum(counts) / plays
    return Estimate(mean, max(counts[int(0.9 * (plays - 1))], ceil(mean)))


def _play(problem: Problem, history: History, hosts: int, rng: Random) -> int:
    cause = _drawn(problem, history, rng)
    phase = next((o.phase for o in history if o.outcome is Outcome.SAME), "graph-capture")
    for count in range(LONGEST):
        step = next_round(problem, history, hosts)
        if isinstance(step, Verdict):
            return count
        for trial in step:
            hit = not cause & ~trial.on
            outcome = Outcome.SAME if hit else Outcome.PASS
            where = phase if hit else "serving"
            history += (Observation(trial.on, outcome, trial.purpose, where),)
    return LONGEST


def _drawn(problem: Problem, history: History, rng: Random) -> int:
    """Return a cause as likely as the belief has it."""
    seen = sort_out(history)
    crashes = [c for c in seen.crashes if c] or [problem.full]
    bad = min(crashes, key=lambda c: (c.bit_count(), c))
    belief = believe(problem.weights, bad, seen.passes, crashes)
    if not belief.masks:
        return bad
    return rng.choices(belief.masks, belief.weight)[0]


def floor(problem: Problem, history: History = ()) -> int:
    """Return the launches below which no verdict can come: the ends that are not known, a search, the proofs.

    What was launched before may have searched already; it is no proof.
    """
    seen = sort_out(history)
    ends = (problem.full not in seen.crashes) + (0 not in seen.passes)
    search = 0 if history else max(0, (problem.size - 1).bit_length())
    return ends + search + 2
