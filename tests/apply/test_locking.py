"""The lock from this end: waited for before anything is looked at, broken for a reason that both ends keep."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fleetctl.apply import audit, locking, standing
from fleetctl.apply.deploy import Deployment
from fleetctl.apply.session import Session
from fleetctl.apply.wish import Wish
from fleetctl.errors import FleetError, RemoteError
from fleetctl.model.fleet import Host, Profile, Service, Target

TARGET = Target(Host("a", "10.0.0.1"), Service("main"))


class Asked(Session):
    """Writes down what it is asked; a look at the host is a fault, so that all ends there."""

    def __init__(self) -> None:
        super().__init__(TARGET.host)
        self.asked: list[str] = []

    def call(self, verb: str, args: Mapping[str, Any] | None = None, **_: Any) -> dict[str, Any]:
        self.asked.append(verb)
        if verb == "lock.wait":
            return {"waited_for": None}
        if verb == "lock.break":
            return {"broken": {"who": "ann@desk"}}
        raise RemoteError("looked", "that is far enough")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path))


@pytest.mark.parametrize(("seconds", "first"), [(60.0, True), (0.0, False)])
def test_a_deploy_waits_for_it_before_it_looks(seconds: float, first: bool) -> None:
    session = Asked()
    wish = Wish(Profile(name="tp8", model="/models/tiny"), lock_wait=seconds)
    Deployment(TARGET, wish, session, lambda _: None).prepare()
    assert (session.asked[0] == "lock.wait") is first
    assert len(session.asked) == (2 if first else 1)


def test_so_does_a_stop() -> None:
    session = Asked()
    with pytest.raises(RemoteError):
        standing.stop(
            TARGET, standing.StopWish(lock_wait=60.0), session, lambda _: None, lambda _: True
        )
    assert session.asked[0] == "lock.wait"


def test_a_lock_that_is_broken_is_written_down_here_too() -> None:
    line = locking.break_(Asked(), TARGET, "ann left")
    assert line["broken"] is True
    (told,) = audit.local({"a/main"}, 9)
    assert (told["do"], told["reason"], told["from"]) == ("break-lock", "ann left", "ann@desk")


@pytest.mark.parametrize("reason", ["", "  "])
def test_without_a_reason_none_is_broken(reason: str) -> None:
    session = Asked()
    with pytest.raises(FleetError) as caught:
        locking.break_(session, TARGET, reason)
    assert (caught.value.reference, session.asked) == ("no-reason", [])
