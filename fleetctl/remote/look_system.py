"""What a doctor looks at in the operating system of a host: nothing is changed, nothing waits long."""

from __future__ import annotations

import glob
import os
import re
import socket
import threading
import time
from typing import Any

from fleetctl.remote import procs, records, shell, unit

KERNEL_LINES = 200
LOG_PATTERN = r"NVRM: Xid|Out of memory: Killed process|Memory cgroup out of memory"
_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([KMGT]?)B?$")


def systemd() -> dict[str, Any]:
    """Return systemd's version, state, and the units that failed; version None where it is not PID 1."""
    if not os.path.isdir("/run/systemd/system"):
        return {"version": None, "state": "", "failed": []}
    match = re.search(r"systemd (\d+)", unit.systemctl("--version").out)
    state = unit.systemctl("is-system-running", timeout=5.0).out.strip()
    listed = unit.systemctl("list-units", "--failed", "--plain", "--no-legend", timeout=5.0).out
    failed = [line.split()[0] for line in listed.splitlines() if line.strip()]
    return {"version": int(match.group(1)) if match else None, "state": state, "failed": failed}


def names() -> dict[str, Any]:
    """Return how long the host takes to find its own name: gloo and c10d look it up again and again."""
    name = socket.gethostname()
    found: dict[str, Any] = {"hostname": name, "address": None, "seconds": None}

    def look() -> None:
        begun = time.monotonic()
        try:
            found["address"] = socket.getaddrinfo(name, None)[0][4][0]
        except OSError as error:
            found["error"] = str(error)
        found["seconds"] = round(time.monotonic() - begun, 3)

    thread = threading.Thread(target=look, daemon=True)  # a resolver without an answer takes 10 s
    thread.start()
    thread.join(1.2)
    return dict(found)


def kernel() -> dict[str, Any]:
    """Return kernel settings that decide over dumps, ports and tracing."""
    low, high = (
        int(n) for n in procs.read("/proc/sys/net/ipv4/ip_local_port_range").split() or (0, 0)
    )
    scope = procs.read("/proc/sys/kernel/yama/ptrace_scope").strip()
    pattern = procs.read("/proc/sys/kernel/core_pattern").strip()
    program = pattern[1:].split()[0] if pattern.startswith("|") and len(pattern) > 1 else ""
    return {
        "os": _os_name(),
        "release": os.uname().release,
        "machine": os.uname().machine,
        "ephemeral": [low, high],
        "reserved": procs.read("/proc/sys/net/ipv4/ip_local_reserved_ports").strip(),
        "ptrace_scope": int(scope) if scope.isdigit() else None,
        "core_pattern": pattern,
        "core_program": bool(program) and os.path.exists(program) if program else None,
        "numa_nodes": len(glob.glob("/sys/devices/system/node/node[0-9]*")),
        "numa_balancing": procs.read("/proc/sys/kernel/numa_balancing").strip() or None,
        "hugepages": _meminfo().get("HugePages_Total", 0),
    }


def memory() -> dict[str, Any]:
    """Return main memory and /dev/shm in bytes."""
    info = _meminfo()
    found = {"total": info.get("MemTotal", 0), "available": info.get("MemAvailable", 0)}
    found["cpus"] = os.cpu_count() or 0
    return dict(found, shm=mount("/dev/shm"))  # noqa: S108


def _meminfo() -> dict[str, int]:
    pairs = re.findall(r"^(\w+):\s+(\d+)( kB)?$", procs.read("/proc/meminfo"), re.MULTILINE)
    return {name: int(number) * (1024 if unit_ else 1) for name, number, unit_ in pairs}


def mount(path: str) -> dict[str, Any]:
    """Return space and inodes of the file system that a path lies on, by its nearest parent that exists."""
    real = path
    while not os.path.exists(real) and real != "/":
        real = os.path.dirname(real)
    try:
        v = os.statvfs(real)
    except OSError as error:
        return {"path": path, "error": error.strerror}
    return {
        "path": path,
        "exists": real == path,
        "total": v.f_blocks * v.f_frsize,
        "free": v.f_bavail * v.f_frsize,
        "inodes": v.f_files,
        "inodes_free": v.f_favail,
        "read_only": bool(v.f_flag & os.ST_RDONLY),
    }


def journal() -> dict[str, Any]:
    """Return where the journal is kept, how much it takes, and journald's own limits."""
    text = shell.run(("systemd-analyze", "cat-config", "systemd/journald.conf"), 5.0).out
    settings = dict(re.findall(r"^(\w+)=(\S*)", text, re.MULTILINE))
    used = 0
    for folder in ("/var/log/journal", "/run/log/journal"):
        for path in glob.glob(folder + "/*/*.journal*"):
            try:
                used += os.stat(path).st_blocks * 512
            except OSError:
                continue
    # An empty folder is left when storage was changed to volatile: only files count.
    return {
        "storage": settings.get("Storage", "auto").lower(),
        "persistent": bool(glob.glob("/var/log/journal/*/system.journal")),
        "used": used,
        "settings": settings,
    }


def kernel_log() -> dict[str, Any]:
    """Return this boot's lines about Xids and about processes killed for memory."""
    done = shell.run(
        ("journalctl", "-k", "-b", "-q", "--no-pager", "-o", "short-iso", "-g", LOG_PATTERN), 8.0
    )
    if done.rc not in (0, 1) or "not supported" in done.err:
        done = shell.run(("dmesg", "--time-format", "iso"), 5.0)
    lines = [line for line in done.out.splitlines() if re.search(LOG_PATTERN, line)]
    return {"readable": done.rc in (0, 1), "lines": [line[:400] for line in lines[-KERNEL_LINES:]]}


def leftovers() -> list[dict[str, Any]]:
    """Return SGLang's own processes that no unit holds: they keep ports and GPU memory."""
    found = []
    for pid in procs.all_pids():
        command = procs.command_of(pid)
        if not command.startswith("sglang::") and "sglang.launch_server" not in command:
            continue
        owner = procs.unit_of(pid)
        if not owner.startswith("sglang-"):
            found.append({"pid": pid, "unit": owner, "command": command})
    return found


def ports(wanted: list[int]) -> list[dict[str, Any]]:
    """Return who listens on the ports of a service."""
    return procs.port_users(wanted)


def clock() -> dict[str, Any]:
    """Return the host's time (seconds since 1970) and its boot."""
    uptime = procs.read("/proc/uptime").split()
    return {
        "now": time.time(),
        "boot_id": records.boot_id(),
        "uptime": float(uptime[0]) if uptime else None,
        "root": os.geteuid() == 0,
    }


def _os_name() -> str:
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)', procs.read("/etc/os-release"), re.MULTILINE)
    return match.group(1) if match else ""
