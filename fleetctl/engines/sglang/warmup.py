"""Whether SGLang proves by a request of its own that it serves, before it says that it is ready.

Read from ``_wait_and_warmup`` and ``_execute_server_warmup`` of 0.4.0, 0.5.10, 0.5.12.post1, 0.5.15 and 0.5.23.
"""

from __future__ import annotations

from fleetctl.model.launch import LaunchConfig

# With any of these the line comes without an answered request, or another program prints it.
WITHOUT = (
    "skip-server-warmup",
    "debug-tensor-dump-input-file",  # it ends after the line
    "ep-join-mode",  # the server that it joins answers
    "tokenizer-worker-num",  # each worker has a line of its own
    "grpc-mode",
    "config",  # a file that may hold any of these
)
OTHER_FRONT_END = "SGLANG_RUST_SERVER"


def warms_up(config: LaunchConfig) -> bool:
    """Return whether the ready line of this launch means that a request through every rank was answered.

    False also where nothing is known of the launch. Prefill and decode servers print the line although
    their request failed.
    """
    flags = config.flags
    if not config.model or any(flags.get(name) not in (None, False) for name in WITHOUT):
        return False
    apart = str(flags.get("disaggregation-mode") or "null") != "null"
    return not apart and config.env.get(OTHER_FRONT_END, "0").lower() in ("", "0", "false")
