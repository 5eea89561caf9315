"""How a deploy looks while it runs: JSON lines, plain lines, or one live line for each host on a terminal."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from fleetctl.apply.outcome import Outcome
from fleetctl.cli import app, show
from fleetctl.cli.live import LiveLines
from fleetctl.report import deploy as report

PLAIN_EVERY = 10.0  # seconds between plain lines that only say how far a phase is


class View:
    """Takes events and outcomes from the threads of the hosts."""

    def __init__(self, *, as_json: bool, diff: bool = False, dry_run: bool = False) -> None:
        self.as_json = as_json
        self.diff = diff
        self.dry_run = dry_run  # the plan is the result then, and no remark on the way to one
        self._lock = threading.Lock()
        self._last: dict[str, tuple[str, float]] = {}
        self._live = LiveLines(sys.stderr) if sys.stderr.isatty() and not as_json else None

    def tell(self, event: dict[str, Any]) -> None:
        """Show one event."""
        with self._lock:
            if self.as_json:
                show.json_line(event)
            elif event["event"] == "plan":
                self._plan(event)
            elif event["event"] == "phase":
                self._phase(event)
            else:
                self._line(report.event_line(event))

    def done(self, outcome: Outcome) -> None:
        """Show what became of one host."""
        with self._lock:
            event = outcome.to_event()
            if self.as_json:
                show.json_line(event)
            else:
                self._clear()
                show.out("\n".join(report.verdict_lines(event)))
            if outcome.fault is not None:
                app.report(outcome.fault, as_json=self.as_json)
            if self._live is not None:
                self._live.drop(f"{event['host']}/{event['service']}")

    def _plan(self, event: dict[str, Any]) -> None:
        self._clear()
        lines = [f"{event['host']}/{event['service']}: {event['summary']}"]
        lines += [f"  stops {holder['text']}" for holder in event["stops"]]
        lines += [f"  warning: {warning}" for warning in event["warnings"]]
        warned = [f for f in event["findings"] if f["severity"] == "warning"]
        lines += [f"  lint[{f['id']}]: {f['message']}" for f in warned]
        lines += [f"  {number}. {text}" for number, text in enumerate(event["texts"], 1)]
        if self.diff:
            lines += [line for one in event["diffs"] for line in one["text"].splitlines()]
        (show.out if self.dry_run else show.note)("\n".join(lines))

    def _phase(self, event: dict[str, Any]) -> None:
        key = f"{event['host']}/{event['service']}"
        phase, at = self._last.get(key, ("", 0.0))
        if self._live is not None and phase == event["phase"]:
            self._live.show(key, report.event_line(event))
            return
        if (
            phase == event["phase"]
            and time.monotonic() - at < PLAIN_EVERY
            and not event.get("note")
        ):
            return
        self._last[key] = (event["phase"], time.monotonic())
        self._line(report.event_line(event))

    def _line(self, text: str) -> None:
        if text:
            self._clear()
            show.note(text)
            if self._live is not None:
                self._live.draw()

    def _clear(self) -> None:
        if self._live is not None:
            self._live.clear()
