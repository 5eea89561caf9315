"""What triage says of a log: the objects behind ``fleetctl triage --json`` (docs/json.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA = "fleetctl.triage/1"


class State(StrEnum):
    """What became of the server."""

    CRASHED = "crashed"
    HUNG = "hung"
    DEGRADED = "degraded"
    STOPPED = "stopped"
    HEALTHY = "healthy"


class Phase(StrEnum):
    """How far a launch had come, in the order of a start."""

    STARTUP_ARGS = "startup-args"
    IMPORT = "import"
    DIST_INIT = "dist-init"
    WEIGHT_LOAD = "weight-load"
    KV_ALLOC = "kv-alloc"
    GRAPH_CAPTURE = "graph-capture"
    WARMUP = "warmup"
    SERVING = "serving"
    SHUTDOWN = "shutdown"
    UNKNOWN = "unknown"


PHASE_ORDER: dict[str, int] = {phase.value: rank for rank, phase in enumerate(Phase)}


class Verdict(StrEnum):
    """How well the root is supported by what was read."""

    ESTABLISHED = "established"
    SUPPORTED = "supported"
    HYPOTHESIS = "hypothesis"
    UNKNOWN = "unknown"


# Labels of logs in which nothing failed: their root is the record on which the answer rests.
CALM = frozenset(("healthy-startup", "benign-warning", "request-error", "graceful-shutdown"))


def tells_of_failure(triage: Mapping[str, Any]) -> bool:
    """Return whether the root of a triage (as JSON) is a failure, not merely what the answer rests on."""
    return bool(triage.get("crash")) or (
        triage.get("state") in ("hung", "degraded") and triage.get("label") not in CALM
    )


class Role(StrEnum):
    """What a record is to the failure. Only a root may be primary."""

    ROOT = "root"
    CASCADE = "cascade"
    CONFIRMATION = "confirmation"
    TEARDOWN = "teardown"
    ADVICE = "advice"
    BENIGN = "benign"


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a traceback. ``line`` is that of the source file, for people; keys never use it."""

    module: str
    function: str
    file: str
    line: int | None
    in_app: bool


@dataclass(frozen=True, slots=True)
class Root:
    """The exception or line where the failure began; without one, the record on which the answer rests."""

    line: int
    exception_type: str | None
    message: str
    ranks: tuple[str, ...] = ()
    worker: str | None = None  # target | draft, where the frames or a patch's marker show it
    step: str | None = None  # capture | replay, likewise
    frames: tuple[Frame, ...] = ()
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class Cascade:
    """A consequence of the root, counted once however often it was printed."""

    line: int
    kind: str
    message: str
    ranks: tuple[str, ...] = ()
    count: int = 1


@dataclass(frozen=True, slots=True)
class Advice:
    """A next step as data: printed, never executed."""

    action: str
    why: str
    command: str | None = None
    disruptive: bool = False


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was read, and what was lost before it could be read."""

    lines: int | None = None
    suppressed_messages: int = 0
    truncated_lines: int = 0
    ranks_seen: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Triage:
    """The whole answer for one log, one bundle or one invocation."""

    crash: bool
    state: State
    label: str
    phase: Phase
    verdict: Verdict
    root: Root | None = None
    cascades: tuple[Cascade, ...] = ()
    signature: str = ""
    fingerprint: str = ""
    entity: str | None = None
    advice: tuple[Advice, ...] = ()
    captured: dict[str, Any] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)

    def to_json(self, path: str | None = None) -> dict[str, Any]:
        """Return the documented object; ``path`` comes first where a file was read."""
        head: dict[str, Any] = {"schema": SCHEMA}
        if path is not None:
            head["path"] = path
        return head | asdict(self)
