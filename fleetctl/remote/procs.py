"""Processes of a unit, their signs of life, and who listens on a port."""

from __future__ import annotations

import os
import re
from typing import Any, Iterable

from fleetctl.remote import shell, sockets

_TICK = float(os.sysconf("SC_CLK_TCK"))
_UNIT = re.compile(r"/([^/\n]+\.(?:service|scope))(?:/|$)", re.MULTILINE)
_HIERARCHIES = ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified")


def read(path: str) -> str:
    """Return a small file of /proc, or "" when the process is gone."""
    try:
        with open(path, "rb") as file:
            return file.read(65536).decode("utf-8", "replace")
    except OSError:
        return ""


def of_cgroup(group: str, main_pid: int = 0) -> list[int]:
    """Return the processes of a unit by its ControlGroup, or the tree under its main process."""
    for root in _HIERARCHIES if group else ():
        text = read(root + group + "/cgroup.procs")
        if text:
            return [int(p) for p in text.split()]
    return _tree(main_pid) if main_pid else []


def _tree(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid in all_pids():
        children.setdefault(_stat(pid)[0], []).append(pid)
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found


def all_pids() -> Iterable[int]:
    """Yield every process id of the host."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _stat(pid: int) -> tuple[int, float]:
    """Return the parent and the CPU seconds used of one process."""
    fields = read("/proc/%d/stat" % pid).rpartition(")")[2].split()
    if len(fields) < 13:
        return (0, 0.0)
    return (int(fields[1]), (int(fields[11]) + int(fields[12])) / _TICK)


def life(pids: Iterable[int], gpu: dict[int, int] | None = None) -> dict[str, Any]:
    """Return what the processes used so far: CPU seconds, bytes read from disks, GPU bytes held."""
    cpu, disk, memory, count = 0.0, 0, 0, 0
    for pid in pids:
        count += 1
        cpu += _stat(pid)[1]
        match = re.search(r"^read_bytes: (\d+)$", read("/proc/%d/io" % pid), re.MULTILINE)
        disk += int(match.group(1)) if match else 0
        memory += (gpu or {}).get(pid, 0)
    return {"cpu_seconds": cpu, "read_bytes": disk, "gpu_bytes": memory, "processes": count}


def unit_of(pid: int) -> str:
    """Return the systemd unit that a process belongs to, or ""; below a user's own manager that manager's."""
    names = _UNIT.findall(read("/proc/%d/cgroup" % pid))
    services = [n for n in names if n.endswith(".service")]
    managers = [n for n in names if n.startswith("user@")]
    return str((managers or services or names or [""])[-1])


def command_of(pid: int) -> str:
    """Return the command line of a process, at most 200 characters."""
    text = read("/proc/%d/cmdline" % pid).replace("\0", " ").strip()
    return (text or read("/proc/%d/comm" % pid).strip())[:200]


# --- listening ports ---


def listeners(ports: Iterable[int]) -> dict[int, set[str]]:
    """Return the socket inodes that listen on each of the ports, IPv4 and IPv6."""
    wanted = set(ports)
    found: dict[int, set[str]] = {}
    for port, inode in sockets.listening() if wanted else ():
        if port in wanted:
            found.setdefault(port, set()).add(inode)
    return found


def socket_holder(inodes: set[str], pids: Iterable[int]) -> int:
    """Return the first process that has one of the sockets open, 0 when none is seen."""
    names = {"socket:[%s]" % inode for inode in inodes}
    for pid in pids:
        folder = "/proc/%d/fd" % pid
        try:
            handles = os.listdir(folder)
        except OSError:
            continue
        for handle in handles:
            try:
                if os.readlink(folder + "/" + handle) in names:
                    return pid
            except OSError:
                continue
    return 0


def port_users(ports: Iterable[int]) -> list[dict[str, Any]]:
    """Return who listens on each port that is taken: pid, unit, command."""
    users = []
    for port, inodes in sorted(listeners(ports).items()):
        pid = socket_holder(inodes, all_pids())
        users.append({
            "port": port,
            "pid": pid,
            "unit": unit_of(pid) if pid else "",
            "command": command_of(pid) if pid else "",
        })  # fmt: skip
    return users


# --- GPUs ---


def _smi(query: str) -> list[list[str]]:
    if not shell.which("nvidia-smi"):
        return []
    done = shell.run(("nvidia-smi", query, "--format=csv,noheader,nounits"), timeout=10.0)
    if done.rc != 0:
        return []
    return [[f.strip() for f in line.split(",")] for line in done.out.splitlines() if line.strip()]


def _mib(text: str) -> int:
    return int(float(text)) * 1024 * 1024 if re.match(r"^\d+(\.\d+)?$", text) else 0


def gpus() -> tuple[list[dict[str, Any]], str | None]:
    """Return the GPUs as the driver numbers them, and the driver's version; empty without nvidia-smi."""
    rows = _smi("--query-gpu=index,uuid,name,memory.total,memory.used,driver_version")
    found = [
        {
            "index": int(row[0]),
            "uuid": row[1],
            "name": row[2],
            "memory_total": _mib(row[3]),
            "memory_used": _mib(row[4]),
        }
        for row in rows
        if len(row) == 6 and row[0].isdigit()
    ]
    return found, (rows[0][5] if found else None)


def gpu_processes(known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the compute processes: gpu, pid, memory, unit, command."""
    index = {gpu["uuid"]: gpu["index"] for gpu in known}
    found = []
    for row in _smi("--query-compute-apps=gpu_uuid,pid,used_memory"):
        if len(row) == 3 and row[1].isdigit():
            pid = int(row[1])
            found.append({
                "gpu": index.get(row[0], -1),
                "pid": pid,
                "memory": _mib(row[2]),
                "unit": unit_of(pid),
                "command": command_of(pid),
            })  # fmt: skip
    return found


def gpu_bytes() -> dict[int, int]:
    """Return the GPU memory that each process holds, in bytes."""
    held: dict[int, int] = {}
    for row in _smi("--query-compute-apps=gpu_uuid,pid,used_memory"):
        if len(row) == 3 and row[1].isdigit():
            held[int(row[1])] = held.get(int(row[1]), 0) + _mib(row[2])
    return held


def local_address(text: str) -> str:
    """Return the address to ask on the host itself for a server that was bound to ``text``."""
    if text in ("", "0.0.0.0", "*"):  # noqa: S104  compared, not bound
        return "127.0.0.1"
    return "::1" if text == "::" else text
