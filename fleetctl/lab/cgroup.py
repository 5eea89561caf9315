"""A control group for each host, so that two hosts never share a unit's group.

Written for cgroup v1 and hybrid, where it was tested. On a computer that systemd itself booted,
the container is started through ``systemd-run --scope`` with delegation; that way is untested.
"""

from __future__ import annotations

import os
from pathlib import Path

from fleetctl.lab import shell

ROOT = Path("/sys/fs/cgroup")
PARENT = "fleetctl-lab"


def hierarchies() -> list[Path]:
    """Return the hierarchies that need a group of the host's own."""
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    return [ROOT / name for name in ("systemd", "unified", "memory") if (ROOT / name).is_dir()]


def booted_with_systemd() -> bool:
    """Return whether systemd is PID 1 of this computer."""
    return Path("/run/systemd/system").is_dir()


def prefix(machine: str) -> list[str]:
    """Return the words before the container's command that put it in a group of its own."""
    if booted_with_systemd():
        scope = ["systemd-run", "--scope", "--quiet", "--collect", "--property=Delegate=yes"]
        return [*scope, f"--unit=fleetctl-lab-{machine}"]
    groups = [str(h / PARENT / machine) for h in hierarchies()]
    script = (
        'for g in $0; do mkdir -p "$g" && echo $$ > "$g/cgroup.procs" || exit 1; done; exec "$@"'
    )
    return ["/bin/sh", "-c", script, " ".join(groups)]


def members(machine: str) -> list[int]:
    """Return the processes that are still in the host's groups, its children's groups included."""
    found: set[int] = set()
    for base in hierarchies():
        for procs in (base / PARENT / machine).rglob("cgroup.procs"):
            try:
                found |= {int(pid) for pid in procs.read_text().split()}
            except OSError:
                continue
    return sorted(found - {0, os.getpid()})


def remove(machine: str) -> None:
    """Remove the host's groups, deepest first."""
    for base in hierarchies():
        top = base / PARENT / machine
        below = sorted((p for p in top.rglob("*") if p.is_dir()), reverse=True)
        for group in [*below, top]:
            try:
                group.rmdir()
            except OSError:
                continue


def limit_memory(machine: str, size: int | None) -> None:
    """Limit the whole host's memory to ``size`` bytes, None for no limit; the kernel kills above it."""
    if (ROOT / "cgroup.controllers").exists():
        file, none = ROOT / PARENT / machine / "memory.max", "max"
    else:
        file, none = ROOT / "memory" / PARENT / machine / "memory.limit_in_bytes", "-1"
    try:
        file.write_text(none if size is None else str(size))
    except OSError as error:
        raise shell.failed("limiting the host's memory", str(error)) from error
