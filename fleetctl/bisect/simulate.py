"""The shipped planner against drawn truths: ``fleetctl bisect simulate``.

The planner sees prior weights and outcomes only; the causes, q and what masks stay here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from fleetctl.bisect.model import (
    History,
    Observation,
    Options,
    Outcome,
    Problem,
    Purpose,
    Status,
    Trial,
    Verdict,
)
from fleetctl.bisect.planner import next_round, sum_of

HUNTED, EARLIER = "graph-capture", "dist-init"
GOOD_WEIGHT, GOOD_SHARE = 8.0, 0.8  # a good prior: the culprits weigh most in 8 runs of 10
GIVE_UP = 400  # launches

Planner = Callable[[Problem, History, int], tuple[Trial, ...] | Verdict]


@dataclass(frozen=True, slots=True)
class Setting:
    """What is drawn: ``n`` atoms, ``causes`` sets of ``k``, crashing with chance ``q``."""

    n: int
    k: int = 1
    q: float = 1.0
    hosts: int = 1
    causes: int = 1
    other: float = 0.0
    prior: str = "flat"


@dataclass(frozen=True, slots=True)
class Truth:
    """One drawn host: what crashes it, and what hides that."""

    causes: tuple[int, ...]
    masks: tuple[tuple[int, int], ...]  # (on, off): brings the earlier failure
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """What one bisect cost and whether its verdict was right."""

    search: int
    total: int
    rounds: int
    all_rounds: int
    right: bool
    exact: bool
    undetermined: bool


def draw(setting: Setting, rng: Random) -> Truth:
    """Draw the causes, the masking pairs and the prior; atom 0 is the most suspicious one."""
    atoms = list(range(setting.n))
    rng.shuffle(atoms)
    culprits = atoms[: setting.k * setting.causes]
    others = [rng.randrange(setting.n) for _ in culprits]
    heavy = culprits if rng.random() < GOOD_SHARE else others
    weights = [1.0] * setting.n
    if setting.prior == "good":
        for atom in heavy:
            weights[atom] = GOOD_WEIGHT
    order = sorted(range(setting.n), key=lambda a: -weights[a])
    place = {atom: rank for rank, atom in enumerate(order)}
    sets = tuple(
        sum(1 << place[a] for a in culprits[i * setting.k : (i + 1) * setting.k])
        for i in range(setting.causes)
    )
    masks: list[tuple[int, int]] = []
    for on in rng.sample(range(setting.n), round(setting.other * setting.n)):
        off = rng.choice([a for a in range(setting.n) if a != on])
        masks.append((1 << on, 1 << off))
    return Truth(sets, tuple(masks), tuple(weights[a] for a in order))


def launch(truth: Truth, q: float, trial: Trial, rng: Random) -> Observation:
    """Return what one launch shows."""
    if any(trial.on & on and not trial.on & off for on, off in truth.masks):
        return Observation(trial.on, Outcome.OTHER, trial.purpose, EARLIER, "another failure")
    for cause in truth.causes:
        if not cause & ~trial.on and rng.random() < q:
            return Observation(trial.on, Outcome.SAME, trial.purpose, HUNTED, "the hunted crash")
    return Observation(trial.on, Outcome.PASS, trial.purpose, "serving")


def play(
    setting: Setting, truth: Truth, rng: Random, planner: Planner
) -> tuple[Verdict, History, list[int]]:
    """Run one bisect to its verdict; also return how many launches each round had."""
    problem = Problem(truth.weights, Options(infra_in_a_row=GIVE_UP))
    history: History = ()
    rounds: list[int] = []
    while len(history) < GIVE_UP:
        step = planner(problem, history, setting.hosts)
        if isinstance(step, Verdict):
            return step, history, rounds
        history += tuple(launch(truth, setting.q, trial, rng) for trial in step)
        rounds.append(len(step))
    return Verdict(Status.INCONCLUSIVE, reason="gave up"), history, rounds


def judge(setting: Setting, truth: Truth, played: tuple[Verdict, History, list[int]]) -> Run:
    """Compare a verdict with the truth and count what it cost."""
    verdict, history, rounds = played
    named = sorted(c.flags for c in verdict.causes)
    exact = named == sorted(truth.causes) and not any(c.undetermined for c in verdict.causes)
    allowed = _not_wrong(truth, verdict)
    searching = [_is_search(o, verdict, (1 << setting.n) - 1) for o in history]
    start, search_rounds = 0, 0
    for size in rounds:
        ends = any(o.purpose is Purpose.CALIBRATE for o in history[start : start + size])
        search_rounds += any(searching[start : start + size]) and not ends
        start += size
    return Run(
        search=sum(searching), total=len(history), rounds=search_rounds, all_rounds=len(rounds),
        right=exact if setting.other == 0 else allowed, exact=exact,
        undetermined=any(c.undetermined for c in verdict.causes) or verdict.status is not Status.FOUND,
    )  # fmt: skip


def _not_wrong(truth: Truth, verdict: Verdict) -> bool:
    """Return whether nothing said is false: named flags belong to the cause, the rest is open."""
    if verdict.status is not Status.FOUND:
        return True
    left = list(truth.causes)
    for cause in verdict.causes:
        whole = cause.flags | cause.undetermined
        fits = [t for t in left if not cause.flags & ~t and not t & ~whole]
        if not fits:
            return False
        left.remove(fits[0])
    return not any(t & ~verdict.innocent == 0 for t in left)


def _is_search(seen: Observation, verdict: Verdict, full: int) -> bool:
    """Return whether a launch was part of the search: neither calibration nor a proof that held."""
    if seen.purpose is Purpose.CALIBRATE:
        return False
    if seen.purpose is not Purpose.CONFIRM:
        return True
    flags = sum_of(c.flags for c in verdict.causes)
    if seen.outcome is Outcome.SAME or seen.on & flags == flags:
        return all(seen.on != c.flags | c.undetermined for c in verdict.causes)
    without = not full & ~flags & ~seen.on
    return not without and all(seen.on & ~c.without for c in verdict.causes if c.without)


def simulate(
    setting: Setting, runs: int | range, seed: int, planner: Planner = next_round
) -> list[Run]:
    """Return independent bisects, by their numbers; the same seed gives the same, on any machine."""
    cache: dict[tuple[object, ...], tuple[Trial, ...] | Verdict] = {}

    def remembered(problem: Problem, history: History, hosts: int) -> tuple[Trial, ...] | Verdict:
        key = (problem.weights, tuple((o.on, o.outcome, o.purpose) for o in history), hosts)
        if key not in cache:
            cache[key] = planner(problem, history, hosts)
        return cache[key]

    out = []
    for number in range(runs) if isinstance(runs, int) else runs:
        rng = Random(f"{seed}/{number}")  # noqa: S311  a simulation
        truth = draw(setting, rng)
        out.append(judge(setting, truth, play(setting, truth, rng, remembered)))
    return out


def summary(setting: Setting, runs: list[Run], seed: int) -> dict[str, object]:
    """Return the object that ``fleetctl bisect simulate --json`` prints."""
    count = len(runs)
    trials = sorted(r.search for r in runs)
    return {
        "n": setting.n, "k": setting.k, "q": setting.q, "hosts": setting.hosts,
        "causes": setting.causes, "other": setting.other, "prior": setting.prior,
        "runs": count, "seed": seed,
        "mean_trials": round(sum(trials) / count, 3),
        "p95_trials": trials[min(count - 1, int(0.95 * count))],
        "mean_total": round(sum(r.total for r in runs) / count, 3),
        "mean_rounds": round(sum(r.rounds for r in runs) / count, 3),
        "mean_total_rounds": round(sum(r.all_rounds for r in runs) / count, 3),
        "right": sum(r.right for r in runs) / count,
        "exact": sum(r.exact for r in runs) / count,
        "undetermined": sum(r.undetermined for r in runs) / count,
    }  # fmt: skip
