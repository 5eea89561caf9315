"""Occurrences, events and groups: what the incident log is made of."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA = "fleetctl.incident/1"


class Status(StrEnum):
    """Where the people on call stand with a group of equal failures."""

    NEW = "new"
    ACKED = "acked"
    RESOLVED = "resolved"
    REGRESSED = "regressed"


class EventKind(StrEnum):
    """What can happen to a group; an event is never changed or removed."""

    ACKED = "acked"
    ASSIGNED = "assigned"
    COMMENTED = "commented"
    LINKED = "linked"
    RESOLVED = "resolved"
    REOPENED = "reopened"


def occurrence_id(host: str, boot_id: str, invocation_id: str, service: str) -> str:
    """Return the id of one failed invocation: equal whoever records it, and however often."""
    text = f"occurrence/1\0{host}\0{boot_id}\0{invocation_id}\0{service}"
    return "i-" + hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One failed invocation of a service, with what triage said of it."""

    id: str
    host: str
    service: str
    observed_at: str  # RFC 3339 UTC: when it failed, by the host's clock
    triage: dict[str, Any]
    invocation_id: str | None = None
    boot_id: str | None = None
    launch_id: str | None = None
    bundle: str | None = None  # folder of the evidence bundle on this machine
    config: dict[str, Any] | None = None  # the LaunchConfig that ran
    changed_since_ready: tuple[str, ...] = ()  # atoms against the last launch that became ready
    request: str | None = None  # what was sent after ready, for `reproduce`
    recorded_by: str = ""
    recorded_at: str = ""
    tool_version: str = ""

    @property
    def fingerprint(self) -> str:
        """Return the group's key."""
        return str(self.triage.get("fingerprint") or "")


@dataclass(frozen=True, slots=True)
class Event:
    """What somebody said of a group of equal failures."""

    fingerprint: str
    kind: EventKind
    at: str
    by: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """The fold of all occurrences and events of one fingerprint."""

    fingerprint: str
    label: str
    signature: str
    count: int
    first_seen: str
    last_seen: str
    hosts: tuple[str, ...]
    status: Status = Status.NEW
    owner: str = ""
    links: tuple[str, ...] = ()
    comments: tuple[Event, ...] = field(default_factory=tuple)
