"""Ctrl-C between two words of a host: the report says which launch it has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.apply import deploy
from fleetctl.apply.deploy import Deployment
from fleetctl.apply.outcome import State
from fleetctl.apply.session import Interrupted, Session
from fleetctl.apply.wish import Wish
from fleetctl.model.fleet import Host, Profile, Service, Target

TARGET = Target(Host("a", "10.0.0.1"), Service("main"))


@pytest.fixture
def way() -> Deployment:
    wish = Wish(Profile(name="tp8", model="/models/tiny"))
    return Deployment(TARGET, wish, Session(TARGET.host), lambda _: None)


def test_before_anything_is_sent_it_is_the_old_one(way: Deployment) -> None:
    outcome = way.failed(Interrupted("a"))
    assert (outcome.state, outcome.invocation_id) == (State.INTERRUPTED, None)
    assert outcome.fault is not None
    assert "the host has its old launch" in outcome.fault.hint


def test_after_the_restart_it_is_the_new_one(
    way: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> dict[str, Any]:
        raise Interrupted("a")

    monkeypatch.setattr(Deployment, "_push", lambda *_: [])
    monkeypatch.setattr(Deployment, "_apply", lambda *_: {"invocation_id": "i1"})
    monkeypatch.setattr(deploy, "watch_args", lambda *_: {})
    monkeypatch.setattr(deploy, "watch", interrupted)
    prepared: Any = SimpleNamespace(
        rendered=SimpleNamespace(config=None), facts=SimpleNamespace(boot_id="b")
    )
    outcome = way._go(prepared)
    assert (outcome.state, outcome.invocation_id) == (State.INTERRUPTED, "i1")
