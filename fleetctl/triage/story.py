"""What a log tells of one attempt to run the server: started, served, asked to stop, died, silent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from fleetctl.evidence.record import APP, SYSTEMD, Record
from fleetctl.triage.match import Match

SILENCE = (
    180.0  # seconds of answered health probes without a scheduler's line, while it had requests
)
REFUSED = 3  # health probes in a row that a server refused which had served
_RUNNING = re.compile(r"#running-req: ?([1-9]\d*)|#queue-req: ?([1-9]\d*)")
_START = re.compile(r"(?:Starting|Started) \S")


@dataclass(slots=True)
class Story:
    """Signs found in one attempt; each list is in the order of the log."""

    signs: dict[str, list[Match]] = field(default_factory=dict)
    asked_stop: bool | None = None
    hung: bool = False  # as the collector of a bundle saw it
    host_down: bool = False  # likewise

    def of(self, *meanings: str) -> list[Match]:
        """Return the matches with one of the meanings."""
        return [m for meaning in meanings for m in self.signs.get(meaning, ())]

    def first(self, *meanings: str) -> int:
        """Return where the first of them stands, or a huge number."""
        return min((m.unit.index for m in self.of(*meanings)), default=1 << 60)

    def last(self, *meanings: str) -> int:
        """Return where the last of them stands, or -1."""
        return max((m.unit.index for m in self.of(*meanings)), default=-1)

    def alive_after(self, index: int) -> bool:
        """Return whether the server shows life after a place and no death."""
        lives = self.last("alive", "batch", "ready", "health-ok") > index
        return lives and self.last("dead", "killed") < index

    def dead_after(self, index: int) -> bool:
        """Return whether a process of the server ends after a place, or at it."""
        return self.last("dead", "killed") >= index

    @property
    def stopped_on_request(self) -> bool:
        """Return whether somebody asked for the stop before anything died."""
        if self.asked_stop is not None:
            return self.asked_stop
        return self.first("stop") <= self.first("dead", "killed", "fatal-head")


def tell(
    matches: Sequence[Match],
    asked_stop: bool | None = None,
    *,
    hung: bool = False,
    host_down: bool = False,
) -> Story:
    """Return the story that the matches of one attempt tell, and what the collector saw."""
    story = Story(asked_stop=asked_stop, hung=hung, host_down=host_down)
    for match in matches:
        if match.rule.means:
            story.signs.setdefault(match.rule.means, []).append(match)
    return story


def silent(story: Story) -> Match | None:
    """Return the first health probe that was answered while the busy scheduler had fallen silent, or None."""
    batches = story.of("batch")
    if not batches or not _RUNNING.search(batches[-1].unit.text):
        return None
    last = batches[-1].unit
    if story.last("alive") > last.index or story.last("dead", "killed", "stop") > last.index:
        return None
    probes = [m for m in story.of("health-ok") if m.unit.index > last.index]
    times = [m.unit.seconds for m in probes if m.unit.seconds is not None]
    if last.seconds is None or len(times) < 3 or max(times) - last.seconds < SILENCE:
        return None
    return probes[0]


def unanswered(story: Story) -> Match | None:
    """Return the first of the health probes that a server refused to the end though it had served, or None."""
    served = story.last("alive", "batch", "ready", "health-ok")
    ended = story.last("dead", "killed", "stop", "stop-weak")
    probes = [m for m in story.of("health-refused") if m.unit.index > served >= 0]
    return probes[0] if len(probes) >= REFUSED and ended < probes[0].unit.index else None


def attempts(records: Sequence[Record], ends: Sequence[int]) -> list[range]:
    """Return the ranges of records of each start of the service.

    Args:
        records: in the order of time.
        ends: places where a process of the server was seen to die or to be ready.
    """
    cuts: list[int] = []
    for index, record in enumerate(records):
        systemd = record.origin == SYSTEMD and _START.match(record.text) is not None
        again = record.origin == APP and record.text.startswith("server_args=")
        fresh = not cuts or index - cuts[-1] > 8 or _has_app(records, cuts[-1], index)
        ended = again and any((cuts[-1] if cuts else -1) < end < index for end in ends)
        if (systemd and fresh) or ended:
            cuts.append(index)
    bounds = [0, *(c for c in cuts if c), len(records)]
    return [range(a, b) for a, b in pairwise(bounds) if b > a]


def _has_app(records: Sequence[Record], start: int, end: int) -> bool:
    return any(r.origin == APP for r in records[start:end])


def is_fragment(records: Sequence[Record], span: range) -> bool:
    """Return whether a range holds nothing that the server itself printed."""
    return not any(records[i].origin == APP and records[i].text.strip() for i in span)
