"""The agent over the local transport: requests, events, faults, the end of the client."""

from __future__ import annotations

import pytest

from fleetctl.errors import RemoteError
from fleetctl.model.fleet import Host
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
