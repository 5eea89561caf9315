"""The lock of a service from this end: wait for it, see who has it, break it."""

from __future__ import annotations

from typing import Any

from fleetctl.apply import audit
from fleetctl.apply.session import Session, Sink
from fleetctl.errors import RefusedError
from fleetctl.model.fleet import Target

SCHEMA = "fleetctl.lock/1"
ANSWER_SECONDS = 30.0  # on top of the wait


def wait(session: Session, target: Target, seconds: float, tell: Sink) -> None:
    """Wait on the host until nobody holds the lock, before anything is looked at for a plan.

    Raises LockedError when somebody still holds it after that many seconds. At 0 nothing is asked.
    """
    if seconds > 0:
        args = {"service": target.service.name, "seconds": seconds}
        session.call("lock.wait", args, on_event=tell, timeout=seconds + ANSWER_SECONDS)


def status(session: Session, target: Target) -> dict[str, Any]:
    """Return the line of ``fleetctl lock status --json``. Raises FleetError."""
    found = session.call("lock.status", {"service": target.service.name})["lock"]
    return _line(target, found)


def break_(session: Session, target: Target, reason: str) -> dict[str, Any]:
    """Take the lock away from who holds it, with an audit line on both ends. Raises FleetError."""
    if not reason.strip():
        raise RefusedError("no-reason", "a lock is broken for a reason", hint="give --reason TEXT")
    args = {"service": target.service.name, "reason": reason, "by": audit.who()}
    found = session.call("lock.break", args)["broken"]
    if found is not None:
        audit.write({
            "do": "break-lock", "host": target.host.name, "service": target.service.name,
            "reason": reason, "from": found.get("who"),
        })  # fmt: skip
    return _line(target, found) | {"broken": found is not None}


def _line(target: Target, found: dict[str, Any] | None) -> dict[str, Any]:
    holder = found or {}
    wanted = ("who", "why", "command", "since", "beat_seconds")
    return {
        "schema": SCHEMA,
        "host": target.host.name,
        "service": target.service.name,
        "held": found is not None,
    } | {k: holder.get(k) for k in wanted}
