"""Looks hosts over side by side, one exec each, and holds them against what the site expects."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetctl.config import expectations
from fleetctl.doctor import Finding, Look, examine
from fleetctl.doctor.expect import Expect, known, parse
from fleetctl.errors import FleetError
from fleetctl.fleet.fanout import fan_out
from fleetctl.model.fleet import Host, Profile, Target
from fleetctl.transport import connect
from fleetctl.transport.agent import Agent

SCHEMA = "fleetctl.doctor/1"
SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Visit:
    """One host's answer: findings over all its services, or why there is none."""

    host: str
    findings: tuple[Finding, ...] = ()
    facts: dict[str, dict[str, Any]] | None = None  # service → what the host said
    seconds: float = 0.0
    error: FleetError | None = None

    @property
    def ok(self) -> bool:
        """Return whether nothing but remarks was found."""
        return self.error is None and all(f.severity == "info" for f in self.findings)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return what was not looked at, and why."""
        bare = any(f.get("gpu", {}).get("tools") is False for f in (self.facts or {}).values())
        return ("no GPU tools",) if bare else ()

    def to_json(self, *, facts: bool) -> dict[str, Any]:
        """Return the documented object."""
        body: dict[str, Any] = {
            "schema": SCHEMA,
            "host": self.host,
            "ok": self.ok,
            "findings": [f.to_json() for f in self.findings],
            "remarks": list(self.remarks),
            "seconds": round(self.seconds, 3),
        }
        if self.error is not None:
            body |= {"error": self.error.reference, "message": str(self.error)}
        return body | ({"facts": self.facts} if facts else {})


@dataclass(frozen=True, slots=True)
class Round:
    """What all visits of one command share."""

    wanted: dict[str, Any]
    where: str
    profile: Profile | None
    only: tuple[str, ...]
    skip: tuple[str, ...]

    def __call__(self, item: tuple[Host, Sequence[Target]]) -> Visit:
        """Visit one host for all its chosen services."""
        host, targets = item
        begun = time.monotonic()
        expect = parse(self.wanted, host.name, self.where)
        connection = connect(host)
        try:
            with Agent(connection, ("doctor",)) as agent:
                offset, unsure = _offset(agent)
                facts = {t.service.name: self._ask(agent, t, expect) for t in targets}
        finally:
            connection.close()
        found: dict[tuple[str, str], Finding] = {}
        for said in facts.values():
            look = Look(said, expect, offset, unsure, host.gpus, self._model())
            for finding in examine(look, only=self.only, skip=self.skip):
                found.setdefault((finding.id, finding.message), finding)
        return Visit(host.name, tuple(found.values()), facts, time.monotonic() - begun)

    def _model(self) -> str | None:
        return self.profile.model if self.profile else None

    def _ask(self, agent: Agent, target: Target, expect: Expect) -> dict[str, Any]:
        order = {
            "service": target.service.name,
            "unit": target.service.unit,
            "port": target.service.port,
            "paths": list(expect.disk_paths),
            "python": self.profile.python if self.profile else None,
            "model": self._model(),
            "flags": self.profile.flags if self.profile else {},
            "env": self.profile.env if self.profile else {},
        }
        return agent.call("doctor.look", order, timeout=SECONDS)


def _offset(agent: Agent) -> tuple[float, float]:
    """Return the host's clock minus ours, and half the round trip, in seconds."""
    agent.call("doctor.clock")  # the first call also loads the agent
    before = time.time()
    there = float(agent.call("doctor.clock")["now"])
    after = time.time()
    return there - (before + after) / 2, (after - before) / 2


def visit(
    targets: Sequence[Target],
    root: Path,
    *,
    profile: Profile | None = None,
    only: Collection[str] = (),
    skip: Collection[str] = (),
) -> Iterator[Visit]:
    """Yield a visit of each host as it ends; a host that cannot be reached is a visit with an error.

    Raises UsageError ``unknown-check`` for an id that no check has, ConfigError for a wrong doctor.yaml.
    """
    value, where = expectations.read(root)
    known([*only, *skip])
    for target in targets:
        parse(value, target.host.name, where)  # a wrong file is told before anything is contacted
    hosts: dict[str, tuple[Host, list[Target]]] = {}
    for target in targets:
        hosts.setdefault(target.host.name, (target.host, []))[1].append(target)
    work = Round(value, where, profile, tuple(only), tuple(skip))
    for item in fan_out(list(hosts.values()), work):
        if item is None:
            continue
        (host, _), answer = item
        yield Visit(host.name, error=answer) if isinstance(answer, FleetError) else answer
