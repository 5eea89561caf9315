"""Looks a host over before the first restart: facts from one exec, findings as data."""

from __future__ import annotations

from collections.abc import Collection

from fleetctl.doctor import checks_gpu, checks_sglang, checks_system
from fleetctl.doctor.finding import Finding, Severity
from fleetctl.doctor.ids import IDS
from fleetctl.doctor.look import Look

__all__ = ["CRITICAL", "IDS", "QUICK", "Finding", "Look", "Severity", "critical", "examine"]

CHECKS = (*checks_system.CHECKS, *checks_sglang.CHECKS, *checks_gpu.CHECKS)
# What a deploy would only meet after minutes of loading, or never be told.
CRITICAL = frozenset({
    "no-systemd", "systemd-hangs",  "not-root", "own-name", "disk-full", "inodes-low",
    "read-only", "shm-small", "journal-none", "python-missing", "python-broken", "sglang-missing",
    "unit-masked", "model-missing", "model-config", "model-shards", "no-gpu-tools", "gpu-driver",
    "gpu-count", "gpu-model", "driver-version", "sglang-version", "torch-version", "kernel-version",
    "cuda-mismatch", "gpu-ecc", "gpu-memory-row", "gpu-repair", "gpu-recovery", "gpu-fabric",
    "fabric-manager", "xid",
})  # fmt: skip
# The groups of ``doctor.look`` that the critical checks read.
QUICK = (
    "systemd",
    "names",
    "memory",
    "disks",
    "journal",
    "kernel_log",
    "clock",
    "python",
    "unit",
    "model",
    "gpu",
)


def examine(look: Look, *, only: Collection[str] = (), skip: Collection[str] = ()) -> list[Finding]:
    """Return the findings, errors first; ``only`` and ``skip`` are ids (the site's own skip counts too)."""
    left_out = {*skip, *look.expect.skip}
    found = [finding for check in CHECKS for finding in check(look)]
    for group, error in (look.facts.get("errors") or {}).items():
        message = f"the look at {group} failed"
        found.append(Finding("look-failed", Severity.WARNING, message, error))
    kept = [f for f in found if f.id not in left_out and (not only or f.id in only)]
    rank = list(Severity)
    return sorted(kept, key=lambda f: rank.index(f.severity))


def critical(look: Look, *, skip: Collection[str] = ()) -> list[Finding]:
    """Return the findings that stop a deploy, those of severity error among the critical checks."""
    found = examine(look, only=CRITICAL, skip=skip)
    return [f for f in found if f.severity is Severity.ERROR]
