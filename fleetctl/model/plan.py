"""A plan as data: what ``--dry-run`` prints is the object that the agent carries out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from fleetctl.model.codec import decode
from fleetctl.model.launch import Atom, brief

SCHEMA = "fleetctl.plan/1"
MASK = "********"


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Put a file there atomically; missing parent folders are made with mode 0755."""

    kind: ClassVar[str] = "write-file"
    path: str
    content: str
    mode: int = 0o644
    owner: str = "root:root"
    secret: bool = False
    before: str | None = None  # sha256 of what the plan saw there; None: nothing

    def describe(self) -> str:
        """Return the line for a person."""
        verb = "create" if self.before is None else "update"
        return f"{verb} {self.path} ({self.mode:04o}{', secret' if self.secret else ''})"


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """Take a file away; it is no fault when it is gone already."""

    kind: ClassVar[str] = "remove-file"
    path: str
    before: str | None = None

    def describe(self) -> str:
        """Return the line for a person."""
        return f"remove {self.path}"


@dataclass(frozen=True, slots=True)
class VerifyUnit:
    """Run ``systemd-analyze verify`` on this text under the unit's name, before it is installed."""

    kind: ClassVar[str] = "verify-unit"
    unit: str
    content: str

    def describe(self) -> str:
        """Return the line for a person."""
        return f"verify {self.unit} with systemd-analyze"


@dataclass(frozen=True, slots=True)
class DaemonReload:
    """Make systemd read its unit files again."""

    kind: ClassVar[str] = "daemon-reload"

    def describe(self) -> str:
        """Return the line for a person."""
        return "systemctl daemon-reload"


@dataclass(frozen=True, slots=True)
class StopUnit:
    """Stop a unit on purpose. The wish is written down first: its end is then no crash."""

    kind: ClassVar[str] = "stop-unit"
    unit: str
    reason: str = ""
    timeout: float = 210.0  # seconds: longer than the default stop of a unit

    def describe(self) -> str:
        """Return the line for a person."""
        return f"systemctl stop {self.unit}" + (f" ({self.reason})" if self.reason else "")


@dataclass(frozen=True, slots=True)
class ResetFailed:
    """Forget the failed state and the start counter of a unit."""

    kind: ClassVar[str] = "reset-failed"
    unit: str

    def describe(self) -> str:
        """Return the line for a person."""
        return f"systemctl reset-failed {self.unit}"


@dataclass(frozen=True, slots=True)
class EnableUnit:
    """Have the unit started at boot."""

    kind: ClassVar[str] = "enable-unit"
    unit: str

    def describe(self) -> str:
        """Return the line for a person."""
        return f"systemctl enable {self.unit}"


@dataclass(frozen=True, slots=True)
class StartUnit:
    """Start a unit that does not run."""

    kind: ClassVar[str] = "start-unit"
    unit: str

    def describe(self) -> str:
        """Return the line for a person."""
        return f"systemctl start {self.unit}"


@dataclass(frozen=True, slots=True)
class RestartUnit:
    """Restart a unit; the stop that this needs was asked for and is no crash."""

    kind: ClassVar[str] = "restart-unit"
    unit: str
    timeout: float = 210.0  # seconds for the stop

    def describe(self) -> str:
        """Return the line for a person."""
        return f"systemctl restart {self.unit}"


@dataclass(frozen=True, slots=True)
class WaitReady:
    """Watch the new invocation until it is ready or has failed."""

    kind: ClassVar[str] = "wait-ready"
    unit: str
    port: int
    model: str
    served_name: str | None = None
    sglang: str | None = None  # the version decides the endpoint
    skip_warmup: bool = False

    def describe(self) -> str:
        """Return the line for a person."""
        return f"wait for {self.unit} to be ready on port {self.port}"


Step = (
    WriteFile
    | RemoveFile
    | VerifyUnit
    | DaemonReload
    | StopUnit
    | ResetFailed
    | EnableUnit
    | StartUnit
    | RestartUnit
    | WaitReady
)
KINDS: dict[str, type[Step]] = {
    c.kind: c
    for c in (
        WriteFile,
        RemoveFile,
        VerifyUnit,
        DaemonReload,
        StopUnit,
        ResetFailed,
        EnableUnit,
        StartUnit,
        RestartUnit,
        WaitReady,
    )
}


def step_to_json(step: Step, *, masked: bool = False) -> dict[str, Any]:
    """Return ``{"do": kind, …fields}``; ``masked`` hides the content of secret files for printing."""
    body = {"do": step.kind} | asdict(step)
    if masked and isinstance(step, WriteFile) and step.secret:
        body["content"] = MASK
    return body


def step_from_json(value: Mapping[str, Any]) -> Step:
    """Return the step; ValueError for one that this version does not know."""
    cls = KINDS.get(str(value.get("do")))
    if cls is None:
        raise ValueError(f"unknown step {value.get('do')!r}")
    return decode(cls, value)


@dataclass(frozen=True, slots=True)
class Holder:
    """Something else that holds GPUs or the port that this launch needs."""

    unit: str  # "" for a process outside any service unit
    pid: int = 0
    command: str = ""
    gpus: tuple[int, ...] = ()
    memory: int = 0  # bytes on those GPUs
    port: int | None = None
    service: str = ""  # a service of fleetctl
    state: str = ""  # READY, active, activating …
    seconds: float | None = None  # for how long

    def describe(self) -> str:
        """Return ``sglang-old, READY for 3 d, holds GPU 0-3 and port 30000``."""
        name = self.unit.removesuffix(".service") or f"process {self.pid} ({self.command})"
        held = []
        if self.gpus:
            held.append(f"GPU {ranges(self.gpus)}")
        if self.port is not None:
            held.append(f"port {self.port}")
        state = f", {self.state}" if self.state else ""
        if self.state and self.seconds is not None:
            state += f" for {span(self.seconds)}"
        return f"{name}{state}, holds {' and '.join(held)}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A guard that says no, with the option that overrides it ("" when none does)."""

    reference: str
    message: str
    hint: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class FileDiff:
    """A unified diff of one file, secrets masked."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What one deploy or stop would do on one host, and what speaks against it."""

    host: str
    service: str
    unit: str
    verb: str = "deploy"  # deploy | stop
    steps: tuple[Step, ...] = ()
    changed: tuple[Atom, ...] = ()  # against the last launch
    first: bool = False  # no launch before this one
    holders: tuple[Holder, ...] = ()  # what else holds the GPUs or the port
    stops: tuple[Holder, ...] = ()  # those of them that the steps stop
    refusals: tuple[Refusal, ...] = ()
    diffs: tuple[FileDiff, ...] = ()
    unchanged: bool = False  # same configuration as the last launch, same files
    interrupts: bool = False  # a serving unit goes down for it
    warnings: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to do."""
        return not self.steps

    def summary(self) -> str:
        """Return what is new against the last launch: ``2 atoms: +enable-nccl-nvls, …``."""
        if self.verb == "stop":
            return "stop"
        if self.first:
            return "first launch"
        if not self.changed:
            return "0 atoms: same configuration as the last launch"
        count = f"{len(self.changed)} atom{'s' if len(self.changed) > 1 else ''}"
        return f"{count}: " + ", ".join(brief(a) for a in self.changed)

    def describe(self) -> list[str]:
        """Return the plan as lines for a person."""
        lines = [f"{self.host}/{self.service}: {self.summary()}"]
        lines += [f"  stops {h.describe()}" for h in self.stops]
        lines += [f"  warning: {w}" for w in self.warnings]
        lines += [f"  {n}. {s.describe()}" for n, s in enumerate(self.steps, 1)]
        if self.empty:
            why = "unchanged and active" if self.verb == "deploy" else "it does not run"
            lines.append(f"  nothing to do: {why}")
        lines += [f"  refused[{r.reference}]: {r.message}" for r in self.refusals]
        return lines

    def to_json(self, *, masked: bool = True) -> dict[str, Any]:
        """Return the documented object. ``masked=False`` is for the wire to the host alone."""
        body = {"schema": SCHEMA} | asdict(self)
        body["steps"] = [step_to_json(s, masked=masked) for s in self.steps]
        body["changed"] = [asdict(a) | {"text": str(a)} for a in self.changed]
        for name in ("holders", "stops"):
            body[name] = [asdict(h) | {"text": h.describe()} for h in getattr(self, name)]
        return body | {"summary": self.summary(), "digest": self.digest()}

    def digest(self) -> str:
        """Return a short hash of the steps: the re-check under the lock compares it."""
        text = "\n".join(repr(s) for s in self.steps)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def ranges(numbers: tuple[int, ...]) -> str:
    """Return ``0-3,6`` for (0, 1, 2, 3, 6)."""
    runs: list[list[int]] = []
    for n in sorted(set(numbers)):
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ",".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)


def span(seconds: float) -> str:
    """Return a duration in its largest whole unit: ``45 s``, ``12 min``, ``5 h``, ``3 d``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"
