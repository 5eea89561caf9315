"""A launch whose agent was lost: what the host says counts, and where it says nothing, nothing is guessed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from fleetctl.apply import afterwards
from fleetctl.apply.session import Interrupted, Session
from fleetctl.errors import FleetError, RemoteError, UnreachableError
from fleetctl.model.fleet import Host, Service, Target

TARGET = Target(Host("lab-01", "10.0.0.1"), Service("main"))
LOST = UnreachableError("connection-lost", "the session ended")
DIED = RemoteError("agent-died", "the agent ended with status 137")


class Asked(Session):
    """A session that answers from a list, and says whether it came back to its host."""

    def __init__(self, answer: object, way_back: FleetError | None = None) -> None:
        super().__init__(TARGET.host)
        self.answer = answer
        self.way_back = way_back
        self.came_back = False

    def reconnect(self, tell: Any, seconds: float = 0.0) -> None:
        if self.way_back is not None:
            raise self.way_back
        self.came_back = True

    def call(self, verb: str, args: Mapping[str, Any] | None = None, **_: Any) -> dict[str, Any]:
        if isinstance(self.answer, FleetError):
            raise self.answer
        return {"invocation_id": self.answer}


def find_out(session: Asked, lost: FleetError) -> str:
    lock = {"token": "t", "who": "ann"}
    return afterwards.invocation_of(session, TARGET, "l1", lock, lost, lambda _: None, 60.0)


@pytest.mark.parametrize("lost", [LOST, DIED], ids=lambda e: e.reference)
def test_what_was_restarted_is_watched_on(lost: FleetError) -> None:
    session = Asked("abc")
    assert find_out(session, lost) == "abc"
    assert session.came_back == (lost is LOST), "the way to a host whose agent died still stands"


@pytest.mark.parametrize(("lost", "code"), [(LOST, 4), (DIED, 6)], ids=["lost", "died"])
def test_what_was_taken_back_is_told_so(lost: FleetError, code: int) -> None:
    with pytest.raises(FleetError) as caught:
        find_out(Asked(None), lost)
    assert (caught.value.reference, caught.value.exit_code) == (lost.reference, code)
    assert "the host has its old launch" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("when", ["on the way back", "once more"])
def test_without_a_way_back_it_is_not_guessed(when: str) -> None:
    gone = UnreachableError("unreachable-timeout", "no answer within 10 s")
    session = Asked(None, gone) if when == "on the way back" else Asked(gone)
    with pytest.raises(afterwards.EitherError) as caught:
        find_out(session, LOST)
    assert caught.value.reference == "unreachable-timeout"
    assert "old launch or the new one" in caught.value.message
    assert "fleetctl status lab-01" in caught.value.hint


@pytest.mark.parametrize(
    "session",
    [Asked(None, Interrupted("lab-01")), Asked(Interrupted("lab-01"))],
    ids=["on the way back", "while the host is asked"],
)
def test_ctrl_c_meanwhile_is_that_and_not_guessed_either(session: Asked) -> None:
    with pytest.raises(FleetError) as caught:
        find_out(session, LOST)
    assert (caught.value.reference, caught.value.exit_code) == ("interrupted", 130)
    assert "old launch or the new one" in caught.value.message
    assert "fleetctl status" in caught.value.hint
