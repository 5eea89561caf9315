"""The lock of a service: one holder, who says why, and loses it when it stops beating."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.remote import lock, places
from fleetctl.remote.agent import AgentError


def who(token: str = "t1") -> dict[str, Any]:
    return {"token": token, "who": "ann@desk", "why": "deploy ep8", "command": "fleetctl deploy"}


@pytest.fixture
def taken(host_root: Path) -> Iterator[lock.Lock]:
    held = lock.acquire("main", who())
    yield held
    held.release()


def test_a_second_one_is_told_who_holds_it_and_why(taken: lock.Lock) -> None:
    with pytest.raises(AgentError) as caught:
        lock.acquire("main", who("t2"))
    fields = caught.value.fields
    assert (fields["reference"], fields["exit_code"]) == ("locked", 5)
    assert "ann@desk" in fields["message"]
    assert "deploy ep8" in fields["message"]


def test_services_have_locks_of_their_own(taken: lock.Lock) -> None:
    lock.acquire("draft", who("t2")).release()


def test_released_it_is_free(host_root: Path) -> None:
    lock.acquire("main", who()).release()
    assert lock.holder("main") is None
    lock.acquire("main", who("t2")).release()


def test_the_same_client_takes_its_own_lock_again(taken: lock.Lock) -> None:
    again = lock.acquire("main", who())
    assert not taken.held()
    taken.release()
    assert again.held(), "the agent that was left behind must not give it away"
    again.release()


def test_without_a_heartbeat_it_is_lost(taken: lock.Lock) -> None:
    beat = Path(places.LOCKS) / "main" / "beat"
    old = time.time() - lock.TTL - 1
    os.utime(beat, (old, old))
    other = lock.acquire("main", who("t2"))
    assert not taken.held()
    other.release()


def test_it_can_be_broken_for_a_reason_that_is_written_down(taken: lock.Lock) -> None:
    other = lock.acquire("main", who("t2"), force="ann is on holiday")
    assert "ann is on holiday" in Path(places.AUDIT).read_text()
    other.release()


def test_broken_by_name_it_is_written_down_whose_it_was_and_who_took_it(taken: lock.Lock) -> None:
    found = lock.VERBS["break"]({"service": "main", "by": "bob@hall", "reason": "ann left"}, None)
    assert found["broken"]["who"] == "ann@desk"
    (line,) = Path(places.AUDIT).read_text().splitlines()
    told = json.loads(line)
    assert (told["do"], told["by"], told["why"]) == ("break-lock", "bob@hall", "ann left")
    assert told["from"]["who"] == "ann@desk"
    assert not taken.held()


def test_while_it_is_held_it_beats(host_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "BEAT", 0.02)
    held = lock.acquire("main", who())
    beat, old = Path(places.LOCKS) / "main" / "beat", time.time() - lock.TTL - 1
    os.utime(beat, (old, old))
    until = time.monotonic() + 30
    while lock.living("main") is None and time.monotonic() < until:
        time.sleep(0.01)
    assert lock.living("main") is not None, "a holder that lives has lost its lock"
    held.release()


class Client:
    """Somebody who waits for the lock, and leaves after so many looks."""

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.told: list[dict[str, Any]] = []

    def cancelled(self) -> bool:
        self.patience -= 1
        return self.patience < 0

    def emit(self, event: dict[str, Any]) -> None:
        self.told.append(event)


def test_who_waits_for_it_and_leaves_waits_no_more(taken: lock.Lock) -> None:
    client = Client(2)
    with pytest.raises(AgentError) as caught:
        lock.wait_free("main", 60.0, client)
    assert (caught.value.fields["reference"], caught.value.fields["exit_code"]) == (
        "interrupted",
        130,
    )
    assert [(e["who"], e["why"]) for e in client.told] == [("ann@desk", "deploy ep8")]


def test_who_waits_gets_it_when_its_holder_is_done_and_is_told_whose_it_was(
    taken: lock.Lock,
) -> None:
    done = threading.Timer(0.3, taken.release)
    done.start()
    waited = lock.wait_free("main", 60.0, Client(9999))
    done.join()
    assert waited is not None
    assert waited["who"] == "ann@desk"
    assert lock.wait_free("main", 60.0, Client(0)) is None, "a free one is not waited for"


@pytest.mark.parametrize("how", ["break", "force", "come back"])
def test_while_files_change_nobody_else_gets_the_lock(taken: lock.Lock, how: str) -> None:
    got: list[lock.Lock] = []

    def get() -> None:
        if how == "break":
            lock.VERBS["break"]({"service": "main", "reason": "ann is gone"}, None)
        else:
            token, force = ("t2", "ann is gone") if how == "force" else ("t1", "")
            got.append(lock.acquire("main", who(token), force=force))

    other = threading.Thread(target=get)
    with lock.fence():
        other.start()
        other.join(0.3)
        assert other.is_alive()
        assert taken.held()
    other.join()
    assert not taken.held()
    for one in got:
        one.release()


def test_a_change_that_is_stuck_keeps_nobody_out_for_ever(
    taken: lock.Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "FENCE", 0.05)
    with lock.fence():
        lock.VERBS["break"]({"service": "main", "reason": "ann is stopped"}, None)
    assert not taken.held()


def test_of_many_at_once_one_gets_it(host_root: Path) -> None:
    got: list[lock.Lock] = []
    refused: list[str] = []

    def take(n: int) -> None:
        try:
            got.append(lock.acquire("main", who(f"t{n}")))
        except AgentError as error:
            refused.append(error.fields["reference"])

    threads = [threading.Thread(target=take, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1
    assert refused == ["locked"] * 7
    got[0].release()


@pytest.mark.parametrize("name", ["", "..", "a/b", "x" * 300])
def test_a_service_cannot_name_a_path(host_root: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        lock.acquire(name, who())
