"""What a host said of itself before a plan is made. Sizes are bytes, durations seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fleetctl.model.codec import decode
from fleetctl.model.launch import LaunchRecord

SCHEMA = "fleetctl.facts/1"


@dataclass(frozen=True, slots=True)
class FactsRequest:
    """What to look at on the host, so that one exec answers everything."""

    service: str
    unit: str
    python: str  # the interpreter of the profile: whose sglang and torch count
    files: tuple[str, ...] = ()  # the plan may write these; contents wanted
    secret_files: tuple[str, ...] = ()  # hash, mode and owner only; the content stays there
    ports: tuple[int, ...] = ()
    folders: tuple[str, ...] = ("/etc", "/var/lib", "/run")  # free space of each

    def to_json(self) -> dict[str, Any]:
        """Return the arguments of the agent's verb."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python that runs SGLang there. ``error`` says why a version is unknown."""

    path: str
    exists: bool = True
    version: str | None = None
    sglang: str | None = None
    torch: str | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """``systemctl show`` of one unit, by systemd's own property names."""

    name: str
    load_state: str = "not-found"  # loaded, not-found, masked, bad-setting …
    active_state: str = "inactive"
    sub_state: str = "dead"
    result: str = "success"
    main_pid: int = 0
    exec_main_code: int = 0
    exec_main_status: int = 0
    n_restarts: int = 0
    invocation_id: str = ""
    need_daemon_reload: bool = False
    file_state: str = ""  # enabled, disabled, static …; empty where there is no file
    fragment_path: str = ""
    fragment_sha256: str | None = None
    drop_ins: tuple[str, ...] = ()
    active_seconds: float | None = None  # since it became active

    @property
    def active(self) -> bool:
        """Return whether the unit runs: active, not starting, stopping or waiting to restart."""
        return self.active_state == "active"

    @property
    def alive(self) -> bool:
        """Return whether systemd would have to stop something: also while starting or looping."""
        return self.active_state in ("active", "activating", "deactivating", "reloading")


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One file that the plan may write. ``content`` is None for secrets and for absent files."""

    path: str
    exists: bool = False
    sha256: str | None = None
    size: int = 0
    mode: int = 0  # permission bits
    owner: str = ""  # "user:group"
    content: str | None = None


@dataclass(frozen=True, slots=True)
class PortUse:
    """A listening TCP port and who holds it; pid 0 and no unit when the host would not say."""

    port: int
    pid: int = 0
    unit: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as the driver numbers it."""

    index: int
    uuid: str = ""
    name: str = ""
    memory_total: int = 0
    memory_used: int = 0


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds memory on a GPU."""

    gpu: int
    pid: int
    memory: int = 0
    unit: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """A service of fleetctl that is installed on the host, from its last launch record and its unit."""

    name: str
    unit: str
    active_state: str = "inactive"
    gpus: tuple[int, ...] | None = None  # None: all of the host's
    port: int | None = None
    profile: str = ""
    outcome: str = ""  # of its last launch: ready, crashed …
    active_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class LockFacts:
    """Who holds the lock of this host and service."""

    who: str
    since: str
    why: str = ""
    beat_seconds: float | None = None  # age of the heartbeat


@dataclass(frozen=True, slots=True)
class PatchNote:
    """A diagnostic patch that is applied for the service: who put it there, and until when."""

    name: str
    digest: str = ""
    rung: str = ""
    by: str = ""
    expires_at: str = ""
    expired: bool = False
    orphaned: tuple[str, ...] = ()  # its files that changed since: the package was upgraded
    python: str = ""  # the interpreter whose package it is in
    problem: str = ""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """One look at a host, for one service."""

    host: str
    service: str
    unit: UnitFacts
    interpreter: Interpreter
    taken_at: str = ""
    hostname: str = ""
    os: str = ""
    kernel: str = ""
    machine: str = ""
    boot_id: str = ""
    systemd: int | None = None  # major version; None: systemd is not PID 1 there
    agent_python: str = ""
    root: bool = True  # whether the agent may write /etc
    driver: str | None = None
    files: tuple[FileFacts, ...] = ()
    ports: tuple[PortUse, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    gpu_processes: tuple[GpuProcess, ...] = ()
    services: tuple[ServiceFacts, ...] = ()  # others than this one
    last_launch: LaunchRecord | None = None
    last_ready: LaunchRecord | None = None  # the newest launch that became ready
    patches: dict[str, str] = field(default_factory=dict)  # active ones: name → sha256
    patch_notes: tuple[PatchNote, ...] = ()
    free: dict[str, int] = field(default_factory=dict)  # folder → bytes
    lock: LockFacts | None = None

    def file(self, path: str) -> FileFacts:
        """Return what is known of a path; one that was not asked for counts as absent."""
        return next((f for f in self.files if f.path == path), FileFacts(path))

    def to_json(self) -> dict[str, Any]:
        """Return the object that travels and is stored."""
        return {"schema": SCHEMA} | asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> HostFacts:
        """Return the facts from the agent's answer; unknown fields are passed over."""
        return decode(cls, value)
