"""The state of a lab on disk: one JSON file, read by everything that touches a running lab."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fleetctl.errors import UsageError
from fleetctl.lab import paths
from fleetctl.lab.spec import HostSpec

SCHEMA = "fleetctl.lab/1"


@dataclass(frozen=True, slots=True)
class Process:
    """A process that cannot be mistaken for a later one of the same number."""

    pid: int
    start: int  # clock ticks since boot, field 22 of /proc/PID/stat

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """Return the process as it runs now, or None (also for one that only waits to be reaped)."""
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        fields = text.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else cls(pid, int(fields[19]))

    def alive(self) -> bool:
        """Return whether that very process still runs."""
        return Process.of(self.pid) == self


@dataclass(frozen=True, slots=True)
class LabHost:
    """One host of a lab."""

    name: str
    engine: str
    version: str
    levers: tuple[str, ...]
    index: int
    address: str
    machine: str
    container: Process | None = None  # keeps systemd-nspawn going, whose child is PID 1

    @property
    def spec(self) -> HostSpec:
        """Return what was asked for."""
        return HostSpec(self.name, self.engine, self.version, self.levers)


@dataclass(frozen=True, slots=True)
class Lab:
    """A lab: its network, its key, its hosts."""

    name: str
    subnet: int
    owner: Process | None = None  # the lab is stale once this process is gone
    hosts: tuple[LabHost, ...] = field(default=())

    @property
    def root(self) -> Path:
        """Return the lab's folder."""
        return paths.labs() / self.name

    @property
    def key(self) -> Path:
        """Return the private key that opens root, ops and visitor on each host."""
        return self.root / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        """Return the lab's own known_hosts file."""
        return self.root / "known_hosts"

    @property
    def site(self) -> Path:
        """Return the generated site: inventory and profiles for this lab."""
        return self.root / "site"

    def folder(self, host: LabHost) -> Path:
        """Return the host's folder: upper and work layers, console log, mount point."""
        return self.root / "hosts" / host.name

    def host(self, name: str) -> LabHost:
        """Return the host of that name; raise UsageError ``unknown-host``."""
        for host in self.hosts:
            if host.name == name:
                return host
        known = ", ".join(h.name for h in self.hosts) or "none"
        raise UsageError(
            "unknown-host", f"lab {self.name} has no host {name}", hint=f"it has {known}"
        )

    def with_host(self, changed: LabHost) -> Lab:
        """Return the lab with one host added or replaced."""
        rest = [h for h in self.hosts if h.name != changed.name]
        return replace(self, hosts=tuple(sorted([*rest, changed], key=lambda h: h.index)))

    def save(self) -> None:
        """Write the state file at once."""
        self.root.mkdir(parents=True, exist_ok=True)
        fresh = self.root / f".lab.json.{os.getpid()}"
        fresh.write_text(json.dumps({"schema": SCHEMA} | asdict(self), indent=1) + "\n")
        fresh.rename(self.root / "lab.json")


def load(name: str) -> Lab | None:
    """Return the lab of that name as last saved, or None."""
    try:
        raw = json.loads((paths.labs() / name / "lab.json").read_text())
    except (OSError, ValueError):
        return None
    return Lab(
        name=raw["name"],
        subnet=raw["subnet"],
        owner=_process(raw["owner"]),
        hosts=tuple(
            LabHost(**h | {"levers": tuple(h["levers"]), "container": _process(h["container"])})
            for h in raw["hosts"]
        ),
    )


def _process(raw: dict[str, Any] | None) -> Process | None:
    return Process(**raw) if raw else None


def load_all() -> list[Lab]:
    """Return every lab of this computer, by name."""
    root = paths.labs()
    names = sorted(p.parent.name for p in root.glob("*/lab.json")) if root.is_dir() else []
    return [lab for lab in map(load, names) if lab]


def require(name: str) -> Lab:
    """Return the lab of that name; raise UsageError ``no-lab``."""
    lab = load(name)
    if lab is None:
        others = ", ".join(one.name for one in load_all())
        raise UsageError(
            "no-lab",
            f"there is no lab named {name}",
            hint=f"labs up now: {others}"
            if others
            else "start one: fleetctl lab up --host lab-01=replay",
        )
    return lab
