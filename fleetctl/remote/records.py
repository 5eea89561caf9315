"""What a host remembers: launches, stops that were asked for, and the audit line of every change."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any

from fleetctl.remote import files, places

KEPT_LAUNCHES = 50
AUDIT_LIMIT = 4 * 1024 * 1024


def rfc3339(at: float) -> str:
    """Return seconds since 1970 as RFC 3339 in UTC with milliseconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + ".%03dZ" % int(at % 1 * 1000)


def now() -> str:
    """Return the time as RFC 3339."""
    return rfc3339(time.time())


def boot_id() -> str:
    """Return this boot's id, as journald writes it."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip().replace("-", "")
    except OSError:
        return ""


def audit(event: dict[str, Any]) -> None:
    """Append one line to the host's audit log. Secrets never come here: callers pass names only."""
    os.makedirs(places.STATE, exist_ok=True)
    try:
        if os.path.getsize(places.AUDIT) > AUDIT_LIMIT:
            os.replace(places.AUDIT, places.AUDIT + ".1")
    except OSError:
        pass
    line = json.dumps(dict({"at": now()}, **event), sort_keys=True) + "\n"
    handle = os.open(places.AUDIT, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


# --- launches ---


def _folder(service: str) -> str:
    return os.path.join(places.LAUNCHES, places.safe_name(service))


def save_launch(record: dict[str, Any]) -> None:
    """Write a launch record, and drop the oldest beyond the newest 50 and the last ready one."""
    folder = _folder(record["service"])
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, places.safe_name(record["id"]) + ".json")
    files.write_atomic(path, json.dumps(record, sort_keys=True, indent=1) + "\n", mode=0o640)
    names = sorted(n for n in os.listdir(folder) if n.endswith(".json"))
    ready = last_launch(record["service"], ready=True)
    keep = set(names[-KEPT_LAUNCHES:]) | ({ready["id"] + ".json"} if ready else set())
    for name in names:
        if name not in keep:
            os.unlink(os.path.join(folder, name))


def forget_launch(service: str, name: str) -> None:
    """Remove the record of a launch that was taken back before it began."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(_folder(service), places.safe_name(name) + ".json"))


def launch(service: str, name: str) -> dict[str, Any] | None:
    """Return the launch record of that id, or None."""
    if not name:
        return None
    return read_object(os.path.join(_folder(service), places.safe_name(name) + ".json"))


def line_of(value: dict[str, Any]) -> str:
    """Return an object as one line of JSON."""
    return json.dumps(value, sort_keys=True) + "\n"


def launches(service: str) -> list[dict[str, Any]]:
    """Return the launch records of a service, the newest first; unreadable ones are passed over."""
    folder = _folder(service)
    try:
        names = sorted((n for n in os.listdir(folder) if n.endswith(".json")), reverse=True)
    except OSError:
        return []
    found = (read_object(os.path.join(folder, name)) for name in names)
    return [record for record in found if record is not None]


def last_launch(service: str, ready: bool = False, invocation: str = "") -> dict[str, Any] | None:
    """Return the newest launch; only one that became ready, or of one invocation, when asked so."""
    for record in launches(service):
        if ready and not (record.get("ready_at") or record.get("outcome") == "ready"):
            continue
        if invocation and record.get("invocation_id") != invocation:
            continue
        return record
    return None


def update_launch(service: str, launch: str, changes: dict[str, Any]) -> None:
    """Change fields of a launch record; nothing happens when there is none."""
    record = read_object(os.path.join(_folder(service), places.safe_name(launch) + ".json"))
    if record is not None:
        record.update(changes)
        save_launch(record)


def read_object(path: str) -> dict[str, Any] | None:
    """Return the JSON object of a file, or None when it is not there or not readable."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


# --- stops that somebody asked for ---


def ask_stop(unit: str, invocation: str, reason: str, by: str) -> None:
    """Remember that this invocation's end is wanted: its signs of death are then no crash."""
    os.makedirs(places.STOPS, exist_ok=True)
    body = {"unit": unit, "invocation_id": invocation, "reason": reason, "by": by, "at": now()}
    path = os.path.join(places.STOPS, places.safe_name(invocation))
    files.write_atomic(path, json.dumps(body) + "\n", mode=0o644)


def asked_stop(invocation: str) -> dict[str, Any] | None:
    """Return who asked for the end of this invocation, or None."""
    if not invocation:
        return None
    return read_object(os.path.join(places.STOPS, places.safe_name(invocation)))


def _launches(args: dict[str, Any], _session: Any) -> dict[str, Any]:
    return {"launches": launches(args["service"])[: int(args.get("limit", 20))]}


def _audit(args: dict[str, Any], _session: Any) -> dict[str, Any]:
    """Return the newest audit lines, the oldest first, of one service when asked so."""
    limit, service = int(args.get("limit", 50)), args.get("service")
    found: list[dict[str, Any]] = []
    for path in (places.AUDIT, places.AUDIT + ".1"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = file.readlines()
        except OSError:
            continue
        for line in reversed(lines):
            if len(found) >= limit:
                break
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict) and (not service or value.get("service") == service):
                found.append(value)
    return {"lines": found[::-1]}


def _outcome(args: dict[str, Any], _session: Any) -> dict[str, Any]:
    """Write down what became of a launch that another host's watch has settled."""
    known = ("outcome", "phase", "ready_at", "ended_at", "ready_seconds")
    changes = {k: args[k] for k in known if k in args}
    update_launch(args["service"], str(args["launch"]), changes)
    return {}


def _clock(_args: dict[str, Any], _session: Any) -> dict[str, Any]:
    return {"time": time.time()}


VERBS = {"outcome": _outcome, "clock": _clock, "launches": _launches, "audit": _audit}
