"""What the views of a bisect need of its state: events, spans, descriptions."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fleetctl.bisect.model import Outcome, Purpose
from fleetctl.bisect.space import Switch
from fleetctl.bisect.state import Entry, State

AS_IF_NEW = 300.0  # seconds of a launch while none was measured


def entry_json(entry: Entry) -> dict[str, Any]:
    """Return a trial as an event."""
    return asdict(entry) | {"on": list(entry.on)}


def seconds_each(state: State) -> float:
    """Return how long a launch takes: the mean of those measured, else of earlier ones, else five minutes."""
    return measured(state) or AS_IF_NEW


def measured(state: State) -> float | None:
    """Return the mean seconds of a launch here: the bisect's own, else earlier ones; None without any."""
    known = [
        e.seconds for e in state.trials if e.launched and e.outcome != Outcome.INFRA and e.seconds
    ]
    paid = [e.seconds for e in state.trials if e.purpose == Purpose.PAID and e.seconds]
    found = known or paid
    earlier: float | None = state.options.get("seconds_each")
    return sum(found) / len(found) if found else earlier


def describe(switch: Switch) -> str:
    """Return what a switch changes, for a person."""
    return "; ".join(
        f"{p.name}: {p.value(p.before) if p.before is not None else '(not there)'} → "
        f"{p.value(p.after) if p.after is not None else '(not there)'}"
        for p in switch.parts
    )
