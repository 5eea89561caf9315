"""Occurrences and launches for the tests of the log."""

from __future__ import annotations

from typing import Any

from fleetctl.model.incident import Occurrence, occurrence_id
from fleetctl.model.launch import LaunchConfig, LaunchRecord


def crash(
    invocation: str,
    host: str = "b300-01",
    key: str = "v1:aa",
    at: str = "2026-11-29T03:00:00Z",
    **more: Any,
) -> Occurrence:
    """Return one failed invocation."""
    triage = {
        "crash": True,
        "label": "cublas-capture", "phase": "graph-capture", "fingerprint": key, "verdict": "established",
        "state": "crashed", "signature": "RuntimeError CUBLAS_STATUS_NOT_INITIALIZED | capture",
        "root": {
            "line": 812, "exception_type": "RuntimeError", "message": "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED",
            "ranks": ["TP0", "TP3"], "worker": None, "step": "capture",
            "frames": [{"module": "m", "function": "capture", "file": "sglang/srt/x.py", "line": 9, "in_app": True}],
        },
        "cascades": [{"line": 900, "kind": "wrapper", "message": "Capture cuda graph failed", "count": 8}],
        "advice": [{"action": "bisect_flags", "why": "one flag may do it", "command": "fleetctl bisect-flags", "disruptive": True}],
        "captured": {"status": "CUBLAS_STATUS_NOT_INITIALIZED"},
    }  # fmt: skip
    return Occurrence(
        id=occurrence_id(host, "boot", invocation, "main"), host=host, service="main", observed_at=at,
        triage=triage, invocation_id=invocation, launch_id="l-1", bundle="/bundles/x", **more,
    )  # fmt: skip


def launch(
    id_: str, outcome: str = "ready", at: str = "2026-11-29T02:00:00Z", **flags: Any
) -> LaunchRecord:
    """Return one launch."""
    config = LaunchConfig(
        "tp8",
        "/models/k2",
        flags=flags or {},
        env={"NCCL_DEBUG": "WARN"},
        versions={"sglang": "0.5.12.post1"},
    )
    return LaunchRecord(
        id_, "b300-01", "main", config, at, outcome=outcome, changed=("+ep-size=8",)
    )
