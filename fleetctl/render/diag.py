"""Named diagnostics of a profile: off unless asked for, since they hold prompts and fill disks."""

from __future__ import annotations

from dataclasses import dataclass, field

from packaging.version import InvalidVersion, Version

from fleetctl.errors import ConfigError

ROOT = "/var/lib/fleetctl/diag"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """What one name adds to a launch. ``{folder}`` is the service's own, mode 0700."""

    costs: str  # what it keeps or slows down, for the plan's warning
    flags: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    since: str = "0"  # SGLang's version


# Flags and variables were looked up in the wheels of SGLang 0.5.10 to 0.5.23; those of CUDA in
# "CUDA-GDB: GPU core dump support", those of NCCL and PyTorch in their environment references
# (PyTorch renamed the flight recorder's variables: both names are set).
DIAGNOSTICS: dict[str, Diagnostic] = {
    "request-dumps": Diagnostic(
        "keeps the requests of the last five minutes before a crash, with customers' prompts",
        flags={"crash-dump-folder": "{folder}/requests"},
        since="0.4.9.post2",
    ),
    "cuda-coredumps": Diagnostic(
        "writes a CUDA core dump per rank at a GPU exception",
        env={"SGLANG_CUDA_COREDUMP": "1", "SGLANG_CUDA_COREDUMP_DIR": "{folder}/cuda"},
        since="0.5.9",
    ),
    "user-coredumps": Diagnostic(
        "lets a CUDA core dump be asked for while the server hangs",
        env={
            "CUDA_ENABLE_USER_TRIGGERED_COREDUMP": "1",
            "CUDA_COREDUMP_PIPE": "{folder}/pipe.%h.%p",
            "CUDA_COREDUMP_FILE": "{folder}/core.%h.%p.%t",
        },
    ),
    "flight-recorder": Diagnostic(
        "keeps the last collectives of each rank and dumps them at a timeout",
        env={
            "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
            "TORCH_FR_BUFFER_SIZE": "2000",
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "{folder}/flight_",
            "TORCH_FR_DUMP_TEMP_FILE": "{folder}/flight_",
        },
    ),
    "nccl-log": Diagnostic(
        "makes NCCL print its set-up in full",
        env={"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,NVLS"},
    ),
}


def diagnostics(
    names: tuple[str, ...], service: str, version: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the flags and the variables that the names add.

    Raises ConfigError ``diag-too-new`` for one that this SGLang does not have yet.
    """
    folder = f"{ROOT}/{service}"
    flags: dict[str, str] = {}
    env: dict[str, str] = {}
    for name in names:
        entry = DIAGNOSTICS[name]
        if older(version, entry.since):
            raise ConfigError(
                "diag-too-new", f"{name} needs sglang {entry.since}, the host has {version}"
            )
        flags |= {k: v.replace("{folder}", folder) for k, v in entry.flags.items()}
        env |= {k: v.replace("{folder}", folder) for k, v in entry.env.items()}
    return flags, env


def older(version: str, since: str) -> bool:
    """Return whether a known version is before another; an unknown one never is."""
    try:
        return Version(version) < Version(since)
    except InvalidVersion:
        return False
