"""What goes into an evidence bundle: each source is a function that returns a file's text, or None.

All text is redacted here. A source has so many seconds, and one that fails is simply missing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Callable

from fleetctl.remote import journal, patch_proof, procs, records, redact, shell, unit
from fleetctl.remote import stacks as py_spy

SECONDS = 20.0  # for everything together
HEAD_LINES = 3000  # the start: arguments, weights, capture
FEW = 100  # so few may be missing some
TAIL_LINES = 20000  # the end, where it failed
KERNEL_WINDOW = 600  # seconds before and after the failure

Source = Callable[["Bundle"], "str | None"]


class Bundle:
    """One bundle while it is being written."""

    def __init__(
        self, service: str, unit_name: str, invocation: str, at: float | None, room: int
    ) -> None:
        self.service = service
        self.unit = unit_name
        self.invocation = invocation
        self.at = time.time() if at is None else at  # when it failed
        self.room = room  # bytes
        self.deadline = time.monotonic() + SECONDS
        self.notes: list[str] = []

    def left(self, most: float = SECONDS) -> float:
        """Return how many seconds a source may take."""
        return max(0.1, min(most, self.deadline - time.monotonic()))


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
