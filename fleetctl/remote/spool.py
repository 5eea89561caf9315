"""Evidence bundles on the host: one folder for each failed invocation (``fleetctl.bundle/1``).

Everything is bounded: seconds, megabytes, number of bundles. A bundle never takes the last of a disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from typing import Any

from fleetctl.remote import files, journal, places, records, shell, threads, unit
from fleetctl.remote.spool_sources import OF_A_HANG, SOURCES, Bundle

SCHEMA = "fleetctl.bundle/1"
BUNDLE_BYTES = 48 * 1024 * 1024
KEPT_BUNDLES = 20  # of one service
KEPT_BYTES = 512 * 1024 * 1024
FREE_BYTES = 256 * 1024 * 1024  # that much of the disk stays free
STOPPING = "de5b426a63be47a7b6ac3eaac82e2f6f"


def folder_of(service: str) -> str:
    """Return the folder of a service's bundles."""
    return os.path.join(places.SPOOL, places.safe_name(service))


def budget(folder: str) -> int:
    """Return how many bytes a bundle may take there now."""
    while not os.path.isdir(folder) and folder != "/":
        folder = os.path.dirname(folder)
    return max(0, min(BUNDLE_BYTES, (files.free_bytes(folder) - FREE_BYTES) // 2))


def asked_by_journal(invocation: str) -> bool:
    """Return whether systemd was told to stop this invocation, by whomever."""
    argv = [
        "journalctl", "-q", "--no-pager", "-n", "1", "-o", "json",
        "MESSAGE_ID=" + STOPPING, "INVOCATION_ID=" + invocation,
    ]  # fmt: skip
    return bool(shell.run(argv, timeout=5.0).out.strip())


def manifest_of(service: str, invocation: str) -> dict[str, Any] | None:
    """Return the manifest of a bundle in the spool, or None."""
    path = os.path.join(folder_of(service), places.safe_name(invocation), "manifest.json")
    return records.read_object(path)


def freeze(
    service: str,
    unit_name: str,
    invocation: str,
    asked: bool = False,
    hung: bool = False,
    at: float | None = None,
    host_down: bool = False,
) -> dict[str, Any]:
    """Write the bundle of an invocation, or return the one that is there, as its manifest.

    One that was frozen while the service still ran is written again once it has ended. ``host_down``:
    the service ended because its host did.
    """
    there = manifest_of(service, invocation)
    if there is not None and not there.get("running"):
        return there
    journal.sync()
    bundle = Bundle(service, unit_name, invocation, at, budget(folder_of(service)))
    folder = os.path.join(folder_of(service), places.safe_name(invocation))
    if bundle.room < 1 << 20:
        return {"error": "disk-full", "message": "no room for evidence on the disk of the spool"}
    # What only a hang that still ran could tell is no longer to be had.
    hung = hung or bool((there or {}).get("hung"))
    texts = _told_by_hang(folder, there) if there else {}
    missing = []
    # Side by side: a restart waits for this, and so does whoever watches.
    sources = SOURCES + (OF_A_HANG if hung and "stacks.txt" not in texts else ())
    work = [(name, threads.Work(source, bundle)) for name, source in sources]
    for name, one in work:
        text = one.result() or texts.get(name)
        if text is None or len(text) > bundle.room - sum(map(len, texts.values())):
            missing.append(name)
        else:
            texts[name] = text
    manifest = _manifest(bundle, texts, missing, asked, hung)
    manifest["host_down"] = host_down
    _write(folder, texts, manifest)
    prune(service, keep=invocation)
    return manifest


def _told_by_hang(folder: str, manifest: dict[str, Any]) -> dict[str, str]:
    """Return the files of an earlier bundle that show where a hang stood."""
    names = [n for n in ("processes.txt", "stacks.txt") if n in manifest.get("files", {})]
    found = {}
    for name in names if manifest.get("hung") else ():
        with contextlib.suppress(OSError), open(os.path.join(folder, name), "rb") as file:
            found[name] = file.read().decode("utf-8", "replace")
    return found


def _manifest(
    bundle: Bundle, texts: dict[str, str], missing: list[str], asked: bool, hung: bool
) -> dict[str, Any]:
    props = unit.show(bundle.unit)
    own = props.get("InvocationID") == bundle.invocation
    launch = records.last_launch(bundle.service, invocation=bundle.invocation) or {}
    record = launch.get("config") or {}
    return {
        "schema": SCHEMA,
        "host": os.uname().nodename,
        "service": bundle.service,
        "unit": bundle.unit,
        "invocation_id": bundle.invocation,
        "launch_id": launch.get("id"),
        "boot_id": _boot(texts) or records.boot_id(),
        "created_at": records.now(),
        "failed_at": records.rfc3339(bundle.at),
        "asked_stop": asked or records.asked_stop(bundle.invocation) is not None,
        "hung": hung,
        "running": own and props.get("ActiveState") == "active",
        "result": props.get("Result") if own else None,
        "exec_main_code": props.get("ExecMainCode") if own else None,
        "exec_main_status": props.get("ExecMainStatus") if own else None,
        "sglang": (record.get("versions") or {}).get("sglang"),
        "files": {
            name: {"sha256": _hash(text), "bytes": len(text.encode())}
            for name, text in texts.items()
        },
        "missing": missing,
        "notes": bundle.notes,
    }


def _boot(texts: dict[str, str]) -> str:
    """Return the boot that the records are of: a sweep may come after a reboot."""
    first = texts.get("journal.jsonl", "").partition("\n")[0]
    return str((journal.parse(first.encode()) or {}).get("_BOOT_ID", ""))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write(folder: str, texts: dict[str, str], manifest: dict[str, Any]) -> None:
    """Make the folder appear whole."""
    parent = os.path.dirname(folder)
    os.makedirs(parent, mode=0o750, exist_ok=True)
    new = os.path.join(parent, ".new-%d-%s" % (os.getpid(), os.path.basename(folder)))
    files.remove_tree(new)
    try:
        os.mkdir(new, 0o750)
        for name, text in texts.items():
            _put(os.path.join(new, name), text)
        _put(
            os.path.join(new, "manifest.json"),
            json.dumps(manifest, indent=1, sort_keys=True) + "\n",
        )
        if os.path.isdir(folder):
            old = os.path.join(parent, ".old-%d-%s" % (os.getpid(), os.path.basename(folder)))
            os.rename(folder, old)
            os.rename(new, folder)
            files.remove_tree(old)
        else:
            os.rename(new, folder)
    except BaseException:
        files.remove_tree(new)
        raise


def _put(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
    with os.fdopen(handle, "wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def bundles(service: str) -> list[dict[str, Any]]:
    """Return the manifests of a service's bundles, the oldest first."""
    try:
        names = os.listdir(folder_of(service))
    except OSError:
        return []
    found = [manifest_of(service, name) for name in names if not name.startswith(".")]
    return sorted((m for m in found if m), key=lambda m: str(m.get("created_at", "")))


def prune(service: str, keep: str = "") -> None:
    """Drop the oldest bundles beyond the limits, and half-written ones of collectors that died."""
    folder = folder_of(service)
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name.startswith(".") and time.time() - os.stat(path).st_mtime > 600:
            files.remove_tree(path)
    found = bundles(service)
    total = sum(_size(m) for m in found)
    while found and (len(found) > KEPT_BUNDLES or total > KEPT_BYTES):
        oldest = found.pop(0)
        if oldest["invocation_id"] == keep:
            continue
        total -= _size(oldest)
        name = places.safe_name(oldest["invocation_id"])
        files.remove_tree(os.path.join(folder, name))


def _size(manifest: dict[str, Any]) -> int:
    return sum(int(f["bytes"]) for f in manifest.get("files", {}).values())
