"""A change that is under way, written down so that the next agent can end what a dead one began.

An agent that is killed, or a host that loses its power, may leave some files of a launch new and some
old. The note has what was there before: whoever comes next takes all back, or, where the restart came
through, takes all as done. So a host has the old launch or the new one, not a mixture. A
service that starts by itself at a boot waits there for a unit that does the same; it exists only meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Any, Iterable

from fleetctl.remote import files, lock, places, records, revisions, unit
from fleetctl.remote.agent import AgentError

AT_BOOT = """\
# Written by fleetctl while it changes %(unit)s, and removed when that is done.
[Unit]
Description=Ends what fleetctl had begun on %(service)s when this host went down
Before=%(unit)s

[Service]
Type=oneshot
ExecStart=%(python)s %(program)s --undo %(service)s
"""
WAIT = 600.0  # seconds for a restart that systemd is at: the old server may take long to stop


def _path(service: str) -> str:
    return os.path.join(places.STATE, "undo", places.safe_name(service) + ".json")


def begin(service: str, unit_name: str, launch: str, invocation: str, paths: Iterable[str]) -> None:
    """Write down what is about to be changed: the files of a launch, and what runs before it."""
    there = {path: os.path.lexists(path) for path in paths}
    for path in there:
        files.forget(files.kept_name(path))
    body = {
        "unit": unit_name, "launch": launch, "invocation_id": invocation,
        "boot_id": records.boot_id(), "files": there,
    }  # fmt: skip
    os.makedirs(os.path.dirname(_path(service)), mode=0o700, exist_ok=True)
    files.write_atomic(_path(service), records.line_of(body), mode=0o600)
    _wait_at_boot(service, unit_name)


def _boot_unit(service: str) -> tuple[str, str]:
    """Return the unit that ends a change at a boot, and the link that has it started."""
    name = "fleetctl-undo-%s.service" % service
    return os.path.join(places.UNITS, name), os.path.join(_wants(), name)


def _wants() -> str:
    return os.path.join(places.UNITS, "multi-user.target.wants")


def _wait_at_boot(service: str, unit_name: str) -> None:
    if not os.path.lexists(os.path.join(_wants(), unit_name)):
        return
    path, link = _boot_unit(service)
    words = {
        "unit": unit_name, "service": service, "python": sys.executable,
        "program": os.path.join(places.LIB, "collect.py"),
    }  # fmt: skip
    files.write_atomic(path, AT_BOOT % words)
    files.forget(link)
    os.symlink(path, link)
    files.sync_folder(_wants())


def end(service: str) -> None:
    """Forget the change: it is done, or taken back."""
    for path in (*_boot_unit(service), _path(service)):
        files.forget(path)


def pending(service: str) -> bool:
    """Return whether somebody began a change and has not ended it."""
    return os.path.exists(_path(service))


def settle(service: str) -> str | None:
    """End what a dead agent began; return ``old`` or ``new``, None where there was nothing.

    The caller holds the lock. AgentError: systemd-silent; then nothing is touched.
    """
    note = records.read_object(_path(service))
    if note is None:
        end(service)
        return None
    invocation = _started(service, note)
    if invocation:
        _take_as_done(service, note, invocation)
    else:
        _take_back(service, note)
    for path in note["files"]:
        files.sweep(path, service)
    end(service)
    word = "new" if invocation else "old"
    records.audit({"do": "settled", "service": service, "launch": note["launch"], "to": word})
    return word


def _started(service: str, note: dict[str, Any]) -> str:
    """Return the invocation that the change came to, "" when it did not come to its restart."""
    launch = records.launch(service, note["launch"]) or {}
    if launch.get("invocation_id") or note["boot_id"] != records.boot_id():
        return str(launch.get("invocation_id") or "")
    until = time.monotonic() + WAIT
    while True:
        props = unit.must_show(note["unit"], ("InvocationID", "Job"))
        if props.get("Job", "0") in ("", "0"):
            now = props.get("InvocationID", "")
            return now if now != note["invocation_id"] else ""
        if time.monotonic() > until:
            raise AgentError(
                "still-restarting", "systemd is still at the restart of %s" % note["unit"],
                hint="`systemctl list-jobs` there says for what it waits",
            )  # fmt: skip
        time.sleep(0.2)


def _take_as_done(service: str, note: dict[str, Any], invocation: str) -> None:
    launch = records.launch(service, note["launch"]) or {}
    if not launch.get("invocation_id"):
        changes = {"invocation_id": invocation, "boot_id": records.boot_id(), "outcome": "starting"}
        records.update_launch(service, note["launch"], changes)
    for path in note["files"]:
        files.forget(files.kept_name(path))


def _take_back(service: str, note: dict[str, Any]) -> None:
    for path, was_there in note["files"].items():
        files.bring_back(path, was_there=was_there)
    records.forget_launch(service, note["launch"])
    revisions.forget(service, note["launch"])
    unit.systemctl("daemon-reload", timeout=unit.SILENT)


def repair(service: str) -> None:
    """End what a dead agent began, unless a living one is at it."""
    if not pending(service):
        return
    who = {"token": "repair-%d" % os.getpid(), "who": "fleetctl", "why": "ends what was begun"}
    with contextlib.suppress(lock.Locked):
        held = lock.acquire(service, who)
        try:
            settle(service)
        finally:
            held.release()
