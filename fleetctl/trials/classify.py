"""What a launch says of the hunted crash: one of five outcomes, from the result of its deploy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleetctl.bisect.model import Outcome
from fleetctl.bisect.state import Hunted

# The host's fault, whatever the flags: the launch is made again (labels of the triage).
INFRA_LABELS = frozenset(
    {
        "gpu-hw-fault",
        "host-oom-killed",
        "host-down",
        "port-in-use",
        "gpu-memory-occupied",
        "cuda-init-fabric",
        "external-kill",
        "graceful-shutdown",
    }
)
SILENT = "systemd-silent"  # the launch did not come about, or nobody knows what became of it
INFRA_ERRORS = frozenset({"host-rebooted", "replaced", "stopped", "wrong-model", "ended", SILENT})
INVALID_LABELS = frozenset({"args-invalid"})


@dataclass(frozen=True, slots=True)
class Judged:
    """An outcome with what it rests on."""

    outcome: Outcome
    phase: str = "unknown"
    signature: str = ""
    label: str = ""
    fingerprint: str = ""
    note: str = ""


def sign_of(crash: Mapping[str, Any] | None) -> str:
    """Return the first line of a crash as the watch saw it, without what differs from run to run."""
    if not crash:
        return ""
    message = re.sub(r"0x[0-9a-fA-F]+|\d+", "#", str(crash.get("message") or ""))
    words = (crash.get("exception_type") or crash.get("kind"), crash.get("function"), message)
    return "|".join(str(w or "") for w in words)[:300]


def judge(result: Mapping[str, Any], hunted: Hunted | None) -> Judged:
    """Return what a ``result`` event means; ``hunted`` None: any crash of it is the hunted one."""
    state, error = str(result["state"]), str(result.get("error") or "")
    phase = str(result.get("phase") or "unknown")
    if state in ("ready", "unchanged"):
        return Judged(Outcome.PASS, "serving")
    if state in ("unreachable", "interrupted") or error in INFRA_ERRORS:
        return Judged(Outcome.INFRA, phase, note=error or state)
    triage: Mapping[str, Any] = result.get("triage") or {}
    seen = _seen(result, triage, phase)
    if hunted is not None and same(seen, hunted):
        return Judged(Outcome.SAME, **seen)
    if seen["label"] in INFRA_LABELS:
        return Judged(Outcome.INFRA, **seen, note=seen["label"])
    if seen["label"] in INVALID_LABELS:
        return Judged(Outcome.INVALID, **seen, note=seen["signature"])
    return Judged(Outcome.SAME if hunted is None else Outcome.OTHER, **seen)


def _seen(result: Mapping[str, Any], triage: Mapping[str, Any], phase: str) -> dict[str, str]:
    """Return how the failure is called; a hang without a root is called by its phase.

    The phase is how far the launch had come by its own lines, which is what orders two failures:
    triage names a phase by what the frames do, and a warm-up of kernels comes before any capture.
    """
    told = str(triage.get("phase") or "unknown")
    phase = told if phase == "unknown" else phase
    signature = str(triage.get("signature") or "")
    if not signature:
        crash = result.get("crash") or {}
        last = crash.get("line") or f"{result['state']} in {phase}"
        signature = str(last)[:200]
    return {
        "phase": phase,
        "signature": signature,
        "label": str(triage.get("label") or result["state"]),
        "fingerprint": str(triage.get("fingerprint") or f"{result['state']}:{phase}"),
    }


def same(seen: Mapping[str, str], hunted: Hunted) -> bool:
    """Return whether a failure is the hunted one: its mechanism, not its words, decides."""
    if hunted.fingerprint:
        return seen["fingerprint"] == hunted.fingerprint
    return bool(hunted.signature) and seen["signature"] == hunted.signature


def hunted_by(judged: Judged, sign: str) -> Hunted:
    """Return the hunted crash that a first sighting makes."""
    return Hunted(judged.fingerprint, judged.signature, judged.label, judged.phase, sign)
