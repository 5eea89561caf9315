"""What the simulation counts, and that the planner stays within what is promised (few runs; bench has many)."""

from __future__ import annotations

import json
from random import Random

import pytest

from fleetctl.bisect.model import Observation, Outcome, Purpose, Status, Verdict
from fleetctl.bisect.simulate import Run, Setting, Truth, draw, judge, simulate, summary
from fleetctl.cli.app import run


def test_equal_seeds_draw_equal_truths_in_any_order() -> None:
    setting = Setting(16, 2, 0.7)
    whole = simulate(setting, 6, 3)
    assert whole == simulate(setting, range(3), 3) + simulate(setting, range(3, 6), 3)


def test_a_good_prior_weighs_the_culprits_in_eight_runs_of_ten() -> None:
    setting = Setting(16, 2, prior="good")
    hits = 0
    for number in range(500):
        truth = draw(setting, Random(number))
        hits += all(
            truth.weights[i] == max(truth.weights) for i in range(16) if truth.causes[0] >> i & 1
        )
    assert 380 <= hits <= 440


def test_masking_pairs_never_show_at_either_end() -> None:
    for number in range(50):
        truth = draw(Setting(12, 1, other=0.3), Random(number))
        assert len(truth.masks) == 4
        assert all(on & off == 0 for on, off in truth.masks)


def seen(on: int, outcome: Outcome, purpose: Purpose) -> Observation:
    return Observation(on, outcome, purpose)


def test_calibration_and_the_proofs_that_held_are_no_search() -> None:
    truth = Truth((1,), (), (1.0, 1.0))
    from fleetctl.bisect.model import Cause

    history = (
        seen(3, Outcome.SAME, Purpose.CALIBRATE),
        seen(0, Outcome.PASS, Purpose.CALIBRATE),
        seen(2, Outcome.PASS, Purpose.CONFIRM),  # a set that was tried and was not it
        seen(1, Outcome.SAME, Purpose.CONFIRM),
        seen(2, Outcome.PASS, Purpose.CONFIRM),
    )
    verdict = Verdict(Status.FOUND, (Cause(1, confirmed=True),), 2)
    found = judge(Setting(2), truth, (verdict, history, [1] * 5))
    assert found == Run(0, 5, 0, 5, right=True, exact=True, undetermined=False)


def test_a_verdict_that_names_an_innocent_is_wrong_and_an_open_one_is_not() -> None:
    from fleetctl.bisect.model import Cause

    truth = Truth((1,), ((1, 4),), (1.0, 1.0, 1.0))
    setting = Setting(3, other=0.3)
    open_ = Verdict(Status.FOUND, (Cause(1, undetermined=4),), 2)
    false = Verdict(Status.FOUND, (Cause(3),), 4)
    assert judge(setting, truth, (open_, (), [])).right
    assert not judge(setting, truth, (open_, (), [])).exact
    assert not judge(setting, truth, (false, (), [])).right
    assert not judge(Setting(3), truth, (open_, (), [])).right


@pytest.mark.parametrize(
    ("setting", "trials", "right"),
    [
        (Setting(16, 1), 5.0, 1.0),
        (Setting(16, 2), 9.3, 1.0),
        (Setting(16, 1, 0.9), 7.0, 0.96),
        (Setting(16, 1, causes=2), 12.0, 1.0),
        (Setting(16, 1, prior="good"), 3.5, 1.0),
    ],
    ids=str,
)
def test_the_planner_keeps_within_its_promise(
    setting: Setting, trials: float, right: float
) -> None:
    found = summary(setting, simulate(setting, 100, 5), 5)
    assert float(str(found["mean_trials"])) <= trials
    assert float(str(found["right"])) >= right


def test_the_command_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "bisect",
        "simulate",
        "--n",
        "8",
        "--k",
        "1",
        "--q",
        "1",
        "--runs",
        "20",
        "--seed",
        "7",
        "--hosts",
        "2",
        "--json",
    ]
    assert run(words) == 0
    found = json.loads(capsys.readouterr().out)
    fields = "n k q hosts causes other prior runs seed mean_trials p95_trials mean_total mean_rounds right"
    assert set(fields.split()) <= found.keys()
    assert found["right"] == 1.0
    assert run(["bisect", "simulate", "--n", "2", "--k", "3"]) == 2
