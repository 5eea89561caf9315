"""Checks of what is installed and deployed: interpreter, packages, unit, patches, model."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleetctl.doctor.expect import fits
from fleetctl.doctor.finding import Finding, Severity
from fleetctl.doctor.look import Look

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
WATCHED = (
    "torch",
    "flashinfer-python",
    "flashinfer_python",
    "sgl-kernel",
    "sglang-kernel",
    "triton",
    "transformers",
)
MEMLOCK = 64 * 1024**2
RESTARTS = 3


def interpreter(look: Look) -> Iterator[Finding]:
    """The profile's Python is there and has SGLang."""
    python = look.group("python")
    if not python:
        return
    if not python["exists"]:
        message = f"{python['path']} is not there"
        fix = "name the right one in the profile (sglang: {python: PATH})"
        yield Finding("python-missing", ERROR, message, f"no such file: {python['path']}", fix)
    elif python.get("error"):
        yield Finding("python-broken", ERROR, f"{python['path']} does not run", python["error"])
    elif not python["packages"].get("sglang"):
        message = f"{python['path']} has no sglang"
        fix = f"{python['path']} -m pip install sglang"
        yield Finding("sglang-missing", ERROR, message, "no distribution of that name", fix)


def versions(look: Look) -> Iterator[Finding]:
    """Versions are the expected ones, and what SGLang pins is what is installed."""
    python, expect = look.group("python"), look.expect
    packages = python.get("packages") or {}
    kernel = look.group("kernel").get("release")
    for name, wanted, found in (
        ("sglang", expect.sglang, packages.get("sglang")),
        ("torch", expect.torch, packages.get("torch")),
        ("kernel", expect.kernel, kernel),
    ):
        if wanted and found and not fits(found, wanted):
            message = f"{name} {found}, expected {wanted}"
            yield Finding(f"{name}-version", ERROR, message, f"{name} {found}")
    for need in python.get("needs") or []:
        name, wanted = _pin(need)
        found = packages.get(name)
        if name in WATCHED and wanted and found and not fits(found, wanted):
            message = f"sglang {packages.get('sglang')} wants {name}{wanted}, {found} is installed"
            fix = f"{python['path']} -m pip install '{name}{wanted}'"
            yield Finding("package-mismatch", WARNING, message, f"{name} {found}", fix)


def _pin(need: str) -> tuple[str, str]:
    """Return name and specifiers of a requirement that holds on Linux with a GPU; "" for others."""
    text, _, marker = need.partition(";")
    if "darwin" in marker or "!=" in marker:
        return "", ""
    match = re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*\(?([^()]*)\)?$", text.strip())
    return (match.group(1), match.group(2).strip()) if match else ("", "")


def unit(look: Look) -> Iterator[Finding]:
    """The deployed unit is as fleetctl wrote it, is loaded, and does not loop."""
    facts = look.group("unit")
    if not facts or facts["load_state"] == "not-found":
        return
    name = facts["name"]
    for file in facts.get("drift") or []:
        message = f"{file['path']} was {file['state']} since launch {file['launch']}"
        fix = "deploy again to write it anew, or put the change into the profile"
        yield Finding("unit-drift", WARNING, message, f"{file['path']}: {file['state']}", fix)
    if facts["need_daemon_reload"]:
        message = f"systemd has an older {name} in memory than the one on disk"
        yield Finding(
            "daemon-reload", WARNING, message, "NeedDaemonReload=yes", "systemctl daemon-reload"
        )
    if facts["load_state"] == "masked":
        message = f"{name} is masked: it cannot be started"
        yield Finding("unit-masked", ERROR, message, "LoadState=masked", f"systemctl unmask {name}")
    if facts["active_state"] == "failed":
        evidence = f"Result={facts['result']}, status {facts['exec_main_status']}"
        message = f"{name} failed"
        yield Finding(
            "unit-failed", WARNING, message, evidence, f"fleetctl logs; systemctl status {name}"
        )
    elif facts["n_restarts"] >= RESTARTS:
        message = f"systemd restarted {name} {facts['n_restarts']} times"
        yield Finding(
            "restart-loop",
            WARNING,
            message,
            f"NRestarts={facts['n_restarts']}",
            f"systemctl stop {name}",
        )


def limits(look: Look) -> Iterator[Finding]:
    """The unit's limits let eight ranks and RDMA work, and no log line is dropped."""
    facts = look.group("unit")
    if not facts or facts["load_state"] != "loaded":
        return
    values, name = facts.get("limits") or {}, facts["name"]
    files = _number(values.get("LimitNOFILESoft") or values.get("LimitNOFILE"))
    if files is not None and files < look.expect.nofile:
        message = f"{name} may open {files} files, {look.expect.nofile} are wanted"
        yield Finding(
            "nofile-low", WARNING, message, f"LimitNOFILE={files}", f"systemctl edit {name}"
        )
    locked = _number(values.get("LimitMEMLOCK"))
    if locked is not None and locked < MEMLOCK:
        message = (
            f"{name} may lock {locked // 1024} KiB of memory; pinned buffers and RDMA want more"
        )
        yield Finding(
            "memlock-low", WARNING, message, f"LimitMEMLOCK={locked}", f"systemctl edit {name}"
        )
    rate = values.get("LogRateLimitIntervalUSec", "")
    if rate not in ("", "0", "infinity"):
        message = f"journald may drop lines of {name}: a crash of eight ranks is over its limit"
        fix = "LogRateLimitIntervalSec=0 in the unit"
        yield Finding("log-rate-limit", WARNING, message, f"LogRateLimitIntervalUSec={rate}", fix)


def _number(text: str | None) -> int | None:
    """Return a limit; None for infinity or nothing."""
    return int(text) if text and text.isdigit() and int(text) < 2**60 else None


def patches(look: Look) -> Iterator[Finding]:
    """Diagnostic patches that are still there, and those that should be gone by now."""
    now = look.group("clock").get("now")
    for row in look.rows("patches"):
        late = bool(now and row.get("expires_at") and now > row["expires_at"])
        lost = row.get("orphaned")
        state = "is past its time" if late else "is in force"
        state = f"is orphaned: {lost[0]} changed since it was pushed" if lost else state
        message = f"the patch {row['name']} {state}"
        fix = f"fleetctl patch revert {row['name']} HOST"
        severity = WARNING if late or lost else INFO
        yield Finding("patch-active", severity, message, f"pushed by {row.get('by')}", fix)


def model(look: Look) -> Iterator[Finding]:
    """The model's folder is whole."""
    facts = look.group("model")
    if not facts:
        return
    path = facts["path"]
    if not facts["exists"]:
        yield Finding(
            "model-missing", ERROR, f"the model {path} is not there", f"no such folder: {path}"
        )
        return
    if not facts["config"]:
        message = f"{path} has no config.json that can be read"
        yield Finding("model-config", ERROR, message, f"{path}/config.json", f"ls -l {path}")
    if facts["missing"]:
        first = facts["missing"][0]
        message = f"{path} lacks {len(facts['missing'])} files that its index names"
        yield Finding("model-shards", ERROR, message, f"missing: {first}", f"ls -l {path}")


CHECKS = (interpreter, versions, unit, limits, patches, model)
