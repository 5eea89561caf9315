"""A crew: sessions that begin early are the ones that the work takes up."""

from __future__ import annotations

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
