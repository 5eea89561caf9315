"""The operator's own record of what was changed: one JSON line a change."""

from __future__ import annotations

import getpass
import json
import os
import shlex
import socket
import sys
from typing import Any

from fleetctl.clock import SystemClock, rfc3339
from fleetctl.config import places


def who() -> str:
    """Return ``user@machine`` of the person at this end."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no name for this uid
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def command_line() -> str:
    """Return the command as it was typed. Secrets are never options, so none is in it."""
    return shlex.join(["fleetctl", *sys.argv[1:]])[:500]


def write(event: dict[str, Any]) -> None:
    """Append a line to ``audit.jsonl`` in the operator's state folder."""
    folder = places.home()
    folder.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"at": rfc3339(SystemClock().now()), "by": who()} | event, sort_keys=True)
    with (folder / "audit.jsonl").open("a", encoding="utf-8") as file:
        file.write(line + "\n")
