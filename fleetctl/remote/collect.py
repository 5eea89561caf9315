"""Evidence of failures that nobody watched: the sweep, after the collector (``ending``) or instead of it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import tarfile
from typing import Any

from fleetctl.remote import host_down, journal, patch_store, places, records, spool
from fleetctl.remote.agent import AgentError

FAILED = "d9b373ed55a64feb8242e02dbe79a49c"  # systemd's MESSAGE_ID of "Failed with result …"
CHUNK = 192 * 1024


def failures(unit_name: str, since: float) -> dict[str, float]:
    """Return the failed invocations of a unit that the journal knows: invocation → when it failed.

    A start that systemd refused because of the start limit has an invocation too, but ran nothing.
    """
    argv = [
        "journalctl", "-q", "--no-pager", "-o", "json", "--since=@%d" % since,
        "--output-fields=INVOCATION_ID,MESSAGE_ID",
        "MESSAGE_ID=" + FAILED, "MESSAGE_ID=" + host_down.EXITED, "UNIT=" + unit_name,
    ]  # fmt: skip
    ran: dict[str, float] = {}
    failed = set()
    for line in journal.read(argv, 15.0, 16 << 20):
        record = journal.parse(line) or {}
        invocation = str(record.get("INVOCATION_ID") or "")
        if record.get("MESSAGE_ID") == host_down.EXITED:
            ran[invocation] = int(record["__REALTIME_TIMESTAMP"]) / 1e6
        else:
            failed.add(invocation)
    return {invocation: at for invocation, at in ran.items() if invocation in failed}


def _sweep(args: dict[str, Any], session: Any) -> dict[str, Any]:
    """Return the manifests of every failed invocation of the services, freezing those that have none."""
    since = float(args.get("since") or 0.0)
    only = args.get("invocation")
    found: dict[str, dict[str, Any]] = {}
    for service, unit_name in args["services"]:
        for manifest in spool.bundles(service):
            found[manifest["invocation_id"]] = manifest
        for invocation, at in failures(unit_name, since).items():
            if session.cancelled():
                break
            if invocation in found or (only and invocation != only):
                continue
            asked = records.asked_stop(invocation) is not None
            if not asked and not spool.asked_by_journal(invocation):
                found[invocation] = spool.freeze(service, unit_name, invocation, at=at)
        for invocation, at in host_down.cut_off(unit_name, since).items():
            if invocation not in found and not (only and invocation != only):
                found[invocation] = host_down.keep(service, unit_name, invocation, at)
        if only and only not in found:
            found[only] = _freeze_named(service, unit_name, only)
    wanted = [m for k, m in found.items() if m and "error" not in m and (not only or k == only)]
    wanted = [m for m in wanted if only or not m.get("asked_stop")]
    wanted = sorted((m for m in wanted if only or _when(m) >= since), key=_when)
    notes = {service: patch_store.notes(service) for service, _ in args["services"]}
    return {"bundles": wanted, "boot_id": records.boot_id(), "patch_notes": notes}


def _freeze_named(service: str, unit_name: str, invocation: str) -> dict[str, Any]:
    """Freeze an invocation that somebody named, if the journal has heard of it."""
    argv = journal.command(invocation, "-n", "1")
    for line in journal.read(argv, 10.0, 1 << 20):
        if journal.parse(line):
            return spool.freeze(service, unit_name, invocation)
    return {}


def _when(manifest: dict[str, Any]) -> float:
    import calendar
    import time

    text = str(manifest.get("failed_at") or manifest.get("created_at") or "")
    try:
        return float(calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))) + 1.0
    except ValueError:
        return 0.0


class _Chunks:
    """A file to write to whose content goes out as events."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.buffer = bytearray()
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size += len(data)
        self.buffer += data
        while len(self.buffer) >= CHUNK:
            self._send(CHUNK)
        return len(data)

    def flush(self) -> None:
        """Nothing waits but the last, incomplete chunk."""

    def close(self) -> None:
        self._send(len(self.buffer))

    def _send(self, count: int) -> None:
        if count:
            data = base64.b64encode(bytes(self.buffer[:count])).decode()
            self.session.emit({"event": "chunk", "data": data})
            del self.buffer[:count]


def _fetch(args: dict[str, Any], session: Any) -> dict[str, Any]:
    """Send a bundle as a gzipped tar in ``chunk`` events."""
    service, invocation = args["service"], places.safe_name(args["invocation_id"])
    manifest = spool.manifest_of(service, invocation)
    if manifest is None:
        raise AgentError("no-bundle", "there is no bundle of %s on this host" % invocation)
    folder = os.path.join(spool.folder_of(service), invocation)
    out = _Chunks(session)
    packed = gzip.GzipFile(fileobj=out, mode="wb", compresslevel=3)
    with packed, tarfile.open(fileobj=packed, mode="w|") as tar:
        for name in ["manifest.json", *sorted(manifest["files"])]:
            tar.add(os.path.join(folder, places.safe_name(name)), arcname=name, recursive=False)
    out.close()
    return {"bytes": out.size, "sha256": out.digest.hexdigest()}


def _freeze(args: dict[str, Any], _session: Any) -> dict[str, Any]:
    """Freeze the bundle of one invocation now, or return the one that is there."""
    invocation = places.safe_name(args["invocation_id"])
    return {"bundle": spool.freeze(args["service"], args["unit"], invocation)}


VERBS = {"sweep": _sweep, "fetch": _fetch, "freeze": _freeze}
