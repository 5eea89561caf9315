"""Occurrences and events of one fingerprint, folded into a group. Pure: order of arrival does not matter."""

from __future__ import annotations

from collections.abc import Iterable

from fleetctl.model.incident import Event, EventKind, Group, Occurrence, Status


def fold(occurrences: Iterable[Occurrence], events: Iterable[Event]) -> Group:
    """Return the group of occurrences that share a fingerprint. Raise ValueError for none."""
    unique = {o.id: o for o in occurrences}
    seen = sorted(unique.values(), key=lambda o: (o.observed_at, o.id))
    if not seen:
        raise ValueError("a group has at least one occurrence")
    said = sorted(set(events), key=lambda e: (e.at, e.kind, e.by, e.text))
    return Group(
        fingerprint=seen[-1].fingerprint,
        label=str(seen[-1].triage.get("label", "unknown")),
        signature=str(seen[-1].triage.get("signature", "")),
        count=len(seen),
        first_seen=seen[0].observed_at,
        last_seen=seen[-1].observed_at,
        hosts=tuple(sorted({o.host for o in seen})),
        status=_status(said, seen[-1].observed_at),
        owner=next((e.text for e in reversed(said) if e.kind is EventKind.ASSIGNED), ""),
        links=tuple(e.text for e in said if e.kind is EventKind.LINKED),
        comments=tuple(e for e in said if e.kind is EventKind.COMMENTED),
    )


def _status(events: list[Event], last_seen: str) -> Status:
    """Return the status; a failure that was seen again after it was resolved has regressed."""
    status = Status.NEW
    for event in events:
        match event.kind:
            case EventKind.ACKED | EventKind.ASSIGNED:
                if status is not Status.RESOLVED:
                    status = Status.ACKED
            case EventKind.RESOLVED:
                status = Status.RESOLVED if event.at >= last_seen else Status.REGRESSED
            case EventKind.REOPENED:
                status = Status.NEW
            case EventKind.COMMENTED | EventKind.LINKED:
                pass
    return status
