"""The result event and the exit code of one host and of several."""

from __future__ import annotations

import pytest

from fleetctl.apply.outcome import CODES, Outcome, State, exit_code, state_of
from fleetctl.errors import (
    ConfigError,
    Exit,
    FleetError,
    LockedError,
    ManyErrors,
    RefusedError,
    RemoteError,
    UnreachableError,
    UsageError,
)

CONTRACT = (
    "event", "host", "service", "state", "error", "phase", "launch_id", "invocation_id", "seconds",
    "incident", "triage",
)  # fmt: skip


def one(state: State, fault: FleetError | None = None) -> Outcome:
    return Outcome("lab-01", "main", state, fault=fault)


@pytest.mark.parametrize("state", State)
def test_every_state_has_the_fields_of_the_contract(state: State) -> None:
    event = one(state).to_event()
    assert tuple(event)[: len(CONTRACT)] == CONTRACT
    assert event["state"] == state.value


def test_more_adds_fields_and_replaces_none() -> None:
    outcome = one(State.READY)
    outcome.more = {"state": "lie", "bundle": "/x"}
    event = outcome.to_event()
    assert (event["state"], event["bundle"]) == ("ready", "/x")


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (UnreachableError("connection-refused", "x"), State.UNREACHABLE),
        (LockedError("locked", "x"), State.LOCKED),
        (RefusedError("port-held", "x"), State.REFUSED),
        (ConfigError("template-error", "x"), State.REFUSED),
        (UsageError("bad-request", "x"), State.REFUSED),
        (RemoteError("disk-full", "x"), State.APPLY_FAILED),
        (FleetError("interrupted", "x", exit_code=Exit.INTERRUPTED), State.INTERRUPTED),
        (ManyErrors([ConfigError("a", "x"), ConfigError("b", "y")]), State.REFUSED),
    ],
)
def test_a_fault_before_the_watch_has_a_state_and_keeps_its_code(
    error: FleetError, state: State
) -> None:
    assert state_of(error) is state
    assert one(state, error).code == error.exit_code


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ([], 0),
        ([State.READY, State.UNCHANGED], 0),
        ([State.READY, State.FAILED_START], 1),
        ([State.UNREACHABLE, State.UNREACHABLE], 4),
        ([State.UNREACHABLE, State.LOCKED], 1),
        ([State.INTERRUPTED], 130),
        ([State.HUNG], 1),
        ([State.READY_WRONG_CONFIG], 1),
    ],
)
def test_several_hosts_have_their_common_code_else_one(states: list[State], code: int) -> None:
    assert exit_code(one(s) for s in states) == code


def test_only_what_serves_as_asked_is_a_success() -> None:
    good = {state for state in State if CODES.get(state, Exit.NEGATIVE) == Exit.OK}
    assert good == {State.READY, State.UNCHANGED, State.STARTED}
