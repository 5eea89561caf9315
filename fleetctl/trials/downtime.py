"""A serving unit that makes room for trials, and comes back whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fleetctl.apply import audit, standing
from fleetctl.apply.session import Event, Session
from fleetctl.apply.standing import StopWish
from fleetctl.apply.waiting import Waiting
from fleetctl.apply.wish import token
from fleetctl.errors import RefusedError
from fleetctl.fleet import hooks
from fleetctl.model.facts import HostFacts
from fleetctl.model.fleet import Host, Service, Target
from fleetctl.plan.holders import holders

Tell = Callable[[Event], None]


def serving(target: Target, trial: Target, facts: HostFacts) -> list[tuple[str, str]]:
    """Return what stands in the way: (service or unit, what it is), the service itself first."""
    found: list[tuple[str, str]] = []
    if facts.unit.alive:
        ready = facts.last_launch is not None and facts.last_launch.outcome == "ready"
        found.append((target.service.name, "READY" if ready else facts.unit.active_state))
    own = (facts.unit.name, trial.service.unit)
    others = [h for h in holders(trial, facts) if h.unit and h.unit not in own]
    return found + [(h.service or h.unit, h.state or "running") for h in others]


def check(
    target: Target, found: list[tuple[str, str]], wanted: list[str], *, estimate: str
) -> list[Target]:
    """Return what to take down. RefusedError ``serving`` unless each was named with --take-down."""
    for name, state in found:
        if name not in wanted:
            raise RefusedError(
                "serving",
                f"{name} is {state} on what the trials need",
                where=str(target),
                hint=f"--take-down {name} stops it for {estimate} and brings it back",
            )
    return [_service(target.host, name) for name, _ in found]


def _service(host: Host, name: str) -> Target:
    known = host.service(name)
    return Target(host, known if known is not None else Service(name))


def take_down(session: Session, target: Target, tell: Tell, *, drain: str, allow: str) -> None:
    """Drain by the hook, then stop. The caller has asked already. Raises FleetError."""
    hooks.run(drain, "drain", target)
    wish = StopWish(allow=frozenset({allow} if allow else ()), reason="makes room for a bisect")
    standing.stop(target, wish, session, tell, lambda _: True)


def bring_back(session: Session, target: Target, tell: Tell, *, undrain: str) -> dict[str, Any]:
    """Start what was taken down, watch it until it is ready or not, and call the hook with that STATE."""
    service = target.service
    facts = standing.facts_of(session, target)
    if not facts.unit.alive:
        session.call(
            "apply.run",
            {
                "verb": "start",
                "service": service.name,
                "unit": service.unit,
                "steps": [{"do": "start-unit", "unit": service.unit}],
                "lock": {
                    "token": token(),
                    "who": audit.who(),
                    "why": "comes back after a bisect",
                    "command": audit.command_line(),
                },
                "reason": "comes back after a bisect",
            },
            on_event=tell,
            timeout=300.0,
        )
    way = Waiting(target, session, tell, {})
    event: dict[str, Any] = (way.look() or way.carry_out()).to_event()
    hooks.run(undrain, "undrain", target, str(event["state"]))
    return event
