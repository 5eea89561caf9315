"""Ways out of a bisect: signals, closed terminals, locks of others. What was taken down comes back."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from fleetctl.bisect.space import Space
from fleetctl.bisect.state import Stage, State
from fleetctl.errors import LockedError, RefusedError, RemoteError
from fleetctl.model.fleet import Host, Service, Target
from fleetctl.trials import running
from fleetctl.trials.host import interruptible, uninterrupted
from fleetctl.trials.start import Asked, Claim, refuse_unnamed

MAIN = {"host": "h", "service": "main"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["kill", "closed terminal"])
def test_a_kill_ends_a_bisect_as_ctrl_c_does_and_waits_for_the_way_back(number: int) -> None:
    before = signal.getsignal(number)
    done: list[str] = []

    def put_in_order() -> None:
        with uninterrupted():
            os.kill(os.getpid(), number)
            done.append("in order")

    with pytest.raises(KeyboardInterrupt), interruptible():
        put_in_order()
    assert done == ["in order"]
    with pytest.raises(KeyboardInterrupt), interruptible():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) == before


def test_a_bisect_under_nohup_does_not_end_with_the_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible(), uninterrupted():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_where_nobody_listens_any_more_that_is_said_once() -> None:
    heard: list[str] = []

    def broken(event: dict[str, Any]) -> None:
        heard.append(event["event"])
        raise BrokenPipeError

    tell = running._while_heard(broken)
    with pytest.raises(BrokenPipeError):
        tell({"event": "a"})
    tell({"event": "b"})
    assert heard == ["a"]


class Downtime:
    """In place of the host's units: what is up, and how coming back goes."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.done: list[str] = []
        self.fault = fault

    def take_down(self, _session: Any, target: Target, _tell: Any, **_: Any) -> None:
        self.done.append(f"down {target.service.name}")

    def bring_back(self, _session: Any, target: Target, _tell: Any, **_: Any) -> dict[str, Any]:
        self.done.append(f"back {target.service.name}")
        if self.fault is not None:
            raise self.fault
        return {"state": "ready"}


class Quiet:
    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def call(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {}


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Downtime:
    found = Downtime()
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path))
    monkeypatch.setattr(running, "downtime", found)
    monkeypatch.setattr(running, "Session", Quiet)
    return found


def claim(*, protected: bool = False, serving: bool = True) -> Claim:
    host = Host("h", "h", protected=protected)
    target = Target(host, Service("main", 30000))
    state = State("b1", "", "", "main", ["h"], "g", "b", "0.5", [Stage(Space(()))])
    return Claim(state, [target], Asked(), {"h": [target] if serving else []})


def down(job: Claim) -> list[dict[str, Any]]:
    """What is still to be brought back, without the hour."""
    return [{k: d[k] for k in MAIN} for d in job.state.taken_down]


def quiet(_event: dict[str, Any]) -> None:
    pass


@pytest.mark.parametrize(
    "end", [None, KeyboardInterrupt(), RemoteError("crashed", "x"), ValueError("a bug")], ids=repr
)
def test_what_was_taken_down_comes_back_on_every_way_out(
    units: Downtime, end: BaseException | None
) -> None:
    job = claim()

    def trials() -> None:
        with running._downtime(job, quiet):
            assert down(job) == [MAIN]
            if end is not None:
                raise end

    if end is None:
        trials()
    else:
        with pytest.raises(type(end)):
            trials()
    assert units.done == ["down main", "back main"]
    assert job.state.taken_down == []


def test_a_service_that_does_not_come_back_stays_on_the_list_and_is_told(units: Downtime) -> None:
    units.fault = RemoteError("failed-start", "no GPU")
    job = claim()
    told: list[dict[str, Any]] = []
    with running._downtime(job, told.append):
        pass
    assert down(job) == [MAIN]
    (back,) = [e for e in told if e["event"] == "brought-back"]
    assert (back["state"], back["error"], "no GPU" in back["message"]) == (
        "not-back", "failed-start", True,
    )  # fmt: skip


def test_what_a_dead_client_took_down_comes_back_but_not_while_another_goes_on(
    units: Downtime,
) -> None:
    job = claim(serving=False)
    job.state.taken_down = [MAIN]
    with pytest.raises(LockedError), running._downtime(job, quiet):
        raise LockedError("locked", "somebody is at it")
    assert units.done == []
    with running._downtime(job, quiet):
        pass
    assert units.done == ["back main"]


def test_a_protected_host_wants_its_name_only_where_something_goes_down() -> None:
    refuse_unnamed(claim(protected=True, serving=False))
    refuse_unnamed(claim(protected=False))
    with pytest.raises(RefusedError) as caught:
        refuse_unnamed(claim(protected=True))
    assert caught.value.reference == "protected-host"
