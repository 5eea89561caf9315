"""The ids of all findings; docs/howto/doctor.md says what each means."""

IDS = frozenset({
    "clock-off", "cuda-mismatch", "daemon-reload", "disk-full", "disk-low", "driver-version",
    "fabric-manager", "gpu-count", "gpu-driver", "gpu-ecc", "gpu-fabric", "gpu-held", "gpu-in-use",
    "gpu-memory-row", "gpu-mig", "gpu-mixed", "gpu-model", "gpu-p2p", "gpu-persistence", "gpu-power-cap",
    "gpu-recovery", "gpu-repair", "gpu-throttled", "inodes-low", "journal-none", "journal-volatile",
    "kernel-version", "leftover-processes", "log-rate-limit", "look-failed", "memlock-low",
    "model-config", "model-missing", "model-shards", "no-gpu-tools", "no-systemd", "nofile-low",
    "not-root", "oom-kill", "own-name", "package-mismatch", "patch-active", "port-ephemeral",
    "port-taken", "py-spy-missing", "python-broken", "python-missing", "read-only", "restart-loop",
    "sglang-missing", "sglang-version", "shm-small", "systemd-hangs", "torch-version", "unit-drift",
    "unit-failed", "unit-masked", "units-failed", "xid",
})  # fmt: skip
