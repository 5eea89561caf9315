"""What became of one deploy on one host: the ``result`` event, and the exit code of several."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fleetctl.errors import Exit, FleetError


class State(StrEnum):
    """The states of the result event (docs/reference/deploy-events.md)."""

    READY = "ready"
    READY_WRONG_CONFIG = "ready-wrong-config"
    FAILED_START = "failed-start"
    CRASH_LOOP = "crash-loop"
    HUNG = "hung"
    TIMED_OUT = "timed-out"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    LOCKED = "locked"
    APPLY_FAILED = "apply-failed"
    INTERRUPTED = "interrupted"
    UNCHANGED = "unchanged"
    STARTED = "started"  # with --no-wait: nobody looked further


CODES = {
    State.READY: Exit.OK,
    State.UNCHANGED: Exit.OK,
    State.STARTED: Exit.OK,
    State.UNREACHABLE: Exit.UNREACHABLE,
    State.REFUSED: Exit.REFUSED,
    State.LOCKED: Exit.LOCKED,
    State.APPLY_FAILED: Exit.REMOTE,
    State.INTERRUPTED: Exit.INTERRUPTED,
}
FAILED = (State.FAILED_START, State.CRASH_LOOP, State.HUNG, State.TIMED_OUT)


def state_of(error: FleetError) -> State:
    """Return the state that a fault before the watch leads to."""
    if error.exit_code == Exit.INTERRUPTED:
        return State.INTERRUPTED
    by_code = {
        Exit.UNREACHABLE: State.UNREACHABLE,
        Exit.LOCKED: State.LOCKED,
        Exit.REFUSED: State.REFUSED,
        Exit.USAGE: State.REFUSED,
        Exit.CONFIG: State.REFUSED,
    }
    return by_code.get(error.exit_code, State.APPLY_FAILED)


@dataclass(slots=True)
class Outcome:
    """One host's result."""

    host: str
    service: str
    state: State
    error: str | None = None
    phase: str = "unknown"
    launch_id: str | None = None
    invocation_id: str | None = None
    seconds: float = 0.0
    incident: str | None = None
    triage: dict[str, Any] | None = None
    fault: FleetError | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def code(self) -> Exit:
        """Return the exit code of this host alone."""
        if self.fault is not None:
            return self.fault.exit_code
        return CODES.get(self.state, Exit.NEGATIVE)

    def to_event(self) -> dict[str, Any]:
        """Return the ``result`` event of the contract; ``more`` adds fields and replaces none."""
        event: dict[str, Any] = {
            "event": "result",
            "host": self.host,
            "service": self.service,
            "state": self.state.value,
            "error": self.error,
            "phase": self.phase,
            "launch_id": self.launch_id,
            "invocation_id": self.invocation_id,
            "seconds": round(self.seconds, 3),
            "incident": self.incident,
            "triage": self.triage,
        }
        if self.fault is not None:
            event["message"] = str(self.fault)
            event["hint"] = self.fault.hint
        return event | {k: v for k, v in self.more.items() if k not in event}


def exit_code(outcomes: Iterable[Outcome]) -> Exit:
    """Return the common exit code of several hosts, 1 where they differ."""
    codes = {outcome.code for outcome in outcomes}
    if not codes:
        return Exit.OK
    return codes.pop() if len(codes) == 1 else Exit.NEGATIVE
