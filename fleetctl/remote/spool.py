"""Evidence bundles on the host: one folder for each failed invocation (``fleetctl.bundle/1``).

Everything is bounded: seconds, megabytes, number of bundles. A bundle never takes the last of a disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
from typing import Any, Callable

from fleetctl.remote import (
    files,
    journal,
    patch_proof,
    places,
    procs,
    records,
    redact,
    shell,
    threads,
    unit,
)
from fleetctl.remote import stacks as py_spy

SCHEMA = "fleetctl.bundle/1"
SECONDS = 20.0  # for everything together
BUNDLE_BYTES = 48 * 1024 * 1024
HEAD_LINES = 3000  # the start: arguments, weights, capture
FEW = 100  # so few may be missing some
TAIL_LINES = 20000  # the end, where it failed
KEPT_BUNDLES = 20  # of one service
KEPT_BYTES = 512 * 1024 * 1024
FREE_BYTES = 256 * 1024 * 1024  # that much of the disk stays free
KERNEL_WINDOW = 600  # seconds before and after the failure
STOPPING = "de5b426a63be47a7b6ac3eaac82e2f6f"

Source = Callable[["Bundle"], "str | None"]


class Bundle:
    """One bundle while it is being written."""

    def __init__(self, service: str, unit_name: str, invocation: str, at: float | None) -> None:
        self.service = service
        self.unit = unit_name
        self.invocation = invocation
        self.at = time.time() if at is None else at  # when it failed
        self.deadline = time.monotonic() + SECONDS
        self.notes: list[str] = []
        self.folder = os.path.join(folder_of(service), places.safe_name(invocation))
        self.room = budget(folder_of(service))

    def left(self, most: float = SECONDS) -> float:
        """Return how many seconds a source may take."""
        return max(0.1, min(most, self.deadline - time.monotonic()))


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


# --- what goes in ---


def _journal(bundle: Bundle) -> str | None:
    head = list(_records(bundle, journal.command(bundle.invocation), HEAD_LINES + 1))
    if len(head) > HEAD_LINES:
        head = head[:HEAD_LINES]
        seen = {r.get("__CURSOR") for r in head}
        argv = journal.command(bundle.invocation, "-n", str(TAIL_LINES))
        tail = [r for r in _records(bundle, argv, TAIL_LINES) if r.get("__CURSOR") not in seen]
        if len(tail) + len(seen) >= TAIL_LINES:
            bundle.notes.append(
                "the journal was longer: its first %d and last %d records are here"
                % (HEAD_LINES, len(tail))
            )
        head += tail
    elif head and len(head) < FEW:
        head = sorted(head + _strays(bundle, head), key=_time)
    return "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in head) or None


def _time(record: dict[str, Any]) -> int:
    return int(record.get("__REALTIME_TIMESTAMP") or 0)


def _strays(bundle: Bundle, own: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return lines of the unit that no invocation is named for, from the time of this one.

    A process that dies within milliseconds of its last words is gone before journald has asked the
    kernel whose they were.
    """
    argv = [
        "journalctl", "--no-pager", "-q", "--all", "-o", "json", "-n", str(HEAD_LINES),
        "--output-fields=" + ",".join(journal.FIELDS),
        "--since=@%.3f" % (_time(own[0]) / 1e6 - 0.5), "--until=@%.3f" % (_time(own[-1]) / 1e6 + 1.0),
        "_SYSTEMD_UNIT=" + bundle.unit,
    ]  # fmt: skip
    found = _records(bundle, argv, HEAD_LINES)
    return [r for r in found if not r.get("_SYSTEMD_INVOCATION_ID")]


def _records(bundle: Bundle, argv: list[str], count: int) -> Any:
    limit = bundle.room
    for line in journal.read(argv, bundle.left(8.0), limit):
        record = journal.parse(line)
        if record is not None:
            yield clean(record)
            count -= 1
        if count <= 0:
            return


def clean(record: dict[str, Any]) -> dict[str, Any]:
    """Return a journal record whose text is plain and redacted."""
    return dict(record, MESSAGE=redact.redact(journal.message(record)))


def _unit(bundle: Bundle) -> str | None:
    done = unit.systemctl("show", "--", bundle.unit, timeout=bundle.left(5.0))
    return redact.redact(done.out) if done.rc == 0 else None


def _kernel(bundle: Bundle) -> str | None:
    argv = [
        # Not -k: that is of this boot alone, and the failure may be of the one before.
        "journalctl", "--no-pager", "-q", "_TRANSPORT=kernel", "-o", "json", "--all",
        "--output-fields=MESSAGE,PRIORITY,_BOOT_ID,_TRANSPORT",
        "--since=@%d" % (bundle.at - KERNEL_WINDOW), "--until=@%d" % (bundle.at + KERNEL_WINDOW),
    ]  # fmt: skip
    lines = journal.read(argv, bundle.left(5.0), 4 << 20)
    found = [clean(r) for r in map(journal.parse, lines) if r is not None]
    return "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in found) or None


def _smi(bundle: Bundle) -> str | None:
    done = shell.run(("nvidia-smi", "-q"), timeout=bundle.left(8.0))
    if done.rc != 0:
        return None
    apps = shell.run(
        ("nvidia-smi", "--query-compute-apps=gpu_uuid,pid,name,used_memory", "--format=csv"), 5.0
    )
    return redact.redact(done.out + "\n" + apps.out)


def _launch(bundle: Bundle) -> str | None:
    record = records.last_launch(bundle.service, invocation=bundle.invocation)
    return (
        None
        if record is None
        else redact.redact(json.dumps(record, indent=1, sort_keys=True) + "\n")
    )


def _versions(bundle: Bundle) -> str | None:
    record = records.last_launch(bundle.service, invocation=bundle.invocation) or {}
    found = dict((record.get("config") or {}).get("versions") or {})
    found.update(
        kernel=os.uname().release,
        machine=os.uname().machine,
        agent_python=sys.version.split()[0],
        systemd=unit.systemctl("--version", timeout=bundle.left(3.0)).out.partition("\n")[0],
    )
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


def _patches(bundle: Bundle) -> str | None:
    found = patch_proof.for_bundle(bundle.service, bundle.invocation)
    if found is None:
        return None
    return redact.redact(json.dumps(found, indent=1, sort_keys=True) + "\n")


def _processes(bundle: Bundle) -> str | None:
    """What still runs, for a hang: state, kernel wait point and name of each process."""
    props = unit.show(bundle.unit, ("ControlGroup", "MainPID", "InvocationID"))
    if props.get("InvocationID") != bundle.invocation:
        return None
    rows = []
    for pid in procs.of_cgroup(props.get("ControlGroup", ""), int(props.get("MainPID") or 0)):
        if pid == os.getpid():
            continue
        stat = procs.read("/proc/%d/stat" % pid).rpartition(")")[2].split()
        wait = procs.read("/proc/%d/wchan" % pid)
        rows.append("%d\t%s\t%s\t%s" % (pid, stat[0] if stat else "?", wait, procs.command_of(pid)))
    return redact.redact("\n".join(rows) + "\n") if rows else None


def _stacks(bundle: Bundle) -> str | None:
    """Where each Python process of a hang stands, by py-spy where it is there and permitted."""
    props = unit.show(bundle.unit, ("ControlGroup", "MainPID", "InvocationID"))
    if props.get("InvocationID") != bundle.invocation:
        return None
    pids = procs.of_cgroup(props.get("ControlGroup", ""), int(props.get("MainPID") or 0))
    text, wrong = py_spy.dump([p for p in pids if p != os.getpid()], bundle.left(10.0))
    bundle.notes += [redact.redact(note) for note in wrong]
    return redact.redact(text) if text else None


SOURCES: tuple[tuple[str, Source], ...] = (
    ("journal.jsonl", _journal),
    ("unit.txt", _unit),
    ("launch.json", _launch),
    ("kernel.jsonl", _kernel),
    ("versions.json", _versions),
    ("patches.json", _patches),
    ("processes.txt", _processes),
    ("nvidia-smi.txt", _smi),
)
OF_A_HANG: tuple[tuple[str, Source], ...] = (("stacks.txt", _stacks),)


# --- writing ---


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
    bundle = Bundle(service, unit_name, invocation, at)
    if bundle.room < 1 << 20:
        return {"error": "disk-full", "message": "no room for evidence on the disk of the spool"}
    # What only a hang that still ran could tell is no longer to be had.
    hung = hung or bool((there or {}).get("hung"))
    texts = _told_by_hang(bundle.folder, there) if there else {}
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
    _write(bundle.folder, texts, manifest)
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
