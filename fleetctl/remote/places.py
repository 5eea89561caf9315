"""Where fleetctl keeps things on a host. FLEETCTL_ROOT moves everything, for tests."""

from __future__ import annotations

import os

ROOT = os.environ.get("FLEETCTL_ROOT", "")
ETC = ROOT + "/etc/fleetctl"
UNITS = ROOT + "/etc/systemd/system"
STATE = ROOT + "/var/lib/fleetctl"
LAUNCHES = STATE + "/launches"
REVISIONS = STATE + "/revisions"
SPOOL = STATE + "/spool"
LIB = STATE + "/lib"
AUDIT = STATE + "/audit.jsonl"
RUN = ROOT + "/run/fleetctl"
LOCKS = RUN + "/lock.d"
STOPS = RUN + "/stops"


def safe_name(name: str) -> str:
    """Return the name when it can be one path component; ValueError when not."""
    if not name or name in (".", "..") or "/" in name or "\0" in name or len(name) > 200:
        raise ValueError("not a name: %r" % (name,))
    return name
