"""``collect``: bring home what failed while nobody watched."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fleetctl.apply import evidence
from fleetctl.apply.session import Session
from fleetctl.errors import FleetError, UsageError
from fleetctl.model.facts import PatchNote
from fleetctl.model.fleet import Target
from fleetctl.patching import active

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|min|m|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
SWEEP_SECONDS = 300.0


def since_of(text: str, now: datetime) -> float:
    """Return seconds since 1970 of ``12h``, ``30min``, ``2d`` ago, or of an RFC 3339 time.

    Raises UsageError ``bad-time``.
    """
    match = _SPAN.fullmatch(text)
    if match:
        ago = timedelta(seconds=float(match.group(1)) * _SECONDS[match.group(2)])
        return (now - ago).timestamp()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            "bad-time", f"{text!r} is no time", hint="write 12h, 30min, 2d or 2026-11-29T03:00:00Z"
        ) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def collect(
    session: Session,
    targets: Sequence[Target],
    since: float,
    invocation: str | None,
    found: Callable[[dict[str, Any]], None],
    patched: Callable[[str, tuple[PatchNote, ...]], None] = lambda _, __: None,
) -> list[dict[str, Any]]:
    """Fetch, triage and record every failed invocation of these services of one host.

    ``found`` is told each as it comes, ``patched`` the patches that each service has. What was recorded
    before is known again by its id: a second run adds nothing. Raises FleetError when the host cannot be
    asked.
    """
    args = {
        "services": [[t.service.name, t.service.unit] for t in targets],
        "since": since,
        "invocation": invocation,
    }
    swept = session.call("collect.sweep", args, timeout=SWEEP_SECONDS)
    for target in targets:
        notes = (swept.get("patch_notes") or {}).get(target.service.name) or ()
        patched(str(target), active.notes_of({"patch_notes": notes}))
    lines = []
    for manifest in swept["bundles"]:
        line = _one(session, manifest)
        found(line)
        lines.append(line)
    return lines


def _one(session: Session, manifest: dict[str, Any]) -> dict[str, Any]:
    host = session.host.name
    line: dict[str, Any] = {
        "schema": "fleetctl.collected/1",
        "host": host,
        "service": manifest["service"],
        "invocation_id": manifest["invocation_id"],
        "failed_at": manifest.get("failed_at"),
        "incident": evidence.incident_id(host, manifest),
        "bundle": None,
        "new": False,
        "label": None,
        "signature": None,
    }
    try:
        folder = evidence.fetch(session, manifest)
        line["bundle"] = str(folder)
        triage = evidence.triaged(folder)
        line |= {k: triage.get(k) for k in ("label", "signature", "verdict", "phase", "state")}
        if triage.get("state") in ("crashed", "hung"):
            _, line["new"] = evidence.record(host, manifest, folder, triage)
        else:
            line["incident"] = None
    except FleetError as error:
        line |= {"error": error.reference, "message": error.message}
    return line
