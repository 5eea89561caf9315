"""What every strategy shares (calibration, parents, counting), and one variable at a time."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.bisect.belief import chance_of_silence
from fleetctl.bisect.model import (
    Cause,
    Evidence,
    History,
    Outcome,
    Problem,
    Purpose,
    Status,
    Trial,
    Verdict,
    hunted_phase,
    members,
    sort_out,
    tells,
)

ANOTHER_WAY = "fails in another way, or cannot be judged"
QUIET, BY_CHANCE = 8, 0.001  # launches in a row without a crash that came before
HOST_FAILS = "the host failed several times in a row"
COUNTED = frozenset({Outcome.PASS, Outcome.SAME, Outcome.OTHER})


def infra_run(history: History) -> int:
    """Return how many trials the host itself spoiled since the last one that it did not."""
    count = 0
    for seen in reversed(history):
        if seen.outcome is not Outcome.INFRA:
            break
        count += 1
    return count


def calibrate(problem: Problem, seen: Evidence) -> list[Trial] | Verdict:
    """Return the launches of the two ends that are still missing, or why there is no search."""
    full = problem.full
    crashed = full in seen.crashes
    served = sum(1 for p in seen.passes if p == full)
    if 0 in seen.crashes:
        return Verdict(Status.NOT_FLAGS, reason="the good end crashes in the same way")
    if 0 in seen.masked:
        return Verdict(Status.INCONCLUSIVE, reason=f"the good end {ANOTHER_WAY}")
    if not crashed and full in seen.masked:
        return Verdict(Status.INCONCLUSIVE, reason=f"the bad end {ANOTHER_WAY}")
    if not crashed and served >= problem.options.bad_runs:
        return Verdict(
            Status.DOES_NOT_REPRODUCE, reason=f"the bad end served {served} times out of {served}"
        )
    trials = [] if crashed else [Trial(full, Purpose.CALIBRATE)]
    clean = sum(1 for p in seen.passes if p == 0)
    # A crash that stays away in every second launch of the bad end could stay away once here too.
    needed = 2 if served > sum(1 for c in seen.crashes if c == full) else 1
    trials += [Trial(0, Purpose.CALIBRATE)] * max(0, needed - clean)
    return trials


def spent(history: History) -> int:
    """Return how many launches were made and told something; those paid before count for nothing."""
    return sum(1 for o in history if o.purpose is not Purpose.PAID and o.outcome in COUNTED)


def since_crash(history: History) -> int:
    """Return how many launches in a row served, since the hunted crash was seen last."""
    hunted = hunted_phase(history)
    count = 0
    for seen in reversed(history):
        outcome = tells(seen, hunted)
        if outcome is Outcome.SAME:
            break
        count += outcome is Outcome.PASS
    return count


def gone_quiet(history: History) -> int:
    """Return how often sets that crashed before have served in a row, where chance cannot explain it.

    Then something else has changed: a crash that is only flaky comes back sooner. 0 where it can.
    """
    hunted = hunted_phase(history)
    told = [(o.on, tells(o, hunted)) for o in history]
    crashes = {on for on, outcome in told if outcome is Outcome.SAME}
    last = max((i for i, (_, o) in enumerate(told) if o is Outcome.SAME), default=-1)
    silent = [
        i for i, (on, outcome) in enumerate(told)
        if outcome is Outcome.PASS and any(not c & ~on for c in crashes)
    ]  # fmt: skip
    run = sum(1 for i in silent if i > last)
    if run < QUIET:
        return 0
    seen = sum(1 for _, outcome in told if outcome is Outcome.SAME)
    chance = chance_of_silence(seen, len(silent) - run, run)
    return run if chance < BY_CHANCE else 0


def described(trial: Trial, history: History) -> Trial:
    """Return the trial with its parent, and whether it changes more than one atom against it."""
    runs = [o.on for o in history if o.outcome in COUNTED]
    if not runs:
        return trial
    parent = min(runs, key=lambda r: ((r ^ trial.on).bit_count(), -r))
    return replace(trial, parent=parent, confounded=(parent ^ trial.on).bit_count() > 1)


def next_round(problem: Problem, history: History, hosts: int) -> tuple[Trial, ...] | Verdict:
    """Return the next rows of the strict table: good plus one atom, bad minus one atom."""
    seen = sort_out(history)
    early = calibrate(problem, seen)
    if isinstance(early, Verdict):
        return early
    if infra_run(history) >= problem.options.infra_in_a_row:
        return Verdict(Status.INCONCLUSIVE, reason=HOST_FAILS)
    done = {o.on for o in history if o.outcome is not Outcome.INFRA}
    singles = [1 << a for a in range(problem.size)]
    rows = singles + [problem.full & ~s for s in singles]
    open_ = early or [Trial(r, Purpose.ISOLATE) for r in dict.fromkeys(rows) if r not in done]
    if not open_:
        return _table(problem, seen)
    limit = problem.options.max_trials
    if limit is not None and spent(history) >= limit:
        return Verdict(Status.BUDGET, reason=f"the budget of {limit} trials is spent")
    return tuple(described(t, history) for t in open_[:hosts])


def _table(problem: Problem, seen: Evidence) -> Verdict:
    """Read the finished table: what is enough alone, and what the crash cannot do without."""
    enough = [1 << a for a in range(problem.size) if 1 << a in seen.crashes]
    needed = 0
    for atom in range(problem.size):
        if problem.full & ~(1 << atom) in seen.passes:
            needed |= 1 << atom
    hidden = 0
    for atom in members(problem.full):
        if 1 << atom in seen.masked or problem.full & ~(1 << atom) in seen.masked:
            hidden |= 1 << atom
    sets = enough or ([needed] if needed else [])
    if not sets:
        return Verdict(
            Status.INCONCLUSIVE,
            reason="no single atom brings the crash, and none takes it away: run the adaptive search",
        )
    flags = 0
    for mask in sets:
        flags |= mask
    causes = tuple(Cause(m, confirmed=m in seen.crashes and m == needed) for m in sets)
    return Verdict(Status.FOUND, causes, problem.full & ~flags & ~hidden)
