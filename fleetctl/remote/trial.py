"""What a bisect needs on its host: a lock that lasts, an end for each trial, a clean room, its state."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from typing import Any

from fleetctl.remote import apply, files, lock, patch_store, places, procs, records, unit
from fleetctl.remote.agent import AgentError

FOLDER = places.STATE + "/bisect"
SHM = places.ROOT + "/dev/shm"  # noqa: S108  listed only
MIB = 1 << 20


def _hold(args: dict[str, Any], _session: Any) -> dict[str, Any]:
    """Hold the locks of these services for as long as this agent lives."""
    for service in args["services"]:
        apply.hold(service, args["lock"], args.get("break_lock", ""))
    return {"boot_id": records.boot_id()}


def _beat(args: dict[str, Any], _session: Any) -> dict[str, Any]:
    """Return whose the locks are now, and which boot this is."""
    holders = {s: (lock.holder(s) or {}).get("token") for s in args["services"]}
    return {"holders": holders, "boot_id": records.boot_id(), "now": records.now()}


def _end(args: dict[str, Any], session: Any) -> dict[str, Any]:
    """Stop a trial's unit for good: gently, or at once by SIGKILL to all of its processes.

    AgentError: systemd-silent.
    """
    name = args["unit"]
    props = unit.must_show(name)
    alive = props.get("ActiveState") in ("active", "activating", "deactivating", "reloading")
    if alive and props.get("InvocationID"):
        records.ask_stop(
            name, props["InvocationID"], args.get("reason", "trial"), args.get("by", "")
        )
    if alive and args.get("at_once"):
        unit.systemctl("kill", "--signal=KILL", "--kill-who=all", "--", name)
    if props.get("LoadState") not in (None, "not-found"):
        try:
            unit.must(("stop", "--", name), "stop-failed", timeout=float(args.get("timeout", 240)))
        except AgentError as error:  # whatever else it says: ``clean`` sees what is left
            if error.fields["reference"] == "systemd-silent":
                raise
    unit.reset_failed(name)
    if args.get("launch"):
        records.update_launch(args["service"], args["launch"], args.get("changes") or {})
    session.emit({"event": "step", "do": "end-trial", "state": "done", "target": name})
    return {"was": props.get("ActiveState", "inactive")}


def _gpus(wanted: list[int] | None, limit: float) -> list[str]:
    """Return what speaks against each GPU of the service: memory over the limit (MiB)."""
    found = []
    known, _ = procs.gpus()
    holders = procs.gpu_processes(known) if known else []
    for gpu in known:
        if wanted is not None and gpu["index"] not in wanted:
            continue
        used = int(gpu.get("memory_used") or 0) / MIB
        if used > limit:
            who = [h for h in holders if h.get("gpu") == gpu["index"]]
            names = (
                ", ".join("%s %s" % (h.get("pid"), h.get("command")) for h in who) or "nobody named"
            )
            found.append("GPU %d has %d MiB in use (%s)" % (gpu["index"], used, names))
    return found


def _dirt(args: dict[str, Any]) -> list[str]:
    found = []
    props = unit.must_show(args["unit"])
    if props.get("ActiveState") in ("active", "activating", "deactivating"):
        found.append("%s is %s" % (args["unit"], props["ActiveState"]))
    found += [
        "process %d of the last trial is there: %s" % (pid, procs.command_of(pid))
        for pid in procs.of_cgroup(props.get("ControlGroup", ""))
    ]
    found += [
        "port %s is held by %s" % (use["port"], use.get("command") or use.get("pid"))
        for use in procs.port_users(args.get("ports", ()))
    ]
    return found + _gpus(args.get("gpus"), float(args.get("gpu_limit_mib", 2048)))


def _shm() -> list[str]:
    try:
        return sorted(os.listdir(SHM))
    except OSError:
        return []


def _clean(args: dict[str, Any], session: Any) -> dict[str, Any]:
    """Wait until nothing of the last trial is left on the service's GPUs, ports and cgroup.

    Another service beside it is no dirt. ``shm`` lists what lies in /dev/shm and did not before.
    """
    end = time.monotonic() + float(args.get("timeout", 120.0))
    pause = 0.1
    while True:
        dirt = _dirt(args)
        if not dirt or time.monotonic() >= end or session.wait(pause):
            break
        pause = min(pause * 1.6, 3.0)
    left = [n for n in _shm() if n not in set(args.get("shm_before", ()))]
    return {"clean": not dirt, "dirt": dirt, "shm": left, "shm_all": _shm()}


def _remove(args: dict[str, Any], _session: Any) -> dict[str, Any]:
    """Take the trial service's files away, so that the host is as it was."""
    service, name = places.safe_name(args["service"]), places.safe_name(args["unit"])
    if not service.endswith("-trial"):
        raise AgentError("not-a-trial", "%s is no service of trials" % service)
    gone = []
    folder = os.path.join(places.ETC, service)
    paths = [os.path.join(places.UNITS, name)]
    if os.path.isdir(folder):
        paths += [os.path.join(folder, n) for n in sorted(os.listdir(folder))]
    for path in paths:
        try:
            os.unlink(path)
            gone.append(path)
        except OSError:
            continue
    with contextlib.suppress(OSError):
        os.rmdir(folder)
    if not patch_store.notes(service):  # nothing is applied: what is left is history of trials
        shutil.rmtree(patch_store.folder(service), ignore_errors=True)
    if gone:
        unit.reload_units()
        unit.reset_failed(name)
    return {"removed": gone}


# --- the state, so that another person or laptop can go on ---


def _path(name: str) -> str:
    return os.path.join(FOLDER, places.safe_name(name) + ".json")


def _save(args: dict[str, Any], _session: Any) -> dict[str, Any]:
    state = args["state"]
    there = records.read_object(_path(state["id"]))
    if there is not None and int(there.get("version", 0)) > int(state["version"]):
        raise AgentError(
            "bisect-moved-on",
            "somebody else went on with %s: the host has write %d, this one is %d"
            % (state["id"], there["version"], state["version"]),
            hint="--resume %s starts from what the host has" % state["id"],
            exit_code=7,
        )
    os.makedirs(FOLDER, mode=0o750, exist_ok=True)
    files.write_atomic(_path(state["id"]), json.dumps(state, indent=1) + "\n", mode=0o640)
    return {}


def _load(args: dict[str, Any], _session: Any) -> dict[str, Any]:
    return {"state": records.read_object(_path(args["id"]))}


def _list(_args: dict[str, Any], _session: Any) -> dict[str, Any]:
    try:
        names = sorted(n for n in os.listdir(FOLDER) if n.endswith(".json"))
    except OSError:
        names = []
    found = [records.read_object(os.path.join(FOLDER, n)) for n in names]
    return {"states": [s for s in found if s is not None]}


def _rows(_args: dict[str, Any], session: Any) -> dict[str, Any]:
    """Return what there is to know of each bisect of this host without its launches."""
    names = ("id", "version", "service", "by", "created_at", "taken_down")
    states = _list({}, session)["states"]
    return {"rows": [{k: s[k] for k in names} for s in states if all(k in s for k in names)]}


VERBS = {
    "hold": _hold,
    "beat": _beat,
    "end": _end,
    "clean": _clean,
    "remove": _remove,
    "save": _save,
    "load": _load,
    "list": _list,
    "rows": _rows,
}
