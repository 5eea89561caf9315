"""Hosts, services and profiles as the rest of the program sees them: already merged and checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Scalar = str | int | float | bool
FlagValue = Scalar | tuple[Scalar, ...] | dict[str, Any]


@dataclass(frozen=True, slots=True)
class Service:
    """One server on one host: the scope of locks, launches, patches, evidence and incidents."""

    name: str = "main"
    port: int = 30000
    gpus: tuple[int, ...] | None = None  # None: every GPU of the host

    @property
    def unit(self) -> str:
        """Return the systemd unit's name."""
        return f"sglang-{self.name}.service"


@dataclass(frozen=True, slots=True)
class Host:
    """A machine of the inventory with its connection settings."""

    name: str
    address: str
    user: str | None = None
    port: int | None = None
    key: str | None = None
    jump: str | None = None
    via: Host | None = None  # the inventory's own entry for ``jump``, where it has one
    become: str | None = None  # None or "sudo"
    groups: tuple[str, ...] = ()
    protected: bool = False
    gpus: int = 0
    services: tuple[Service, ...] = (Service(),)
    transport: str = "ssh"  # ssh | local
    known_hosts: str | None = None
    python: str = "python3"  # runs the agent; SGLang's own interpreter is the profile's
    env: tuple[tuple[str, str | None], ...] = ()  # None: takes the profile's away
    flags: tuple[tuple[str, Any], ...] = ()

    def service(self, name: str) -> Service | None:
        """Return the service of that name, or None."""
        return next((s for s in self.services if s.name == name), None)


@dataclass(frozen=True, slots=True)
class Target:
    """What a selector picks: one service on one host."""

    host: Host
    service: Service

    def __str__(self) -> str:
        return f"{self.host.name}/{self.service.name}"


@dataclass(frozen=True, slots=True)
class SecretRef:
    """Where a secret comes from; never the secret itself."""

    kind: str  # env | file | command
    value: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value of a merged profile was written: ``file:line:col``, or an option of the command line."""

    where: str
    profile: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """A launch, merged through ``extends``: what should run, not yet where.

    ``flags`` holds SGLang's spelling without the dashes. True means a bare switch; an inherited
    flag that was taken away is not in it. Scalars keep the text that was written ("0.80").
    """

    name: str
    model: str
    flags: dict[str, FlagValue] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    secret_flags: dict[str, SecretRef] = field(default_factory=dict)
    secret_env: dict[str, SecretRef] = field(default_factory=dict)
    python: str = "/opt/sglang/.venv/bin/python"
    schema: str = "installed"  # installed | a version | a schema file (forks)
    runtime: str = "systemd"
    unit: dict[str, Any] = field(default_factory=dict)
    diag: tuple[str, ...] = ()  # named diagnostic options: request-dumps, cuda-coredumps …
    nodes: int = 1
    patches: tuple[str, ...] = ()
    origins: dict[str, Origin] = field(default_factory=dict)  # "flags.tp-size" → where
