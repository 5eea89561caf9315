"""The planner's promises, for truths that nobody chose."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    members,
)
from fleetctl.bisect.planner import leads, next_round, next_step

SIZES = st.integers(min_value=1, max_value=10)


@st.composite
def certain(draw: st.DrawFn) -> tuple[Problem, tuple[int, ...]]:
    """A problem with weights, and one or two disjoint causes of one to three atoms."""
    n = draw(SIZES)
    weights = draw(st.lists(st.sampled_from([0.4, 1.0, 3.0, 8.0]), min_size=n, max_size=n))
    atoms = draw(st.permutations(range(n)))
    first = draw(st.integers(1, min(3, n)))
    causes = [sum(1 << a for a in atoms[:first])]
    if n - first >= 1 and draw(st.booleans()):
        second = draw(st.integers(1, min(2, n - first)))
        causes.append(sum(1 << a for a in atoms[first : first + second]))
    return Problem(tuple(weights)), tuple(causes)


def launch(causes: tuple[int, ...], trial: Trial) -> Observation:
    if any(not c & ~trial.on for c in causes):
        return Observation(trial.on, Outcome.SAME, trial.purpose, "graph-capture", "hunted")
    return Observation(trial.on, Outcome.PASS, trial.purpose, "serving")


def play(
    problem: Problem, causes: tuple[int, ...], hosts: int = 1, most: int = 200
) -> tuple[Verdict, History]:
    history: History = ()
    while len(history) < most:
        step = next_round(problem, history, hosts)
        if isinstance(step, Verdict):
            return step, history
        assert 1 <= len(step) <= hosts
        history += tuple(launch(causes, t) for t in step)
    raise AssertionError("no end")


def bound(problem: Problem, causes: tuple[int, ...]) -> int:
    """Both ends; for each atom of a cause a halving and its proofs; for each cause both ways."""
    halving = problem.size.bit_length() + 8
    return 4 + sum(halving * c.bit_count() for c in causes) + 4 * len(causes)


@settings(max_examples=100, deadline=None)
@given(certain())
def test_a_certain_crash_names_every_cause_and_no_innocent(
    drawn: tuple[Problem, tuple[int, ...]],
) -> None:
    problem, causes = drawn
    verdict, history = play(problem, causes)
    assert verdict.status is Status.FOUND
    assert sorted(c.flags for c in verdict.causes) == sorted(causes)
    assert all(c.confirmed and not c.undetermined for c in verdict.causes)
    guilty = sum(causes)
    assert verdict.innocent == problem.full & ~guilty
    assert len(history) <= bound(problem, causes)


@settings(max_examples=60, deadline=None)
@given(certain(), st.integers(2, 5))
def test_several_hosts_find_the_same_causes(
    drawn: tuple[Problem, tuple[int, ...]], hosts: int
) -> None:
    problem, causes = drawn
    verdict, _ = play(problem, causes, hosts)
    assert sorted(c.flags for c in verdict.causes) == sorted(causes)


@settings(max_examples=60, deadline=None)
@given(certain(), st.data())
def test_a_replayed_history_plans_the_same_again(
    drawn: tuple[Problem, tuple[int, ...]], data: st.DataObject
) -> None:
    problem, causes = drawn
    _, history = play(problem, causes)
    cut = data.draw(st.integers(0, len(history)))
    assert next_step(problem, history[:cut]) == next_step(problem, history[:cut])
    spoiled = (*history[:cut], Observation(1, Outcome.INFRA))
    again, unspoiled = next_step(problem, spoiled), next_step(problem, history[:cut])
    assert (again.on if isinstance(again, Trial) else again) == (
        unspoiled.on if isinstance(unspoiled, Trial) else unspoiled
    )


@settings(max_examples=60, deadline=None)
@given(certain(), st.data())
def test_nothing_false_is_said_where_earlier_failures_hide_the_crash(
    drawn: tuple[Problem, tuple[int, ...]], data: st.DataObject
) -> None:
    problem, (cause, *_) = drawn
    atoms = st.integers(0, problem.size - 1)
    pairs = data.draw(st.lists(st.tuples(atoms, atoms), max_size=4))
    masks = [(1 << a, 1 << b) for a, b in pairs if a != b]
    history: History = ()
    for _ in range(150):
        step = next_step(problem, history)
        if isinstance(step, Verdict):
            break
        if any(step.on & a and not step.on & b for a, b in masks):
            seen = Observation(step.on, Outcome.OTHER, step.purpose, "dist-init", "earlier")
        else:
            seen = launch((cause,), step)
        history += (seen,)
    else:
        raise AssertionError("no end")
    assert isinstance(step, Verdict)
    for found in step.causes:
        assert not found.flags & ~cause
        assert not cause & ~(found.flags | found.undetermined)
    assert not step.innocent & cause


@pytest.mark.parametrize("size", [2, 5, 8, 16])
def test_the_launch_that_finds_a_single_culprit_is_its_proof(size: int) -> None:
    for atom in range(size):
        verdict, history = play(Problem((1.0,) * size), (1 << atom,))
        assert [c.flags for c in verdict.causes] == [1 << atom]
        crashes = [o.on for o in history if o.outcome is Outcome.SAME]
        assert len(set(crashes)) == len(crashes)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 8), st.integers(1, 3), st.lists(st.integers(1, 9), min_size=4, max_size=4),
       st.randoms(use_true_random=False))  # fmt: skip
def test_whatever_comes_a_bisect_ends(n: int, hosts: int, shares: list[int], rng: Random) -> None:
    problem, outcomes = Problem((1.0,) * n), list(Outcome)[:4]
    history: History = (observed(problem.full, Outcome.SAME), observed(0, Outcome.PASS))
    while isinstance(step := next_round(problem, history, hosts), tuple):
        for trial in step:
            came = rng.choices(outcomes, shares)[0]
            phase = "dist-init" if came is Outcome.OTHER else "graph-capture"
            history += (Observation(trial.on, came, trial.purpose, phase, came.value),)
        assert len(history) < 200


@settings(max_examples=20, deadline=None)
@given(certain(), st.integers(3, 12))
def test_a_crash_that_does_not_come_any_more_ends_the_search_soon(
    drawn: tuple[Problem, tuple[int, ...]], last: int
) -> None:
    problem, causes = drawn
    history: History = ()
    while isinstance(step := next_step(problem, history), Trial):
        there = launch(causes, step)
        gone = len(history) >= last
        history += (observed(step.on, Outcome.PASS, step.purpose) if gone else there,)
        assert len(history) <= last + 45
    assert step.status in (Status.INCONCLUSIVE, Status.FOUND)


@pytest.mark.parametrize("full", [True, False], ids=["whole model", "dummy weights"])
def test_a_search_trial_of_the_whole_model_that_served_is_not_launched_again_as_proof(
    full: bool,
) -> None:
    ends = (observed(15, Outcome.SAME), observed(0, Outcome.PASS))
    found = observed(1, Outcome.SAME, Purpose.OUTRIGHT)
    rest = Observation(14, Outcome.PASS, Purpose.SEARCH, "serving", full=full)
    step = next_step(Problem((1.0,) * 4), (*ends, rest, found))
    assert isinstance(step, Verdict) is full


def test_a_crash_that_came_before_and_never_again_is_told_as_such() -> None:
    problem = Problem((1.0, 1.0))
    history: History = tuple(observed(on, Outcome.SAME, Purpose.PAID) for on in (3, 1, 3, 1, 3, 1))
    history += (observed(0, Outcome.PASS), observed(2, Outcome.PASS))
    while isinstance(step := next_step(problem, history), Trial):
        history += (observed(step.on, Outcome.PASS, step.purpose),)
    assert step.status is Status.INCONCLUSIVE
    assert "does not come any more" in step.reason
    assert step.suspects
    assert len(history) <= 20


@pytest.mark.parametrize("came", [Outcome.OTHER, Outcome.INVALID], ids=["another failure", "skip"])
def test_a_proof_that_something_hides_each_time_is_given_up_and_not_claimed(came: Outcome) -> None:
    problem = Problem((1.0,) * 4)
    proofs = (Purpose.CONFIRM, Purpose.OUTRIGHT)
    history: History = ()
    while isinstance(step := next_step(problem, history), Trial):
        seen = launch((0b0011,), step)
        if step.purpose in proofs and seen.outcome is Outcome.SAME:
            seen = Observation(step.on, came, step.purpose, "dist-init", "hides")
        history += (seen,)
        assert len(history) < 60
    assert not any(c.confirmed for c in step.causes)


def observed(
    on: int, outcome: Outcome, purpose: Purpose = Purpose.CALIBRATE, phase: str = "graph-capture"
) -> Observation:
    return Observation(on, outcome, purpose, phase, outcome.value)


PAIR = Problem((1.0, 1.0))


def test_a_good_end_that_crashes_too_is_not_the_flags() -> None:
    history = (observed(3, Outcome.SAME), observed(0, Outcome.SAME))
    step = next_step(PAIR, history)
    assert isinstance(step, Verdict)
    assert step.status is Status.NOT_FLAGS


def test_a_bad_end_that_serves_is_tried_as_often_as_asked_and_no_more() -> None:
    problem = Problem((1.0, 1.0), Options(bad_runs=2))
    history = (observed(3, Outcome.PASS), observed(3, Outcome.PASS))
    assert isinstance(next_step(problem, history[:1]), Trial)
    step = next_step(problem, history)
    assert isinstance(step, Verdict)
    assert step.status is Status.DOES_NOT_REPRODUCE


def test_after_a_bad_end_that_served_once_the_good_end_is_launched_twice() -> None:
    history: History = (
        observed(3, Outcome.PASS),
        observed(3, Outcome.PASS),
        observed(3, Outcome.SAME),
    )
    first = next_step(PAIR, history)
    assert isinstance(first, Trial)
    assert (first.on, first.purpose) == (0, Purpose.CALIBRATE)
    again = next_step(PAIR, (*history, observed(0, Outcome.PASS)))
    assert isinstance(again, Trial)
    assert (again.on, again.purpose) == (0, Purpose.CALIBRATE)


def test_a_failure_in_a_later_phase_counts_as_a_pass_in_an_earlier_one_as_nothing() -> None:
    ends = (observed(3, Outcome.SAME), observed(0, Outcome.PASS))
    later = (
        observed(1, Outcome.OTHER, Purpose.CONFIRM, "serving"),
        observed(2, Outcome.SAME, Purpose.CONFIRM),
        observed(1, Outcome.OTHER, Purpose.CONFIRM, "serving"),
    )
    step = next_step(PAIR, ends + later)
    assert isinstance(step, Verdict)
    assert [c.flags for c in step.causes] == [2]
    earlier = (observed(1, Outcome.OTHER, Purpose.SEARCH, "dist-init"),)
    step = next_step(PAIR, ends + earlier)
    assert isinstance(step, Trial)
    assert step.on == 2


def test_a_trial_that_changes_more_than_one_atom_against_its_parent_is_confounded() -> None:
    four = Problem((1.0,) * 4)
    step = next_step(four, (observed(15, Outcome.SAME), observed(0, Outcome.PASS)))
    assert isinstance(step, Trial)
    assert step.parent is not None
    assert step.confounded == ((step.parent ^ step.on).bit_count() > 1)
    history: History = (
        observed(15, Outcome.SAME), observed(0, Outcome.PASS), observed(7, Outcome.SAME),
    )  # fmt: skip
    for _ in range(12):
        step = next_step(four, history)
        if isinstance(step, Verdict):
            break
        assert step.confounded == (min((o.on ^ step.on).bit_count() for o in history) > 1)
        history += (launch((1,), step),)


def test_a_budget_ends_with_what_is_believed_so_far() -> None:
    problem = Problem((1.0,) * 8, Options(max_trials=4))
    history: History = ()
    while isinstance(step := next_step(problem, history), Trial):
        history += (launch((5,), step),)
    assert len(history) == 4
    assert step.status is Status.BUDGET
    assert step.suspects
    assert sum(p for _, p in step.suspects) <= 1.0 + 1e-9


def test_paid_launches_count_for_the_plan_but_not_for_the_budget() -> None:
    problem = Problem((1.0,) * 8, Options(max_trials=30))
    paid = (
        Observation(255, Outcome.SAME, Purpose.PAID, "graph-capture"),
        Observation(0, Outcome.PASS, Purpose.PAID),
    )
    history: History = paid
    while isinstance(step := next_step(problem, history), Trial):
        assert step.purpose is not Purpose.CALIBRATE
        history += (launch((4,), step),)
    assert [c.flags for c in step.causes] == [4]


def test_a_host_that_fails_again_and_again_ends_the_search() -> None:
    history = (observed(3, Outcome.SAME), *(observed(1, Outcome.INFRA) for _ in range(4)))
    step = next_step(PAIR, history)
    assert isinstance(step, Verdict)
    assert step.status is Status.INCONCLUSIVE


def test_one_at_a_time_gives_the_strict_table() -> None:
    problem = Problem((1.0,) * 5, Options(strategy="one-at-a-time"))
    history: History = ()
    while isinstance(step := next_step(problem, history), Trial):
        if step.purpose is Purpose.ISOLATE:
            assert step.on.bit_count() in (1, 4)
        history += (launch((0b01001,), step),)
    assert len(history) == 12
    assert [c.flags for c in step.causes] == [0b01001]
    assert list(members(step.innocent)) == [1, 2, 4]


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        ((observed(3, Outcome.OTHER),), "bad end fails in another way"),
        ((observed(3, Outcome.SAME), observed(0, Outcome.OTHER)), "good end fails in another way"),
    ],
    ids=["bad end", "good end"],
)
def test_an_end_that_fails_otherwise_ends_the_search(history: History, reason: str) -> None:
    for strategy in ("adaptive", "one-at-a-time"):
        step = next_step(Problem((1.0, 1.0), Options(strategy=strategy)), history)
        assert isinstance(step, Verdict)
        assert (step.status, reason in step.reason) == (Status.INCONCLUSIVE, True)


def test_the_strict_table_says_so_where_no_single_atom_tells() -> None:
    problem = Problem((1.0,) * 4, Options(strategy="one-at-a-time"))
    history: History = ()
    while isinstance(step := next_step(problem, history), Trial):
        # Any two of the first three are enough: none alone, and none is needed.
        on = (step.on & 7).bit_count() >= 2
        history += (observed(step.on, Outcome.SAME if on else Outcome.PASS, step.purpose),)
    assert step.status is Status.INCONCLUSIVE
    assert "adaptive" in step.reason


def test_the_strict_table_keeps_to_its_budget_and_gives_up_on_a_broken_host() -> None:
    problem = Problem((1.0,) * 4, Options(strategy="one-at-a-time", max_trials=3))
    history: History = (
        observed(15, Outcome.SAME), observed(0, Outcome.PASS), observed(1, Outcome.PASS),
    )  # fmt: skip
    step = next_step(problem, history)
    assert isinstance(step, Verdict)
    assert step.status is Status.BUDGET
    history += tuple(observed(2, Outcome.INFRA) for _ in range(4))
    step = next_step(Problem((1.0,) * 4, Options(strategy="one-at-a-time")), history)
    assert isinstance(step, Verdict)
    assert step.status is Status.INCONCLUSIVE


def test_a_table_with_hidden_rows_clears_nobody_in_them() -> None:
    problem = Problem((1.0,) * 3, Options(strategy="one-at-a-time"))
    history: History = ()
    while isinstance(step := next_step(problem, history), Trial):
        if step.on == 2:
            seen = observed(2, Outcome.OTHER, step.purpose, "dist-init")
        else:
            seen = observed(step.on, Outcome.SAME if step.on & 1 else Outcome.PASS, step.purpose)
        history += (seen,)
    assert [c.flags for c in step.causes] == [1]
    assert list(members(step.innocent)) == [2]


def test_other_failures_are_leads_by_their_smallest_sighting() -> None:
    history = (
        observed(7, Outcome.SAME),
        Observation(6, Outcome.OTHER, phase="dist-init", signature="early"),
        Observation(2, Outcome.OTHER, phase="dist-init", signature="early"),
        Observation(4, Outcome.OTHER, phase="serving", signature="late"),
        Observation(5, Outcome.OTHER, phase="unknown", signature="somewhere"),
    )
    assert [(o.on, o.signature, early) for o, early in leads(history)] == [
        (2, "early", True), (4, "late", False), (5, "somewhere", False),
    ]  # fmt: skip


def test_a_failure_of_no_known_phase_neither_passes_nor_masks_by_itself() -> None:
    ends = (observed(3, Outcome.SAME), observed(0, Outcome.PASS))
    step = next_step(PAIR, (*ends, observed(1, Outcome.OTHER, Purpose.SEARCH, "unknown")))
    assert isinstance(step, Trial)
    assert step.on == 2
