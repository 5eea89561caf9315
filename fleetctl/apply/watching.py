"""Wait for a launch by watching it on its host, also across a connection that is lost."""

from __future__ import annotations

import time
from typing import Any

from fleetctl.apply.session import Event, Session, Sink
from fleetctl.engines.sglang import warmup
from fleetctl.errors import UnreachableError
from fleetctl.model.fleet import Target
from fleetctl.model.launch import LaunchConfig

SHALLOW = "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"


def watch_args(target: Target, config: LaunchConfig, invocation: str) -> dict[str, Any]:
    """Return what the watch on the host has to know of a launch."""
    flags = config.flags
    key = str(flags.get("api-key") or "")
    return {
        "service": target.service.name,
        "unit": target.service.unit,
        "invocation_id": invocation,
        "port": target.service.port,
        "address": str(flags.get("host") or ""),
        "tls": bool(flags.get("ssl-certfile")),
        "sglang": config.versions.get("sglang"),
        "model": config.model,
        "served_name": flags.get("served-model-name"),
        "skip_warmup": flags.get("skip-server-warmup") is True,
        "warms_up": warmup.warms_up(config),
        # A secret one is read on the host, from the file that SGLang itself reads.
        "key": "" if key.startswith("(secret:") else key,
        "shallow_health": config.env.get(SHALLOW, "").lower() in ("0", "false"),
    }


class Bookmark:
    """How far the watch has come, so that another agent can go on from there."""

    def __init__(self) -> None:
        self.cursor = ""
        self.phase = ""
        self.began = time.monotonic()
        self.answers = 0
        self.ready = False

    def note(self, event: Event) -> None:
        """Take an event of the agent; its cursor is for us alone."""
        self.cursor = event.pop("cursor", "") or self.cursor
        self.phase = event.get("phase", self.phase)
        self.answers += event.get("event") == "request"
        self.ready = self.ready or event.get("event") == "ready"

    def resume(self) -> dict[str, Any]:
        """Return what the next agent is told."""
        return {
            "cursor": self.cursor,
            "phase": self.phase,
            "seconds": time.monotonic() - self.began,
            "ready_line": self.phase == "serving",
            "ready": self.ready,
        }


def watch(session: Session, args: dict[str, Any], tell: Sink) -> dict[str, Any]:
    """Watch to the end and return the agent's result. Raises UnreachableError when the host stays away."""
    bookmark = Bookmark()

    def on_event(event: Event) -> None:
        bookmark.note(event)
        tell(event)

    requests = list(args.get("requests") or ())
    while True:
        try:
            return session.call("watch.run", args, on_event=on_event, timeout=None)
        except UnreachableError:
            session.reconnect(tell)
        rest = requests[bookmark.answers :]
        args = args | {"requests": rest}
        if bookmark.cursor:
            args = args | {"resume": bookmark.resume()}
