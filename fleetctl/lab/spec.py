"""What a lab should be: hosts with their engines, as written on the command line. Pure."""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection
from dataclasses import dataclass

from fleetctl.errors import UsageError

ENGINES = ("bare", "replay", "sglang")
VERSIONS = ("0.5.10", "0.5.12.post1", "0.5.15", "0.5.23")
DEFAULT_VERSION = "0.5.12.post1"
LEVERS = {"graphcopy": ("0.5.10", "0.5.12.post1", "0.5.15")}  # and the releases whose code they fit
MAX_HOSTS = 200
SUBNETS = 250

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,40}[a-z0-9])?")
_VERSION = re.compile(r"\d+(?:\.\d+)+(?:\.?(?:post|rc|dev)\d+)?")


@dataclass(frozen=True, slots=True)
class HostSpec:
    """One host of a lab.

    Engine ``bare`` has no SGLang, ``replay`` replays recordings, ``sglang`` runs the real server
    on the CPU.
    """

    name: str
    engine: str = "bare"
    version: str = ""
    levers: tuple[str, ...] = ()

    def __str__(self) -> str:
        engine = f"{self.engine}:{self.version}" if self.version else self.engine
        return f"{self.name}={engine}" + "".join(f"+{lever}" for lever in self.levers)


def parse_host(text: str) -> HostSpec:
    """Return the host of ``NAME[=ENGINE[:VERSION][+LEVER…]]``; raise UsageError naming what is wrong."""
    name, _, rest = text.partition("=")
    check_name(name, "host")
    engine, *levers = rest.split("+") if rest else ["bare"]
    engine, _, version = engine.partition(":")
    if engine not in ENGINES:
        raise UsageError(
            "unknown-engine",
            f"{engine!r} is no engine of the lab",
            where=f"--host {text}",
            hint=f"engines are {', '.join(ENGINES)}; for example lab-01=sglang:{DEFAULT_VERSION}",
        )
    if engine == "bare" and version:
        raise UsageError("unknown-engine", "a bare host has no version", where=f"--host {text}")
    for lever in levers:
        if lever not in LEVERS or engine != "sglang":
            raise UsageError(
                "unknown-lever",
                f"{lever!r} is no lever of engine {engine}",
                where=f"--host {text}",
                hint=f"levers of engine sglang are {', '.join(LEVERS)}",
            )
    release = _version(engine, version, text)
    for lever in levers:
        if release not in LEVERS[lever]:
            raise UsageError(
                "unknown-lever",
                f"lever {lever} does not fit SGLang {release}",
                where=f"--host {text}",
                hint=f"it fits {', '.join(LEVERS[lever])}",
            )
    return HostSpec(name, engine, release, tuple(levers))


def _version(engine: str, version: str, text: str) -> str:
    if engine == "bare":
        return ""
    if not version:
        return DEFAULT_VERSION
    if not _VERSION.fullmatch(version) or version not in VERSIONS:
        raise UsageError(
            "unknown-version",
            f"the lab has no SGLang {version}",
            where=f"--host {text}",
            hint=f"versions are {', '.join(VERSIONS)}",
        )
    return version


def parse_hosts(texts: Collection[str]) -> tuple[HostSpec, ...]:
    """Return all hosts in the order given; raise UsageError for a name given twice or too many."""
    specs = tuple(parse_host(text) for text in texts)
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise UsageError("duplicate-host", f"host {name} is given twice", where="--host")
    if len(specs) > MAX_HOSTS:
        raise UsageError("too-many-hosts", f"a lab has at most {MAX_HOSTS} hosts", where="--host")
    return specs


def check_name(name: str, kind: str) -> None:
    """Raise UsageError unless the name can be a host name (RFC 1123 label in lower case)."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            "bad-name",
            f"{name!r} cannot be the name of a {kind}",
            hint="use lower-case letters, digits and hyphens, at most 42",
        )


def choose_subnet(lab: str, taken: Collection[int]) -> int:
    """Return a number 1…250 for 10.77.N.0/24: the lab's own by its name, else the next free one."""
    start = zlib.crc32(lab.encode()) % SUBNETS
    for step in range(SUBNETS):
        number = (start + step) % SUBNETS + 1
        if number not in taken:
            return number
    raise UsageError(
        "no-subnet", f"all {SUBNETS} lab networks are in use", hint="fleetctl lab down --stale"
    )


def address(subnet: int, index: int) -> str:
    """Return the address of host number ``index`` (0 is the first) in a lab's network."""
    return f"10.77.{subnet}.{11 + index}"


def gateway(subnet: int) -> str:
    """Return the address of the bridge."""
    return f"10.77.{subnet}.1"


def bridge(subnet: int) -> str:
    """Return the name of the lab's bridge."""
    return f"fclab{subnet}"


def machine(subnet: int, index: int) -> str:
    """Return a machine name that is unique on this computer and short enough for an interface name."""
    return f"fl{subnet}-{index}"


def parse_size(text: str) -> int:
    """Return bytes of ``64k``, ``10M``, ``2G`` or a plain number; raise UsageError."""
    match = re.fullmatch(r"(\d+)([kmgKMG]?)", text)
    if not match:
        raise UsageError("bad-size", f"{text!r} is no size", hint="write it like 64k, 10M or 2G")
    unit = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[match[2].lower()]
    return int(match[1]) * unit
