"""Checks of the GPUs, as ``nvidia-smi -q -x`` and the driver's library tell them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from typing import Any

from fleetctl.doctor.expect import fits
from fleetctl.doctor.finding import Finding, Severity
from fleetctl.doctor.look import Look, gib

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
IDLE = 512 * 1024**2  # what a driver keeps on a GPU that nobody uses
# Documented by `nvidia-smi --help-query-gpu`; the power cap's own is normal under load.
SERIOUS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")


def tools(look: Look) -> Iterator[Finding]:
    """nvidia-smi is there and answers."""
    facts = look.group("gpu")
    wanted = look.expect.gpus if look.expect.gpus is not None else look.gpus
    if not facts:
        return
    if not facts["tools"]:
        if wanted:
            message = f"no GPU tools: nvidia-smi is not there, {wanted} GPUs are expected"
            yield Finding("no-gpu-tools", ERROR, message, "nvidia-smi: not found")
        return
    if facts["error"]:
        message = "nvidia-smi fails: the driver is not loaded, or does not fit its library"
        yield Finding("gpu-driver", ERROR, message, facts["error"], "dmesg | grep -i nvrm | tail")


def count(look: Look) -> Iterator[Finding]:
    """As many GPUs of the model as are expected."""
    gpus = _gpus(look)
    wanted = look.expect.gpus if look.expect.gpus is not None else look.gpus
    if gpus and wanted and len(gpus) != wanted:
        message = f"{len(gpus)} GPUs, {wanted} are expected"
        yield Finding(
            "gpu-count", ERROR, message, ", ".join(g["pci"] for g in gpus), "dmesg | grep -i nvrm"
        )
    names = sorted({g["name"] for g in gpus})
    if look.expect.gpu and any(not fnmatch.fnmatch(n, look.expect.gpu) for n in names):
        message = f"the GPUs are {', '.join(names)}, expected {look.expect.gpu}"
        yield Finding("gpu-model", ERROR, message, ", ".join(names))
    elif len(names) > 1:
        yield Finding(
            "gpu-mixed",
            WARNING,
            f"different GPUs in one host: {', '.join(names)}",
            ", ".join(names),
        )
    driver = look.group("gpu").get("driver")
    if driver and look.expect.driver and not fits(driver, look.expect.driver):
        message = f"driver {driver}, expected {look.expect.driver}"
        yield Finding("driver-version", ERROR, message, f"driver_version: {driver}")


def runtime(look: Look) -> Iterator[Finding]:
    """The driver runs the CUDA that torch was built for: within a major release any driver does."""
    torch = str((look.group("python").get("packages") or {}).get("torch") or "")
    cuda = str(look.group("gpu").get("cuda") or "")
    built = re.search(r"\+cu(\d+)\d$", torch)
    if built and cuda and int(built.group(1)) > int(cuda.partition(".")[0]):
        driver = look.group("gpu").get("driver")
        message = (
            f"torch {torch} is built for CUDA {built.group(1)}, driver {driver} runs up to {cuda}"
        )
        fix = "install a newer driver, or the torch of an older CUDA"
        yield Finding("cuda-mismatch", ERROR, message, f"cuda_version: {cuda}", fix)


def health(look: Look) -> Iterator[Finding]:
    """No memory fault, no repair pending, no action that the driver asks for."""
    for gpu in _gpus(look):
        name, reset = f"GPU {gpu['index']}", f"nvidia-smi --gpu-reset -i {gpu['index']}"
        if gpu["ecc_uncorrected"]:
            message = f"{name} has {gpu['ecc_uncorrected']} uncorrectable ECC errors since the driver's start"
            yield Finding("gpu-ecc", ERROR, message, f"{gpu['pci']}: volatile uncorrectable", reset)
        for key, what in (
            ("remap_failure", "failed to remap a memory row: the card has to be replaced"),
            ("remap_pending", "has a memory row to remap: it wants a reset"),
            ("retired_pending", "has a memory page to retire: it wants a reset"),
        ):
            if gpu[key] == "Yes":
                severity = ERROR if key == "remap_failure" else WARNING
                yield Finding(
                    "gpu-memory-row", severity, f"{name} {what}", f"{gpu['pci']}: {key}", reset
                )
        if gpu["repair"]:
            message = f"{name} asks for a repair: {', '.join(gpu['repair'])}"
            yield Finding("gpu-repair", ERROR, message, gpu["pci"], reset)
        if gpu["recovery_action"] not in (None, "None"):
            message = f"the driver asks for an action on {name}: {gpu['recovery_action']}"
            yield Finding(
                "gpu-recovery",
                ERROR,
                message,
                f"gpu_recovery_action: {gpu['recovery_action']}",
                reset,
            )


def clocks(look: Look) -> Iterator[Finding]:
    """Nothing holds the clocks down, and the power limit is the card's own."""
    for gpu in _gpus(look):
        held = [r for r in gpu["throttled"] if r in SERIOUS]
        if held:
            message = f"GPU {gpu['index']} is slowed down: {', '.join(held)}"
            evidence = (
                f"{gpu['temperature']:.0f} °C" if gpu["temperature"] is not None else gpu["pci"]
            )
            yield Finding(
                "gpu-throttled",
                WARNING,
                message,
                evidence,
                "nvidia-smi -q -d PERFORMANCE,TEMPERATURE",
            )
    low = [g for g in _gpus(look) if _capped(g)]
    if low:
        limit = f"{low[0]['power_limit']:.0f} W of {low[0]['power_default']:.0f} W"
        message = f"{len(low)} GPUs have a lowered power limit ({limit})"
        fix = f"nvidia-smi -pl {low[0]['power_default']:.0f}"
        yield Finding("gpu-power-cap", INFO, message, f"GPU {low[0]['index']}: {limit}", fix)
    loose = [str(g["index"]) for g in _gpus(look) if g["persistence"] == "Disabled"]
    if loose:
        message = (
            f"persistence mode is off on GPU {', '.join(loose)}: each start waits for the driver"
        )
        yield Finding(
            "gpu-persistence", INFO, message, "persistence_mode: Disabled", "nvidia-smi -pm 1"
        )
    split = [str(g["index"]) for g in _gpus(look) if g["mig"] == "Enabled"]
    if split:
        message = f"GPU {', '.join(split)} is split up (MIG)"
        yield Finding("gpu-mig", WARNING, message, "current_mig: Enabled")


def _capped(gpu: dict[str, Any]) -> bool:
    limit, default = gpu["power_limit"], gpu["power_default"]
    return limit is not None and default is not None and limit < default * 0.98


def links(look: Look) -> Iterator[Finding]:
    """Every pair of GPUs reads the other's memory, and the NVLink fabric is up where there is one."""
    facts = look.group("gpu")
    peers = (facts.get("links") or {}).get("p2p") or {}
    broken = [
        f"{a}-{b} {v}" for a, row in peers.items() for b, v in row.items() if v not in ("X", "OK")
    ]
    if broken:
        message = f"{len(broken)} pairs of GPUs cannot read each other's memory"
        yield Finding("gpu-p2p", WARNING, message, ", ".join(broken[:4]), "nvidia-smi topo -p2p r")
    for gpu in _gpus(look):
        state, status = gpu["fabric_state"], gpu["fabric_status"]
        if state not in (None, "Completed") or (state and status not in (None, "Success")):
            message = f"GPU {gpu['index']} is not registered in the NVLink fabric"
            fix = "systemctl restart nvidia-fabricmanager"
            yield Finding("gpu-fabric", ERROR, message, f"fabric: {state}, {status}", fix)
    manager = facts.get("fabric_manager") or {}
    if manager.get("LoadState") == "loaded" and manager.get("ActiveState") != "active":
        message = f"nvidia-fabricmanager is {manager.get('ActiveState')}"
        fix = "systemctl start nvidia-fabricmanager"
        yield Finding(
            "fabric-manager", ERROR, message, f"ActiveState={manager.get('ActiveState')}", fix
        )
    if look.expect.fabric and _gpus(look) and all(g["fabric_state"] is None for g in _gpus(look)):
        yield Finding("gpu-fabric", ERROR, "no NVLink fabric is seen", "fabric state: N/A")


def users(look: Look) -> Iterator[Finding]:
    """Only the service's own unit holds memory on the GPUs."""
    facts, own = look.group("gpu"), look.group("unit").get("name", "")
    seen: dict[int, dict[str, Any]] = {}
    for row in facts.get("processes") or []:
        if row["unit"] != own or not own:
            entry = seen.setdefault(row["pid"], dict(row, memory=0, on=[]))
            entry["memory"] += row["memory"]
            entry["on"].append(str(row["gpu"]))
    for pid, row in seen.items():
        who = row["unit"] or row["command"] or "unknown"
        message = f"{who} holds {gib(row['memory'])} on GPU {', '.join(row['on'])}"
        severity = INFO if row["unit"].startswith("sglang-") else WARNING
        yield Finding(
            "gpu-in-use", severity, message, f"pid {pid}: {row['command'][:120]}", f"ps -fp {pid}"
        )
    told = {n for row in seen.values() for n in row["on"]}
    running = look.group("unit").get("active_state") in ("active", "activating")
    for gpu in _gpus(look):
        if (
            gpu["memory_used"] > IDLE
            and not seen
            and not told
            and not running
            and not facts["processes"]
        ):
            message = f"GPU {gpu['index']}: {gib(gpu['memory_used'])} are held by a process that is not seen"
            yield Finding(
                "gpu-held",
                WARNING,
                message,
                f"{gpu['pci']}: fb_memory_usage",
                "fuser -v /dev/nvidia*",
            )


def _gpus(look: Look) -> list[dict[str, Any]]:
    return list(look.group("gpu").get("gpus") or [])


CHECKS = (tools, count, runtime, health, clocks, links, users)
