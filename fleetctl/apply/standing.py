"""What is there now: status of services, and their stop on purpose."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fleetctl.apply import audit, locking
from fleetctl.apply.deploy import Tell
from fleetctl.apply.session import Session
from fleetctl.apply.wish import token
from fleetctl.errors import Exit, FleetError, RefusedError
from fleetctl.model.facts import FactsRequest, HostFacts
from fleetctl.model.fleet import Target
from fleetctl.patching import active
from fleetctl.plan import plan_stop

STOP_SECONDS = 420.0
STATUS = "fleetctl.status/1"


@dataclass(frozen=True, slots=True)
class StopWish:
    """A stop as it was asked for."""

    allow: frozenset[str] = frozenset()
    reason: str = ""
    break_lock: str = ""
    timeout: float = 180.0
    lock_wait: float = 0.0


def facts_of(session: Session, target: Target, python: str = "/usr/bin/python3") -> HostFacts:
    """Return the facts of a service without a profile in mind."""
    request = FactsRequest(
        service=target.service.name,
        unit=target.service.unit,
        python=python,
        ports=(target.service.port,),
    )
    raw = session.call("facts.gather", request.to_json())
    return HostFacts.from_json({"host": target.host.name} | raw)


def stop(
    target: Target,
    wish: StopWish,
    session: Session,
    tell: Tell,
    confirm: Callable[[str], bool],
) -> dict[str, Any]:
    """Stop one service on purpose; return the line of ``stop --json``. Raises FleetError."""
    began = time.monotonic()
    locking.wait(session, target, wish.lock_wait, tell)
    facts = facts_of(session, target)
    plan = plan_stop(target, facts, allow=wish.allow, reason=wish.reason, timeout=wish.timeout)
    line: dict[str, Any] = {
        "event": "result",
        "host": target.host.name,
        "service": target.service.name,
        "was": facts.unit.active_state,
        "invocation_id": facts.unit.invocation_id or None,
        "warnings": active.remarks(str(target), facts.patch_notes),
    }
    if plan.refusals:
        first = plan.refusals[0]
        raise RefusedError(first.reference, first.message, where=first.where, hint=first.hint)
    if plan.empty:
        return line | {"state": "unchanged", "seconds": round(time.monotonic() - began, 3)}
    if plan.interrupts and not confirm(str(target)):
        raise RefusedError(
            "not-confirmed",
            f"{target} serves, and nobody said yes",
            where=str(target),
            hint="say yes when asked, or give --yes",
        )
    told = {"do": "stop", "host": facts.host, "service": facts.service, "reason": wish.reason}
    with audit.change(told):
        session.call(
            "apply.run",
            {
                "verb": "stop",
                "service": facts.service,
                "unit": facts.unit.name,
                "steps": plan.to_json(masked=False)["steps"],
                "lock": {
                    "token": token(),
                    "who": audit.who(),
                    "why": "stop",
                    "command": audit.command_line(),
                },
                "break_lock": wish.break_lock,
                "reason": wish.reason,
                "expect": {"invocation_id": facts.unit.invocation_id},
            },
            on_event=tell,
            timeout=wish.timeout + STOP_SECONDS,
        )
    return line | {"state": "stopped", "seconds": round(time.monotonic() - began, 3)}


def status(target: Target, session: Session) -> dict[str, Any]:
    """Return the line of ``status --json`` for one service. Raises FleetError."""
    args = {
        "service": target.service.name,
        "unit": target.service.unit,
        "port": target.service.port,
    }
    found = session.call("status.look", args)
    return {"schema": STATUS, "host": target.host.name, "service": target.service.name} | found


def unreachable(target: Target, error: FleetError) -> dict[str, Any]:
    """Return the status line of a service of which nothing is known; ``unknown`` where the host was reached."""
    return {
        "schema": STATUS,
        "host": target.host.name,
        "service": target.service.name,
        "state": "unreachable" if error.exit_code == Exit.UNREACHABLE else "unknown",
        "error": error.reference,
        "message": error.message,
    }
