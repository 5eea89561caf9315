"""Everything a doctor wants to know of this host, in one answer (``fleetctl.host-look/1``). Changes nothing."""

from __future__ import annotations

import time
from typing import Any, Callable

from fleetctl.remote import look_gpu, look_sglang, look_system, records, threads

GROUPS = (
    "systemd", "names", "kernel", "memory", "disks", "journal", "kernel_log", "leftovers", "ports",
    "clock", "python", "unit", "patches", "launch", "model", "gpu",
)  # fmt: skip


def look(args: dict[str, Any], _session: Any = None) -> dict[str, Any]:
    """Return group → facts for ``{service, unit, python, port, model, paths, only}``.

    Without ``python`` it is the one that the unit starts; without ``model`` the last launch's.
    The groups run side by side. One that fails is named under ``errors`` and the others still answer.
    """
    service = look_sglang.safe(str(args.get("service") or "main"))
    last = records.last_launch(service) or {}
    config = last.get("config") or {}
    model = args.get("model") or config.get("model")
    port = int(args.get("port") or 30000)
    work: dict[str, Callable[[], Any]] = {
        "systemd": look_system.systemd,
        "names": look_system.names,
        "kernel": look_system.kernel,
        "memory": look_system.memory,
        "disks": lambda: [look_system.mount(p) for p in _paths(args, model, config)],
        "journal": look_system.journal,
        "kernel_log": look_system.kernel_log,
        "leftovers": look_system.leftovers,
        "ports": lambda: look_system.ports([port, *map(int, args.get("ports") or ())]),
        "clock": look_system.clock,
        "python": lambda: look_sglang.python(
            args.get("python") or look_sglang.interpreter_of(str(args["unit"]))
        ),
        "unit": lambda: look_sglang.service(service, str(args["unit"])),
        "launch": lambda: {"id": last.get("id"), "config": config, "outcome": last.get("outcome")},
        "patches": lambda: look_sglang.patches(service),
        "model": lambda: look_sglang.model(model),
        "gpu": look_gpu.look,
    }
    wanted = [g for g in GROUPS if g in (args.get("only") or GROUPS)]
    begun = time.monotonic()
    found: dict[str, Any] = {"schema": "fleetctl.host-look/1", "errors": {}, "port": port}
    waiting = {group: threads.Work(work[group]) for group in wanted}
    for group, answer in waiting.items():
        try:
            found[group] = answer.result()
        except Exception as error:  # noqa: BLE001  one group's fault must not hide the others' answers
            found["errors"][group] = "%s: %s" % (type(error).__name__, error)
    found["seconds"] = round(time.monotonic() - begun, 3)
    return found


# Where a launch puts what grows: dumps, caches of weights and of compiled kernels.
PATH_FLAGS = (
    "crash-dump-folder",
    "file-storage-path",
    "export-metrics-to-file-dir",
    "download-dir",
)
PATH_VARIABLES = (
    "HF_HOME", "HF_HUB_CACHE", "SGLANG_CACHE_DIR", "SGLANG_CUDA_COREDUMP_DIR", "TRITON_CACHE_DIR",
    "SGLANG_TORCH_PROFILER_DIR", "TMPDIR",
)  # fmt: skip


def _paths(args: dict[str, Any], model: Any, config: dict[str, Any]) -> list[str]:
    """Return the paths whose disks matter, each once."""
    paths = ["/", "/etc", "/tmp", "/var/log/journal", "/var/lib/fleetctl", "/dev/shm"]  # noqa: S108
    for kind, names in (("flags", PATH_FLAGS), ("env", PATH_VARIABLES)):
        for table in (config.get(kind) or {}, args.get(kind) or {}):
            paths += [str(table[n]) for n in names if table.get(n)]
    paths += [str(model or ""), *map(str, args.get("paths") or ())]
    return [p for p in dict.fromkeys(paths) if p.startswith("/")]


def clock(_args: dict[str, Any], _session: Any = None) -> dict[str, Any]:
    """Return the host's time at once, so that the round trip bounds the error."""
    return look_system.clock()


VERBS = {"look": look, "clock": clock}
