"""The agent over the local transport: requests, events, faults, the end of the client."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.errors import RemoteError, UnreachableError
from fleetctl.model.fleet import Host
from fleetctl.transport import local
from fleetctl.transport.agent import Agent
from fleetctl.transport.local import LocalConnection

HERE = Host(name="here", address="localhost", transport="local")


def test_an_unknown_verb_is_a_fault_with_a_reference() -> None:
    with Agent(LocalConnection(HERE)) as agent, pytest.raises(RemoteError) as caught:
        agent.call("agent.nothing")
    assert caught.value.reference == "unknown-verb"


def test_a_missing_interpreter_is_named() -> None:
    host = Host(name="here", address="localhost", transport="local", python="/nowhere/python3")
    with pytest.raises(RemoteError) as caught, Agent(LocalConnection(host)) as agent:
        agent.call("agent.nothing")
    assert caught.value.reference == "no-python"


def test_a_session_that_ended_leaves_word_of_what_to_do_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    monkeypatch.setattr(local.LocalChannel, "wait", lambda *_: None)  # as over ssh: no status
    host = Host(name="here", address="localhost", transport="local", python=str(python))
    with pytest.raises(UnreachableError) as caught, Agent(LocalConnection(host)) as agent:
        agent.call("agent.nothing")
    assert (caught.value.reference, caught.value.where) == ("connection-lost", "here")
    assert "look before you repeat it" in caught.value.hint
