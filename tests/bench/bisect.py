"""The bisect planner against drawn truths, beside the ways that people search by."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from fleetctl.bisect.model import Observation, Outcome, Problem, Verdict
from fleetctl.bisect.planner import next_round
from fleetctl.bisect.simulate import Setting, draw, summary
from fleetctl.cli.bisect_simulate import play
from tests.bench.harness import Report
from tests.bench.run import Options

SEED = 7
Crashes = Callable[[int], bool]


@dataclass(frozen=True)
class Promise:
    """A setting with the launches and the share of right verdicts that are promised."""

    setting: Setting
    trials: float | None = None
    right: float | None = None
    more: float | None = None  # launches on top for both ends and both proofs


PROMISES = (
    Promise(Setting(16, 1), 5.0, 1.0, 5.0),
    Promise(Setting(16, 2), 9.2, 1.0, 5.0),
    Promise(Setting(32, 2), 11.5, 1.0, 5.0),
    Promise(Setting(16, 3)),
    Promise(Setting(16, 1, 0.9), 7.0, 0.98),
    Promise(Setting(16, 1, 0.7), 10.0, 0.96, 9.0),
    Promise(Setting(16, 2, 0.7), 21.0, 0.95, 9.0),
    Promise(Setting(16, 1, other=0.2), None, 0.99),
    Promise(Setting(16, 2, other=0.2), None, 0.99),
    Promise(Setting(16, 1, causes=2), None, 0.99),
    Promise(Setting(16, 1, hosts=3), None, 1.0),
    Promise(Setting(16, 1, prior="good"), None, 1.0),
    Promise(Setting(16, 2, prior="good"), None, 1.0),
)


def bench(options: Options) -> Report:
    """Play every setting, then the peers on the settings of one cause and one host."""
    report = Report("bisect")
    runs = 200 if options.quick else 1000
    ours, rounds = [], {}
    for promise in PROMISES:
        setting = promise.setting
        found = summary(setting, play(setting, runs, SEED), SEED)
        numbers = {k: float(v) for k, v in found.items() if isinstance(v, int | float)}
        rounds[setting] = numbers["mean_rounds"]
        ours.append([
            words(setting), numbers["mean_trials"], numbers["p95_trials"], numbers["mean_total"],
            numbers["mean_rounds"], numbers["right"], numbers["exact"],
        ])  # fmt: skip
        _goals(report, promise, numbers)
    head = ["setting", "search", "p95", "with ends and proofs", "rounds", "right", "exact"]
    report.table(f"fleetctl's planner, {runs} runs, seed {SEED}; launches", head, ours)
    one, three = Setting(16, 1), Setting(16, 1, hosts=3)
    report.goal("rounds of 3 hosts over those of one", 0.6, rounds[three] / rounds[one])
    rows = [
        [words(p.setting), name, *_peer(peer, p.setting, runs)]
        for p in PROMISES
        for name, peer in PEERS.items()
        if p.setting.hosts == p.setting.causes == 1
        and not p.setting.other
        and p.setting.prior == "flat"
    ]
    head = ["setting", "way", "launches", "p95", "right"]
    report.table("the same truths by other ways (ends not counted)", head, rows)
    report.goal("planner's time for a step at n=32, ms", 50.0, 1000 * _slowest_step())
    return report


def words(setting: Setting) -> str:
    """Return a setting in a few words."""
    text = f"n={setting.n} k={setting.k} q={setting.q:g}"
    more = {
        "hosts": setting.hosts != 1, "causes": setting.causes != 1,
        "other": setting.other, "prior": setting.prior != "flat",
    }  # fmt: skip
    return text + "".join(
        f" {name}={getattr(setting, name)}" for name, there in more.items() if there
    )


def _goals(report: Report, promise: Promise, numbers: dict[str, float]) -> None:
    name = words(promise.setting)
    if promise.trials is not None:
        report.goal(f"{name}: launches of the search", promise.trials, numbers["mean_trials"])
    if promise.right is not None:
        report.goal(
            f"{name}: share of wrong verdicts",
            round(1 - promise.right, 3),
            round(1 - numbers["right"], 4),
        )
    if promise.more is not None:
        more = numbers["mean_total"] - numbers["mean_trials"]
        report.goal(f"{name}: launches for ends and proofs", promise.more, round(more, 3))


def _slowest_step() -> float:
    """Return the longest time of one step over some bisects of 32 atoms, in seconds of CPU."""
    longest = 0.0
    for number in range(10):
        setting = Setting(32, 2, 0.7)
        rng = Random(number)
        truth = draw(setting, rng)
        history: tuple[Observation, ...] = ()
        while len(history) < 60:
            began = time.process_time()
            step = next_round(Problem(truth.weights), history, 1)
            longest = max(longest, time.process_time() - began)
            if isinstance(step, Verdict):
                break
            (trial,) = step
            hit = not truth.causes[0] & ~trial.on and rng.random() < setting.q
            outcome = Outcome.SAME if hit else Outcome.PASS
            history += (Observation(trial.on, outcome, trial.purpose, "graph-capture"),)
    return longest


# --- other ways; each returns the set that it names, or None ---


def one_at_a_time(n: int, crashes: Crashes) -> int | None:
    """Add each atom alone to the good end."""
    found = [1 << a for a in range(n) if crashes(1 << a)]
    return found[0] if len(found) == 1 else None


def leave_one_out(n: int, crashes: Crashes) -> int | None:
    """Take each atom alone from the bad end: those without which it serves."""
    full = (1 << n) - 1
    needed = sum(1 << a for a in range(n) if not crashes(full & ~(1 << a)))
    return needed or None


def ddmin(n: int, crashes: Crashes) -> int | None:
    """Zeller and Hildebrandt's delta debugging (2002), with its cache of outcomes."""
    known: dict[int, bool] = {(1 << n) - 1: True, 0: False}

    def fails(on: int) -> bool:
        if on not in known:
            known[on] = crashes(on)
        return known[on]

    atoms, parts = list(range(n)), 2
    while len(atoms) >= 2:
        size = len(atoms)
        chunks = [atoms[i * size // parts : (i + 1) * size // parts] for i in range(parts)]
        masks = [sum(1 << a for a in c) for c in chunks]
        whole = sum(1 << a for a in atoms)
        one = next((i for i, m in enumerate(masks) if fails(m)), None)
        if one is not None:
            atoms, parts = chunks[one], 2
            continue
        rest = next((i for i, m in enumerate(masks) if fails(whole & ~m)), None)
        if rest is not None:
            gone = set(chunks[rest])
            atoms, parts = [a for a in atoms if a not in gone], max(parts - 1, 2)
        elif parts >= size:
            break
        else:
            parts = min(2 * parts, size)
    return sum(1 << a for a in atoms)


def prefix_halving(n: int, crashes: Crashes) -> int | None:
    """Halve prefixes from good towards bad for one member of the cause after the other."""
    found, end = 0, n
    while True:
        if found and crashes(found):
            return found
        low, high = 0, end
        while high - low > 1:
            middle = (low + high) // 2
            if crashes(found | ((1 << middle) - 1)):
                high = middle
            else:
                low = middle
        if high <= low or found >> (high - 1) & 1:
            return None
        found |= 1 << (high - 1)
        end = high - 1


PEERS: dict[str, Callable[[int, Crashes], int | None]] = {
    "one at a time": one_at_a_time,
    "leave one out": leave_one_out,
    "ddmin": ddmin,
    "prefix halving, unweighted": prefix_halving,
}


def _peer(
    way: Callable[[int, Crashes], int | None], setting: Setting, runs: int
) -> tuple[float, float, float]:
    """Return mean and 95th percentile of launches, and the share of right answers."""
    counts, right = [], 0
    for number in range(runs):
        rng = Random(f"{SEED}/{number}")
        truth = draw(setting, rng)
        (cause,) = truth.causes
        made = 0

        def crashes(on: int, cause: int = cause, rng: Random = rng) -> bool:
            nonlocal made
            made += 1
            return not cause & ~on and rng.random() < setting.q

        right += way(setting.n, crashes) == cause
        counts.append(made)
    counts.sort()
    return sum(counts) / runs, counts[int(0.95 * runs)], right / runs
