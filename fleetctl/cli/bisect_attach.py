"""Watching a bisect that runs in the background: its log, line by line, until the verdict."""

from __future__ import annotations

import json
from typing import Any

from fleetctl.cli import bisect_view, show
from fleetctl.clock import SystemClock
from fleetctl.errors import Exit, UsageError
from fleetctl.report import bisect as report
from fleetctl.trials import store

PAUSE = 0.3


def follow(bisect: str, *, as_json: bool) -> int:
    """Show what was told so far and what comes; return the exit code of the bisect."""
    state = store.load(bisect)
    path = bisect_view.log_file(state.id)
    if not path.is_file():
        raise UsageError(
            "not-detached",
            f"{state.id} never ran in the background of this machine",
            hint=f"fleetctl bisect show {state.id}",
        )
    clock = SystemClock()
    gone = False  # its process; what it wrote last is still to be read
    with path.open(encoding="utf-8", errors="replace") as log:
        line = ""
        while True:
            line += log.readline()
            if line.endswith("\n"):
                told, line = line, ""
                if (code := _told(told, state.id, as_json=as_json)) is not None:
                    return code
            elif not gone:
                gone = bisect_view.alive(state.id) is None
                clock.sleep(0.0 if gone else PAUSE)
            else:
                show.note(f"{state.id} does not run any more: `fleetctl bisect show {state.id}`")
                return int(Exit.NEGATIVE)


def _told(line: str, bisect: str, *, as_json: bool) -> int | None:
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:
        show.note(line.rstrip())
        return None
    if event.get("event") == "verdict":
        bisect_view.finish(store.load(bisect), event, as_json=as_json)
        return int(Exit.OK if event["status"] == "found" else Exit.NEGATIVE)
    if as_json:
        show.json_line(event)
    elif event.get("event") == "trial":
        show.note(report.table_row(event))
    elif text := report.event_line(event):
        show.note(text)
    return None
