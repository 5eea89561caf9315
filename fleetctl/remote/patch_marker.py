"""The lines that diagnostic patches print: ``fleetctl-patch <name> v1 {json}`` on one line.

Written by the blocks of patches/<name>/, read by triage, by the proof that a patch is active, and
by ``fleetctl patch history``. The fields are described in docs/reference/patch-markers.md.
"""

from __future__ import annotations

import json
import re
from typing import Any, Iterable, Iterator, NamedTuple

LIMIT = 64 * 1024  # bytes of JSON that one line may hold; longer ones are not ours
LINE = re.compile(r"fleetctl-patch (?P<name>[a-z0-9][a-z0-9-]{0,62}) v1 (?P<body>\{.*\})")
HEAD = ("event", "pid", "process", "message", "patch")  # of any marker; the rest is a patch's own


class Marker(NamedTuple):
    """One marker: which patch, what it says, and the index of its line in what was given."""

    patch: str
    fields: dict[str, Any]
    at: int

    @property
    def event(self) -> str:
        """Return the kind of line: ``loaded`` for the beacon of an import, else the patch's own."""
        return str(self.fields.get("event", ""))


def parse(line: str, index: int = 0) -> Marker | None:
    """Return the marker in a line, whatever stands before it, or None.

    Text that only looks like one (cut off, nested too deep, not an object) gives None.
    """
    if "fleetctl-patch " not in line:
        return None
    match = LINE.search(line)
    if match is None or len(match["body"]) > LIMIT:
        return None
    try:
        fields = json.loads(match["body"])
    except (ValueError, RecursionError):
        return None
    return Marker(match["name"], fields, index) if isinstance(fields, dict) else None


def scan(lines: Iterable[str]) -> Iterator[Marker]:
    """Yield what patches found in many lines, with the index (from 0); the import's beacons are left out."""
    for index, line in enumerate(lines):
        found = parse(line, index)
        if found is not None and found.event != "loaded":
            yield found


def said(fields: dict[str, Any]) -> str:
    """Return what a marker says to a person: its message, else its event and the fields of its own."""
    if fields.get("message"):
        return str(fields["message"])
    own = ["%s %s" % (k, v) for k, v in fields.items() if k not in HEAD]
    return "%s: %s" % (fields.get("event", "printed"), ", ".join(own)[:300] or "no more than that")
