"""What a doctor looks at on the GPUs: ``nvidia-smi -q -x`` once, links, the fabric manager, the library."""

from __future__ import annotations

import re
from typing import Any

from fleetctl.remote import gpu_probe, procs, shell, unit

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def look() -> dict[str, Any]:
    """Return ``{tools, error, driver, cuda, gpus, processes, links, fabric_manager, multicast}``.

    ``tools`` is False where there is no nvidia-smi; ``error`` is what it said when it failed.
    """
    if not shell.which("nvidia-smi"):
        return {"tools": False, "error": "", "gpus": []}
    done = shell.run(("nvidia-smi", "-q", "-x"), timeout=20.0)
    found = parse(done.out)
    if not found["gpus"]:
        said = (done.out if "<" not in done.out[:1] else "") or done.err
        return {"tools": True, "error": said.strip()[:400] or "no GPU", "gpus": []}
    for process in found["processes"]:
        process["unit"] = procs.unit_of(process["pid"])
        process["command"] = procs.command_of(process["pid"]) or process["command"]
    found["links"] = links() if len(found["gpus"]) > 1 else None
    found["fabric_manager"] = unit.show(
        "nvidia-fabricmanager.service", ("LoadState", "ActiveState")
    )
    found["multicast"] = gpu_probe.multicast()
    return dict(found, tools=True, error="")


def parse(text: str) -> dict[str, Any]:
    """Return what the XML of ``nvidia-smi -q -x`` says; no GPUs for anything that is not that."""
    import xml.etree.ElementTree as ElementTree  # a deploy to a host without GPUs does without

    try:
        # nvidia-smi's own output; entities need a DOCTYPE, and that is cut away.
        root = ElementTree.fromstring(re.sub(r"<!DOCTYPE[^>]*>", "", text))  # noqa: S314
    except ElementTree.ParseError:
        return {"gpus": [], "processes": []}
    gpus = [_gpu(n, node) for n, node in enumerate(root.findall("gpu"))]
    processes = []
    for number, node in enumerate(root.findall("gpu")):
        for entry in node.findall("processes/process_info"):
            pid = _text(entry, "pid")
            if pid and pid.isdigit():
                processes.append({
                    "gpu": number,
                    "pid": int(pid),
                    "memory": _bytes(_text(entry, "used_memory")),
                    "command": _text(entry, "process_name") or "",
                })  # fmt: skip
    return {
        "driver": _text(root, "driver_version"),
        "cuda": _text(root, "cuda_version"),
        "gpus": gpus,
        "processes": processes,
    }


def _gpu(number: int, node: Any) -> dict[str, Any]:
    reasons = node.find("clocks_event_reasons")
    if reasons is None:
        reasons = node.find("clocks_throttle_reasons")
    power = node.find("gpu_power_readings")
    if power is None:
        power = node.find("power_readings")
    return {
        "index": number,
        "pci": node.get("id", ""),
        "uuid": _text(node, "uuid"),
        "name": _text(node, "product_name"),
        "memory_total": _bytes(_text(node, "fb_memory_usage/total")),
        "memory_used": _bytes(_text(node, "fb_memory_usage/used")),
        "persistence": _text(node, "persistence_mode"),
        "mig": _text(node, "mig_mode/current_mig"),
        "compute_mode": _text(node, "compute_mode"),
        "ecc": _text(node, "ecc_mode/current_ecc"),
        "ecc_uncorrected": _uncorrected(node),
        "retired_pending": _text(node, "retired_pages/pending_retirement")
        or _text(node, "retired_pages/pending_blacklist"),
        "remap_pending": _text(node, "remapped_rows/remapped_row_pending"),
        "remap_failure": _text(node, "remapped_rows/remapped_row_failure"),
        "throttled": [] if reasons is None else _active(reasons),
        "power_limit": _number(_any(power, "current_power_limit", "power_limit")),
        "power_default": _number(_any(power, "default_power_limit")),
        "temperature": _number(_text(node, "temperature/gpu_temp")),
        "fabric_state": _text(node, "fabric/state"),
        "fabric_status": _text(node, "fabric/status"),
        "repair": [
            tag
            for tag in ("channel_repair_pending", "tpc_repair_pending", "unrepairable_memory")
            if _text(node, "ecc_errors/" + tag) == "Yes"
        ],
        "recovery_action": _text(node, "gpu_recovery_action"),
    }


def _text(node: Any, path: str) -> Any:
    """Return the text at a path; None for what is absent or what the card does not have."""
    text = None if node is None else node.findtext(path)
    return (
        None
        if text is None or text.strip() in ("", "N/A", "[N/A]", "Not Supported")
        else text.strip()
    )


def _any(node: Any, *paths: str) -> Any:
    return next((t for p in paths if (t := _text(node, p)) is not None), None)


def _number(text: Any) -> float | None:
    match = _NUMBER.match(text or "")
    return float(match.group()) if match else None


def _bytes(text: Any) -> int:
    return int((_number(text) or 0) * 1024 * 1024)  # nvidia-smi writes MiB


def _uncorrected(node: Any) -> int | None:
    """Return the uncorrectable ECC errors since the driver was loaded, SRAM and DRAM together."""
    volatile = node.find("ecc_errors/volatile")
    if volatile is None:
        return None
    numbers = [
        _number(c.text) for c in volatile if "uncorrectable" in c.tag or "double_bit" in c.tag
    ]
    known = [n for n in numbers if n is not None]
    return int(sum(known)) if known else None


def _active(reasons: Any) -> list[str]:
    """Return the reasons that hold a GPU's clocks down now, without the harmless ones."""
    harmless = ("gpu_idle", "applications_clocks_setting", "none")
    found = []
    for child in reasons:
        name = re.sub(r"^clocks_(?:event|throttle)_reason_", "", child.tag)
        if (child.text or "").strip() == "Active" and name not in harmless:
            found.append(name)
    return found


def links() -> dict[str, Any]:
    """Return the matrix of ``nvidia-smi topo -m`` and whether peers can read each other (``-p2p r``)."""
    topology = shell.run(("nvidia-smi", "topo", "-m"), timeout=15.0).out
    peers = shell.run(("nvidia-smi", "topo", "-p2p", "r"), timeout=15.0).out
    return {"topology": _matrix(topology), "p2p": _matrix(peers)}


def _matrix(text: str) -> dict[str, dict[str, str]]:
    """Return row → column → entry of a table whose columns are GPU0, GPU1, GPU2."""
    columns: list[str] = []
    rows: dict[str, dict[str, str]] = {}
    for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines():
        words = line.split()
        if (
            not columns
            and words
            and words[0] == "GPU0"
            and len(words) > 1
            and words[1].startswith("GPU")
        ):
            columns = [w for w in words if re.match(r"^GPU\d+$", w)]
        elif columns and words and re.match(r"^GPU\d+$", words[0]):
            rows[words[0]] = dict(zip(columns, words[1:]))
    return rows
