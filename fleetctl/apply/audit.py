"""The operator's own record of what was changed: one JSON line a change."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shlex
import socket
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fleetctl.clock import SystemClock, rfc3339
from fleetctl.config import places
from fleetctl.errors import FleetError

if TYPE_CHECKING:
    from fleetctl.apply.session import Session
    from fleetctl.model.fleet import Target

SCHEMA = "fleetctl.audit/1"


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


@contextlib.contextmanager
def change(event: dict[str, Any]) -> Iterator[None]:
    """Write a change down before it is made, and a second line when a fault kept it from being made."""
    write(event)
    try:
        yield
    except FleetError as error:
        kept = {k: event[k] for k in ("host", "service", "launch", "engine") if k in event}
        write({"do": f"{event['do']} failed", "error": error.reference} | kept)
        raise


def local(targets: set[str] | None, limit: int) -> list[dict[str, Any]]:
    """Return the newest lines of this machine, the oldest first; only of these services when given."""
    try:
        lines = (places.home() / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found: list[dict[str, Any]] = []
    for line in reversed(lines):
        if len(found) >= limit:
            break
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if targets is None or f"{value.get('host')}/{value.get('service')}" in targets:
            found.append({"schema": SCHEMA, "source": "here"} | value)
    return found[::-1]


def of_host(session: Session, target: Target, limit: int) -> list[dict[str, Any]]:
    """Return the newest lines that the host itself keeps of a service, the oldest first. Raises FleetError."""
    args = {"service": target.service.name, "limit": limit}
    lines = session.call("records.audit", args)["lines"]
    head = {"schema": SCHEMA, "source": "host", "host": target.host.name}
    return [head | line for line in lines]
