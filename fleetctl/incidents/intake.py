"""Put what triage said of a bare log into the incident log."""

from __future__ import annotations

import getpass
import hashlib
import json
from pathlib import Path

from fleetctl.incidents.store import Store
from fleetctl.model.incident import Occurrence, occurrence_id
from fleetctl.model.triage import Triage


def record_log(path: str, triage: Triage, store: Store, *, version: str, now: str) -> str:
    """Record one triage and return the incident's id.

    Host and service of a bare log are not known. It is recorded under its content: the same log twice is
    one incident. ``now`` is RFC 3339 UTC.
    """
    occurrence = Occurrence(
        id=occurrence_id("", "", _content(path, triage), ""),
        host="",
        service="",
        observed_at=now,
        triage=triage.to_json(path),
        recorded_by=getpass.getuser(),
        recorded_at=now,
        tool_version=version,
    )
    store.record_occurrence(occurrence)
    return occurrence.id


def _content(path: str, triage: Triage) -> str:
    """Return a name for a log: a hash of the file, or of what was found in a stream."""
    place = Path(path)
    if path != "-" and place.is_file():
        with place.open("rb") as file:
            return "file-" + hashlib.file_digest(file, "sha256").hexdigest()[:32]
    found = json.dumps(triage.to_json(), sort_keys=True, default=str)
    return "text-" + hashlib.sha256(found.encode()).hexdigest()[:32]
