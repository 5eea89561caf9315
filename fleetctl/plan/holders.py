"""What else holds the GPUs or the port that a launch needs."""

from __future__ import annotations

from fleetctl.model.facts import HostFacts, ServiceFacts
from fleetctl.model.fleet import Target
from fleetctl.model.plan import Holder


def holders(target: Target, facts: HostFacts) -> tuple[Holder, ...]:
    """Return everything but the service's own unit, units first, each with all that it holds."""
    wanted = _wanted(target, facts)
    found: dict[tuple[str, int], Holder] = {}

    def add(holder: Holder) -> None:
        key = (holder.unit, 0 if holder.unit else holder.pid)
        found[key] = _joined(found[key], holder) if key in found else holder

    by_unit = {s.unit: s for s in facts.services}
    for process in facts.gpu_processes:
        if process.gpu in wanted and process.unit != facts.unit.name:
            unit, command = _stoppable(process.unit, process.command)
            holder = Holder(unit, process.pid, command, (process.gpu,), process.memory)
            add(_named(holder, by_unit))
    for service in facts.services:
        if service.unit != facts.unit.name and service.active_state in ("active", "activating"):
            shared = _gpus(service, facts) & wanted
            if shared:
                add(_named(Holder(service.unit, gpus=tuple(sorted(shared))), by_unit))
    for use in facts.ports:
        if use.port == target.service.port and use.unit != facts.unit.name:
            unit, command = _stoppable(use.unit, use.command)
            add(_named(Holder(unit, use.pid, command, port=use.port), by_unit))
    return tuple(sorted(found.values(), key=lambda h: (not h.unit, h.unit, h.pid)))


def _stoppable(unit: str, command: str) -> tuple[str, str]:
    """Return the unit that can be stopped, and what to call the process.

    A login session, a container or somebody's own service manager must never be stopped as a whole:
    there the process stands for itself.
    """
    if not unit or (unit.endswith(".service") and not unit.startswith("user@")):
        return unit, command
    return "", f"{command}, in {unit}"


def _wanted(target: Target, facts: HostFacts) -> set[int]:
    if target.service.gpus is not None:
        return set(target.service.gpus)
    return {g.index for g in facts.gpus} or set(range(target.host.gpus))


def _gpus(service: ServiceFacts, facts: HostFacts) -> set[int]:
    return {g.index for g in facts.gpus} if service.gpus is None else set(service.gpus)


def _named(holder: Holder, by_unit: dict[str, ServiceFacts]) -> Holder:
    """Return the holder with what the service's last launch says of it."""
    service = by_unit.get(holder.unit)
    if service is None:
        return holder
    return Holder(
        holder.unit,
        holder.pid,
        holder.command,
        holder.gpus,
        holder.memory,
        holder.port,
        service=service.name,
        state="READY" if service.outcome == "ready" else service.active_state,
        seconds=service.active_seconds,
    )


def _joined(one: Holder, other: Holder) -> Holder:
    return Holder(
        one.unit,
        one.pid or other.pid,
        one.command or other.command,
        tuple(sorted({*one.gpus, *other.gpus})),
        one.memory + other.memory,
        other.port if one.port is None else one.port,
        one.service,
        one.state,
        one.seconds,
    )
