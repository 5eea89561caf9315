"""Two identities of a failure: the mechanism that groups it, and a signature that people can read.

Version 1 keys on the exception's type, the shape of its message, the innermost in-app frames and whether
a graph was captured or replayed. Ranks, hosts, pids, times, addresses, sizes, lines and install paths are
left out. A later version gets another prefix and never re-keys what was stored.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.evidence.exceptions import CPP, Raised
from fleetctl.model.triage import Frame
from fleetctl.triage.candidate import Candidate

VERSION = "v1"
_FRAMES = 3
_SHAPE_LIMIT = 160
# The same fault under the names that releases of PyTorch gave it.
_TYPES = {
    "torch.cuda.OutOfMemoryError": "OutOfMemoryError",
    "torch.OutOfMemoryError": "OutOfMemoryError",
    "torch.AcceleratorError": "RuntimeError",
    "torch.distributed.DistBackendError": "DistBackendError",
    "c10::DistBackendError": "DistBackendError",
    "c10::Error": "RuntimeError",
}
_CUT = re.compile(
    r"might be caused by|might be asynchronously|\. If reserved but|Including non-PyTorch|; please"
    r"|Please (?:see|check|refer)|For more|See https?:",
    re.IGNORECASE,
)
_MASKS = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"\bhttps?://[^\s'\"]+", "<url>"),
        (
            r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b",
            "<uuid>",
        ),
        (r"<redacted:[\w:-]+>", "<redacted>"),
        (r"(?:/[\w.@+=~-]+){2,}/?", "<path>"),
        (r"\b0x[0-9a-fA-F]+\b", "<addr>"),
        (r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b", "<ip>"),
        (r"\b\d+(?:\.\d+)? ?(?:[KMGT]i?B|bytes|tokens)\b", "<size>"),
        (r"\b\d+(?:\.\d+)? ?(?:ms|us|ns|s|sec|seconds|milliseconds|minutes)\b", "<time>"),
        (r"\b(?:cuda|gpu|GPU|rank|Rank|TP|DP|PP|EP|device)[ :#=]?\d+\b", "<device>"),
        (r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b", "<hex>"),
        (r"-?\b\d+\.\d+(?:[eE][+-]?\d+)?\b", "<float>"),
        (r"(?<![A-Za-z_])-?\d+(?![A-Za-z_\d])", "<int>"),
        (r"(?<=[A-Za-z_.])\d+(?=\.)", "<int>"),
    )
)
# Frames that say nothing: decorators, call wrappers, bootstraps.
_IRRELEVANT = re.compile(
    r"torch\.utils\._contextlib:|torch\.nn\.modules\.module:|multiprocessing\.|threading:|runpy:|concurrent\.futures|contextlib:|asyncio\.|importlib|frozen|torch\._ops:|torch\._dynamo\.eval_frame:|generated:"
)
_CAPTURE = frozenset(
    [
        "capture",
        "capture_one_batch_size",
        "_capture_one_stream",
        "init_device_graphs",
        "init_cuda_graphs",
        "init_all_cuda_graphs",
        "capture_model",
        "_capture_graph",
        "register_graph_buffers",
        "capture_prepare",
    ]
)
_REPLAY = frozenset(["replay", "replay_prepare", "replay_and_update", "can_run_graph", "_replay"])
_DRAFT_FRAME = re.compile(
    r"draft_runner|draft_model_runner|draft_worker|draft_forward|forward_draft|_draft_extend|draft_extend|eagle_draft|_draft_\w*cuda_graph|llama_eagle|deepseek_nextn|\w+_nextn:|\w+_mtp:|init_draft|\w*dflash_draft|draft_cuda_graph|draft_tp_context"
)
_TARGET_FRAME = re.compile(
    r"target_worker|target_model_runner|:verify\b|self\.verify\(|target_verify"
)


@dataclass(frozen=True, slots=True)
class Print:
    """The identity of a failure and how it came about, for ``--explain-fingerprint``."""

    fingerprint: str
    signature: str
    parts: tuple[tuple[str, str], ...]


def of(candidate: Candidate, step: str | None) -> Print:
    """Return the identity of a root."""
    raised = candidate.unit.raised
    kind = type_of(raised)
    frames = [] if candidate.rule.async_frames or raised is None else key_frames(raised.frames)
    shape = shape_of(raised.message if raised is not None and kind else candidate.unit.text)
    if raised is not None and kind and not raised.message.strip():
        shape = shape_of(next((s for s in reversed(raised.sources) if s), ""))
    if candidate.rule.fingerprint:
        values = {
            "type": kind,
            "shape": shape,
            "step": step or "",
            "frames": " < ".join(frames),
            **candidate.captured,
        }
        key = [_filled(part, values) for part in candidate.rule.fingerprint]
        parts = [("rule", candidate.rule.id), *(("given", k) for k in key)]
        signature = " | ".join([k for k in key if k] + frames[-1:])
    else:
        key = [kind, shape, *frames, f"step={step or ''}"]
        parts = [
            ("type", kind),
            ("shape", shape),
            *(("frame", f) for f in frames),
            ("step", step or ""),
        ]
        signature = " | ".join(
            p for p in (f"{kind} {shape}".strip(), " < ".join(reversed(frames)), step or "") if p
        )
    digest = hashlib.sha256("\x1f".join(["m1", *key]).encode()).hexdigest()[:16]
    return Print(f"{VERSION}:{digest}", signature[:300], tuple(parts))


def without_root(label: str, phase: str) -> Print:
    """Return the identity of a log without a root: all such logs of a kind are one group."""
    digest = hashlib.sha256(f"m1\x1fno-root\x1f{label}\x1f{phase}".encode()).hexdigest()[:16]
    return Print(f"{VERSION}:{digest}", f"{label} ({phase})", (("label", label), ("phase", phase)))


def _filled(part: str, values: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda m: _kept(values.get(m.group(1), "")), part)


def _kept(value: str) -> str:
    """Return a capture for a key: codes stay, whatever differs between runs is masked."""
    return value if re.fullmatch(r"-?\d{1,3}", value) else mask(value)


def type_of(raised: Raised | None) -> str:
    """Return the exception's type under one name for all releases."""
    if raised is None or raised.kind == "usage":
        return ""
    return _TYPES.get(raised.type, raised.name)


def mask(text: str) -> str:
    """Return text with everything that differs between ranks, hosts and runs replaced by names."""
    for pattern, name in _MASKS:
        text = pattern.sub(name, text)
    return text


def shape_of(message: str) -> str:
    """Return the masked first line of a message, without advice."""
    first = next((line for line in message.split("\n") if line.strip()), "").strip()
    cut = _CUT.search(first)
    return mask(first[: cut.start()] if cut else first).strip()[:_SHAPE_LIMIT]


def key_frames(frames: Sequence[Frame]) -> list[str]:
    """Return the innermost in-app frames (else the innermost two) as ``module:function``, outermost first."""
    named = [(f"{f.module}:{f.function.rsplit('.', 1)[-1]}", f.in_app) for f in frames]
    telling = [(n, app) for n, app in named if not _IRRELEVANT.match(n)]
    collapsed = [
        pair for pair, before in zip(telling, [None, *telling], strict=False) if pair != before
    ]
    ours = [n for n, app in collapsed if app]
    return ours[-_FRAMES:] or [n for n, _ in collapsed][-2:]


def step_of(raised: Raised | None) -> str | None:
    """Return whether the frames show a graph's capture or its replay, or neither."""
    for frame in reversed(raised.frames if raised is not None and raised.kind != CPP else []):
        function = frame.function.rsplit(".", 1)[-1]
        if function in _CAPTURE:
            return "capture"
        if function in _REPLAY:
            return "replay"
    return None


def worker_of(raised: Raised | None) -> str | None:
    """Return whether the frames show the draft or the target worker of speculative decoding, or neither.

    The forward mode alone tells nothing: a draft worker of DFlash runs in TARGET_VERIFY mode too.
    """
    if raised is None:
        return None
    for frame, source in zip(reversed(raised.frames), reversed(raised.sources), strict=False):
        place = f"{frame.module}:{frame.function} {source}"
        if _DRAFT_FRAME.search(place):
            return "draft"
        if _TARGET_FRAME.search(place):
            return "target"
    return None
