"""What a bisect will cost, told before the first launch and after each."""

from __future__ import annotations

from fleetctl.bisect.estimate import Estimate, floor, remaining
from fleetctl.bisect.model import History, Observation, Options, Outcome, Problem, Purpose, Trial
from fleetctl.bisect.planner import next_step

EIGHT = Problem((1.0,) * 8)


def test_more_differences_cost_more_and_more_hosts_fewer_rounds() -> None:
    few, many = remaining(Problem((1.0, 1.0)), ()), remaining(Problem((1.0,) * 24), ())
    assert few.mean < many.mean
    assert remaining(EIGHT, (), 4).mean < remaining(EIGHT, ()).mean


def test_what_is_left_shrinks_to_nothing_as_the_search_goes_on() -> None:
    history: History = ()
    left = [remaining(EIGHT, history).mean]
    while isinstance(step := next_step(EIGHT, history), Trial):
        outcome = Outcome.SAME if step.on & 1 else Outcome.PASS
        history += (Observation(step.on, outcome, step.purpose, "graph-capture"),)
        left.append(remaining(EIGHT, history).mean)
    assert left[0] > left[len(left) // 2] > left[-1] == 0


def test_an_estimate_reads_as_a_span_of_launches_and_of_minutes() -> None:
    assert (str(Estimate(3.2, 7)), Estimate(3.2, 7).minutes(300)) == ("3 to 7", "16 to 35 min")
    assert (str(Estimate(4.0, 4)), Estimate(4.0, 4).minutes(3)) == ("about 4", "about 1 min")


def test_the_floor_is_what_no_verdict_can_be_had_below() -> None:
    assert [floor(Problem((1.0,) * n)) for n in (1, 2, 8, 32)] == [4, 5, 7, 9]


def test_a_search_that_cannot_end_is_cut_off() -> None:
    stubborn = Problem((1.0, 1.0), Options(bad_runs=10**6))
    masked = Observation(1, Outcome.OTHER, phase="dist-init", signature="x")
    assert remaining(stubborn, (masked,)).high <= 60


def test_what_was_launched_before_lowers_the_least_budget_to_the_proofs() -> None:
    problem = Problem((1.0,) * 8)
    ends = (
        Observation(255, Outcome.SAME, Purpose.PAID),
        Observation(0, Outcome.PASS, Purpose.PAID),
    )
    assert floor(problem) == 7
    assert floor(problem, ends[:1]) == 3
    assert floor(problem, ends * 3) == 2


def test_nothing_left_reads_as_nothing() -> None:
    assert str(Estimate(0.0, 0)) == "none"
    assert str(Estimate(0.4, 1)) == "about 1"
