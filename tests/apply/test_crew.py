"""A crew: sessions that begin early are the ones that the work takes up."""

from __future__ import annotations

import os
import signal
import time

import pytest

from fleetctl.apply.crew import crew
from fleetctl.errors import RemoteError
from fleetctl.model.fleet import Host, Service, Target


def here(name: str) -> Target:
    return Target(Host(name=name, address="localhost", transport="local"), Service(name="main"))


def test_a_host_that_is_being_reached_is_not_reached_twice() -> None:
    with crew() as hands:
        hands.reach([here("a")])
        first = hands.session(here("a"))
        assert first.call("unit.show", {"units": []}) == {"units": {}}
        assert hands.session(here("a")) is not first, "each work has a session of its own"
        assert hands.session(here("b")) is not first


def test_the_fault_of_an_early_login_is_told_by_the_first_call() -> None:
    target = here("a")
    lost = Target(
        Host(name="a", address="localhost", transport="local", python="/nowhere/python3"),
        target.service,
    )
    with crew() as hands:
        hands.reach([lost])
        with pytest.raises(RemoteError) as caught:
            hands.session(lost).call("unit.show", {"units": []})
    assert caught.value.reference == "no-python"


def press(how: signal.Signals = signal.SIGINT) -> None:
    os.kill(os.getpid(), how)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_raises_nothing_between_what_belongs_together_and_stops_the_next_work(
    how: signal.Signals,
) -> None:
    with crew() as hands, hands.patient():
        assert hands.each(len, ["ab"]) == [2]
        press(how)
        assert not hands.stop.is_set(), "nothing waits, nothing was heeded"
        assert hands.each(lambda _: hands.stop.wait(10.0), [None]) == [True]


def test_a_question_ends_at_once_and_its_answer_is_no() -> None:
    with crew() as hands, hands.patient():
        sure = False
        with hands.asking():
            press()
            time.sleep(10.0)
            sure = True
        assert (sure, hands.stop.is_set()) == (False, True)


def test_outside_of_a_crews_work_ctrl_c_is_python_s_own() -> None:
    with crew() as hands:
        hands.each(len, ["ab"])
        with pytest.raises(KeyboardInterrupt):
            press()


def test_a_ctrl_c_that_the_caller_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with crew() as hands, hands.patient():
            press()
            hands.each(len, ["ab"])
            assert not hands.stop.is_set()
    finally:
        signal.signal(signal.SIGINT, before)
