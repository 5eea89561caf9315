"""Everything that a plan needs to know of a host, in one answer (``fleetctl.facts/1``)."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Any

from fleetctl.remote import (
    files,
    lock,
    patch_store,
    places,
    procs,
    records,
    shell,
    threads,
    undo,
    unit,
)

# Package metadata only: importing torch would take seconds and may need a GPU.
# importlib.metadata would say the same, but its import alone takes 30 ms.
_ASK = r"""
import os, sys
def named(text):
    return text.lower().replace("-", "_").replace(".", "_")
def version(name):
    if any(entry.endswith(".egg") for entry in sys.path):
        from importlib import metadata
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return ""
    for entry in sys.path:
        try:
            found = sorted(os.listdir(entry or "."))
        except OSError:
            continue
        for folder in found:
            base, ending = os.path.splitext(folder)
            if ending in (".dist-info", ".egg-info") and named(base.partition("-")[0]) == name:
                said = stated(os.path.join(entry, folder))
                if said:
                    return said
    return ""
def stated(path):
    for file in (os.path.join(path, "METADATA"), os.path.join(path, "PKG-INFO"), path):
        try:
            with open(file, encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    if line.lower().startswith("version:"):
                        return line[8:].strip()
                    if not line.strip():
                        break
        except OSError:
            continue
    return ""
print("%d.%d.%d" % sys.version_info[:3], version("sglang"), version("torch"), sep="\n")
"""


def interpreter(path: str) -> dict[str, Any]:
    """Return the Python that runs SGLang, and the versions that its package metadata names."""
    found: dict[str, Any] = {"path": path, "exists": os.path.exists(path)}
    if not found["exists"]:
        return dict(found, error="%s is not there" % path)
    done = shell.run((path, "-I", "-c", _ASK), timeout=20.0)
    if done.rc != 0:
        said = done.err.strip().splitlines()
        return dict(found, error=said[-1] if said else "ended with status %d" % done.rc)
    said = done.out.splitlines()[-3:]
    found.update(zip(("version", "sglang", "torch"), [word or None for word in said]))
    if not found.get("sglang"):
        found["error"] = "sglang is not installed there"
    return found


def unit_facts(name: str, props: dict[str, str] | None = None) -> dict[str, Any]:
    """Return one unit by the names of ``UnitFacts``."""
    p = unit.show(name) if props is None else props
    fragment = p.get("FragmentPath", "")
    return {
        "name": name,
        "load_state": p.get("LoadState", "not-found"),
        "active_state": p.get("ActiveState", "inactive"),
        "sub_state": p.get("SubState", "dead"),
        "result": p.get("Result", "success"),
        "main_pid": _int(p.get("MainPID")),
        "exec_main_code": _int(p.get("ExecMainCode")),
        "exec_main_status": _int(p.get("ExecMainStatus")),
        "n_restarts": _int(p.get("NRestarts")),
        "invocation_id": p.get("InvocationID", ""),
        "need_daemon_reload": p.get("NeedDaemonReload") == "yes",
        "file_state": p.get("UnitFileState", ""),
        "fragment_path": fragment,
        "fragment_sha256": files.sha256(fragment) if fragment else None,
        "drop_ins": p.get("DropInPaths", "").split(),
        "active_seconds": _active_seconds(p),
        "started_at": _started_at(p),
    }


def _active_seconds(props: dict[str, str]) -> float | None:
    since = _int(props.get("ActiveEnterTimestampMonotonic"))
    if not since or props.get("ActiveState") != "active":
        return None
    return max(0.0, time.clock_gettime(time.CLOCK_MONOTONIC) - since / 1e6)


def _started_at(props: dict[str, str]) -> float | None:
    since = _int(props.get("ExecMainStartTimestampMonotonic"))
    if not since:
        return None
    return time.time() - (time.clock_gettime(time.CLOCK_MONOTONIC) - since / 1e6)


def _int(text: str | None) -> int:
    return int(text) if text and re.match(r"^-?\d+$", text) else 0


def other_services(own: str) -> list[dict[str, Any]]:
    """Return the other services of fleetctl that left a launch record here."""
    try:
        names = sorted(os.listdir(places.LAUNCHES))
    except OSError:
        return []
    return [_service(n) for n in names if n != own and records.last_launch(n)]


def _service(name: str) -> dict[str, Any]:
    launch = records.last_launch(name) or {}
    unit_name = launch.get("unit") or "sglang-%s.service" % name
    seen = unit_facts(unit_name)
    config = launch.get("config") or {}
    visible = str((config.get("env") or {}).get("CUDA_VISIBLE_DEVICES", ""))
    gpus = [int(g) for g in visible.split(",") if g.strip().isdigit()]
    return {
        "name": name,
        "unit": unit_name,
        "active_state": seen["active_state"],
        "gpus": gpus or None,
        "port": _port(config),
        "profile": config.get("profile", ""),
        "outcome": launch.get("outcome", ""),
        "active_seconds": seen["active_seconds"],
    }


def _port(config: dict[str, Any]) -> int | None:
    text = str((config.get("flags") or {}).get("port", ""))
    return int(text) if text.isdigit() else None


def _os_name() -> str:
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)', procs.read("/etc/os-release"), re.MULTILINE)
    return match.group(1) if match else ""


def _lock(service: str) -> dict[str, Any] | None:
    found = lock.living(service)
    if found is None:
        return None
    return {k: found.get(k) for k in ("who", "since", "why", "beat_seconds")}


def _free(folders: list[str]) -> dict[str, int]:
    free = {}
    for folder in folders:
        try:
            free[folder] = files.free_bytes(folder)
        except OSError:
            continue
    return free


def gather(args: dict[str, Any], _session: Any = None) -> dict[str, Any]:
    """Return the host's facts for one service. The slow parts run side by side."""
    service, name = args["service"], args["unit"]
    undo.repair(service)
    python = threads.Work(interpreter, args["python"])
    gpus = threads.Work(procs.gpus)
    version = threads.Work(unit.version)
    own = threads.Work(lambda: unit_facts(name, unit.must_show(name)))
    others = threads.Work(other_services, service)
    ports = procs.port_users(args.get("ports", ()))
    found = [files.facts(path, content=True) for path in args.get("files", ())]
    found += [files.facts(path, content=False) for path in args.get("secret_files", ())]
    system = os.uname()
    known, driver = gpus.result()
    holders = procs.gpu_processes(known) if known else []
    return {
        "service": service,
        "unit": own.result(),
        "interpreter": python.result(),
        "taken_at": records.now(),
        "hostname": system.nodename,
        "os": _os_name(),
        "kernel": system.release,
        "machine": system.machine,
        "boot_id": records.boot_id(),
        "systemd": version.result(),
        "agent_python": sys.version.split()[0],
        "root": os.geteuid() == 0,
        "driver": driver,
        "files": found,
        "ports": ports,
        "gpus": known,
        "gpu_processes": holders,
        "services": others.result(),
        "last_launch": records.last_launch(service),
        "last_ready": records.last_launch(service, ready=True),
        "patches": patch_store.active(service),
        "patch_notes": patch_store.notes(service),
        "free": _free(args.get("folders", [])),
        "lock": _lock(service),
    }


VERBS = {"gather": gather}
