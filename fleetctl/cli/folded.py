"""Answers of many hosts for a person: equal ones once, a line that tells who is still awaited."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Any

from fleetctl.cli import show
from fleetctl.errors import FleetError
from fleetctl.fleet.fold import fold, ranges
from fleetctl.fleet.run import Outcome

QUIET_SECONDS = 1.0  # this long without an answer: what is there is shown, the rest comes later
ROWS = 8


def show_outcomes(outcomes: Iterable[Outcome], *, titles: bool = True) -> None:
    """Print outcomes folded by status and output, then faults folded by reference and message."""
    answers = list(outcomes)
    whole = fold((o.host, _answer(o)) for o in answers if o.error is None)
    for (rc, stdout, stderr, truncated), hosts in whole:
        if titles:
            _title(hosts, rc)
        _stream(stdout, sys.stdout)
        _stream(stderr, sys.stderr)
        if truncated:
            show.note(f"{ranges(hosts)}: output cut after 64 MiB")
        if rc and not titles:
            show.note(f"{ranges(hosts)}: exit status {rc}")
    faults = {_fault_key(o.error): o.error for o in answers if o.error is not None}
    for key, hosts in fold((o.host, _fault_key(o.error)) for o in answers if o.error is not None):
        show.fault(_at(faults[key], ranges(hosts)))


def _answer(outcome: Outcome) -> tuple[int | None, bytes, bytes, bool]:
    return outcome.rc, outcome.stdout, outcome.stderr, outcome.truncated


def _title(hosts: list[str], rc: int | None) -> None:
    count = f" ({len(hosts)})" if len(hosts) > 1 else ""
    status = f": exit status {rc}" if rc else ""
    text = f"{ranges(hosts)}{count}{status}"
    if show.colour(sys.stdout):
        colour = "31" if rc else "32"
        print(f"\x1b[1;{colour}m{show.safe_line(text)}\x1b[0m", flush=True)
    else:
        rule = "-" * min(len(text), 78)
        show.out(f"{rule}\n{text}\n{rule}")


def _stream(data: bytes, stream: Any) -> None:
    if data:
        text = show.safe(data.decode(errors="replace"))
        print(text, end="" if text.endswith("\n") else "\n", file=stream, flush=True)


def _fault_key(error: FleetError | None) -> tuple[str, str, str]:
    assert error is not None
    return error.reference, error.message, error.hint


def _at(error: FleetError | None, hosts: str) -> FleetError:
    assert error is not None
    return FleetError(
        error.reference, error.message, where=hosts, hint=error.hint, context=error.context
    )


class Awaited:
    """A small table on the terminal: how many hosts are done, what the slowest of the others do."""

    def __init__(self, count: int, doing: dict[str, tuple[str, float]]) -> None:
        self._count = count
        self._doing = doing
        self._done = 0
        self._bad = 0
        self._began = time.monotonic()
        self._lines = 0
        self._on = count > 0 and show.colour(sys.stderr)

    def answered(self, outcome: Outcome) -> None:
        """Note that a host answered."""
        self._done += 1
        self._bad += bool(outcome.exit_code)

    def draw(self) -> None:
        """Draw it anew, where there is a terminal and it is worth it."""
        now = time.monotonic()
        if not self._on or now - self._began < 0.5 or self._done == self._count:
            return
        oldest = sorted(self._doing.items(), key=lambda item: item[1][1])
        bad = f", {self._bad} failed" if self._bad else ""
        lines = [f"{self._done}/{self._count} done{bad}, {now - self._began:.0f} s"]
        lines += [
            f"  {n:<24.24} {what:<11}{now - since:6.1f} s" for n, (what, since) in oldest[:ROWS]
        ]
        more = self._count - self._done - min(len(oldest), ROWS)
        if more > 0:
            lines.append(f"  and {more} more")
        self.clear()
        print("\n".join(map(show.safe_line, lines)), end="", file=sys.stderr, flush=True)
        self._lines = len(lines)

    def clear(self) -> None:
        """Take the table away, so that results can be written."""
        if self._lines:
            up = f"\x1b[{self._lines - 1}A" if self._lines > 1 else ""
            print(f"\r{up}\x1b[J", end="", file=sys.stderr, flush=True)
            self._lines = 0
