"""What was asked of a bisect is remembered: a resumed one launches and judges as the first part did."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from fleetctl.bisect.space import Space
from fleetctl.bisect.state import Stage, State
from fleetctl.errors import UsageError
from fleetctl.trials import start, wishes
from fleetctl.trials.host import Rules
from fleetctl.trials.runner import How
from fleetctl.trials.setup import Ground
from fleetctl.trials.start import Asked

REQUEST: dict[str, Any] = {"path": "/generate", "body": {"text": "hi"}}
FULL = Asked(
    rules=Rules(port=31000, timeout=900.0, stall=60.0, requests=(REQUEST,), gpu_limit_mib=100.0),
    how=How(check="exit 0", fast=True, fast_layers=2, split=False),
    drain="drain",
    undrain="undrain",
)


def state_of(asked: Asked) -> State:
    kept = json.loads(json.dumps(wishes.kept(asked)))
    return State("b1", "", "", "main", ["h"], "g", "b", "0.5", [Stage(Space(()))], options=kept)


def test_a_resume_without_options_has_all_of_the_first_command() -> None:
    assert wishes.again(Asked(), state_of(FULL)) == FULL


def test_what_says_how_to_launch_may_be_changed_on_resume() -> None:
    now = Asked(rules=Rules(port=32000, timeout=1.0), undrain="other")
    again = wishes.again(now, state_of(FULL))
    assert (again.rules.port, again.rules.timeout, again.rules.stall) == (32000, 1.0, 60.0)
    assert (again.drain, again.undrain) == ("drain", "other")


@pytest.mark.parametrize(
    ("first", "now", "where"),
    [
        (FULL, Asked(how=How(check="exit 1")), "--check"),
        (Asked(), Asked(how=How(check="exit 1")), "--check"),
        (FULL, Asked(rules=Rules(requests=({"path": "/generate", "body": {}},))), "--request"),
        (Asked(), Asked(rules=Rules(requests=(REQUEST,))), "--request"),
    ],
    ids=["another check", "a check now", "another request", "a request now"],
)
def test_launches_are_not_judged_in_two_ways(first: Asked, now: Asked, where: str) -> None:
    with pytest.raises(UsageError) as caught:
        wishes.again(now, state_of(first))
    assert (caught.value.reference, caught.value.where) == ("other-judgement", where)


def test_a_request_too_large_to_be_kept_is_given_again() -> None:
    large = {"path": "/generate", "body": {"text": "x" * wishes.LARGE}}
    asked = Asked(rules=Rules(requests=(large,)))
    state = state_of(asked)
    assert len(json.dumps(state.to_json())) < wishes.LARGE
    with pytest.raises(UsageError) as caught:
        wishes.again(Asked(), state)
    assert caught.value.reference == "needs-request"
    assert wishes.again(asked, state) == replace(asked, how=How())


def test_a_state_of_an_older_fleetctl_remembers_nothing_and_refuses_nothing() -> None:
    state = state_of(Asked())
    state.options = {"check": "exit 0"}
    again = wishes.again(Asked(rules=Rules(requests=(REQUEST,))), state)
    assert (again.how.check, again.rules.requests) == ("exit 0", (REQUEST,))


@pytest.mark.parametrize(
    "asked", [Asked(how=How(check="exit 0")), Asked(rules=Rules(requests=(REQUEST,)))],
    ids=["a check", "a request"],
)  # fmt: skip
def test_earlier_launches_do_not_count_where_more_than_readiness_is_judged(asked: Asked) -> None:
    state = state_of(asked)
    nobody_looks = cast(Ground, None)
    start._pay(state, nobody_looks, [{"id": "l1", "outcome": "ready", "config": {}}])
    assert state.trials == []
