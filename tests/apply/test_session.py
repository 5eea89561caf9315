"""Coming back to a host: how long, how often, and when not."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fleetctl.apply.session import Interrupted, Session
from fleetctl.apply.watching import watch
from fleetctl.clock import FakeClock
from fleetctl.errors import FleetError, UnreachableError
from fleetctl.model.fleet import Host
from fleetctl.transport.base import Connection
from fleetctl.transport.local import LocalConnection

HOST = Host("here", "localhost", transport="local")


class Way:
    """Opens connections: first the given faults, then real ones to this machine."""

    def __init__(self, *faults: str) -> None:
        self.faults = list(faults)
        self.tries = 0

    def __call__(self, host: Host, _: float) -> Connection:
        self.tries += 1
        if self.faults:
            raise UnreachableError(self.faults.pop(0), "no", where=host.name)
        return LocalConnection(host)


def session(way: Way, clock: FakeClock, stop: threading.Event | None = None) -> Session:
    return Session(HOST, clock=clock, open_connection=way, modules=("unit",), stop=stop)


def test_it_tries_again_with_growing_pauses_until_the_host_is_back() -> None:
    clock, told = FakeClock(), list[dict[str, Any]]()
    way = Way(*["connection-refused"] * 4)
    with session(way, clock) as one:
        one.reconnect(told.append)
        assert one.call("unit.show", {"units": []}) == {"units": {}}
    assert [e["state"] for e in told] == ["lost"] * 4 + ["back"]
    assert way.tries == 5
    assert 0.5 + 1 + 2 + 4 <= clock.elapsed <= 4 * 15


def test_it_gives_up_after_its_time_with_the_last_fault() -> None:
    clock = FakeClock()
    way = Way(*["unreachable-timeout"] * 1000)
    with session(way, clock) as one, pytest.raises(UnreachableError) as caught:
        one.reconnect(lambda _: None, seconds=120.0)
    assert caught.value.reference == "unreachable-timeout"
    assert 120.0 <= clock.elapsed < 150.0


@pytest.mark.parametrize("reference", ["auth-failed", "host-key-changed", "host-key-unknown"])
def test_a_host_that_says_no_is_not_asked_again(reference: str) -> None:
    way = Way(reference)
    with session(way, FakeClock()) as one, pytest.raises(UnreachableError):
        one.reconnect(lambda _: None)
    assert way.tries == 1


def test_ctrl_c_ends_the_tries() -> None:
    stop = threading.Event()
    way = Way(*["connection-refused"] * 10)
    with session(way, FakeClock(), stop) as one, pytest.raises(Interrupted):
        one.reconnect(lambda _: stop.set())
    assert way.tries == 1


def test_a_way_that_was_opened_ahead_tells_its_fault_at_the_first_call() -> None:
    way = Way("connection-refused")
    with session(way, FakeClock()) as one:
        one.open_soon()
        with pytest.raises(UnreachableError) as caught:
            one.call("unit.show", {"units": []})
        assert caught.value.reference == "connection-refused"
        assert one.call("unit.show", {"units": []}) == {"units": {}}, "the next one tries anew"
    assert way.tries == 2


class Lossy:
    """A session whose watch is lost twice, and then comes to its end."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.back = 0

    def call(self, _: str, args: dict[str, Any], *, on_event: Any, timeout: Any) -> dict[str, Any]:
        self.asked.append(args)
        if len(self.asked) == 1:
            on_event({"event": "phase", "phase": "weight-load", "seconds": 3.0, "cursor": "c1"})
            raise UnreachableError("connection-lost", "x")
        if len(self.asked) == 2:
            on_event({"event": "ready", "phase": "serving", "seconds": 9.0, "cursor": "c2"})
            on_event({"event": "request", "number": 1, "cursor": "c3"})
            raise UnreachableError("connection-lost", "x")
        return {"state": "ready"}

    def reconnect(self, _: Any) -> None:
        self.back += 1


def test_a_watch_goes_on_from_the_last_record_and_sends_no_request_twice() -> None:
    lossy, seen = Lossy(), list[dict[str, Any]]()
    args = {"requests": [{"body": 1}, {"body": 2}]}
    result = watch(lossy, args, seen.append)  # type: ignore[arg-type]
    assert (result, lossy.back) == ({"state": "ready"}, 2)
    second, third = lossy.asked[1], lossy.asked[2]
    assert (second["resume"]["cursor"], second["resume"]["phase"]) == ("c1", "weight-load")
    assert second["requests"] == args["requests"]
    assert (third["resume"]["cursor"], third["resume"]["ready"]) == ("c3", True)
    assert third["requests"] == [{"body": 2}]
    assert all("cursor" not in event for event in seen), "that is between us and the host"


def test_an_interrupted_session_starts_nothing() -> None:
    stop = threading.Event()
    stop.set()
    way = Way()
    with session(way, FakeClock(), stop) as one, pytest.raises(FleetError) as caught:
        one.call("unit.show")
    assert (caught.value.exit_code, way.tries) == (130, 0)
