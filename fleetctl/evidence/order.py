"""Find out whether a log was exported newest first, and turn it round."""

from __future__ import annotations

from itertools import pairwise

from fleetctl.evidence.record import Record

_HEADER, _FRAME = "Traceback (most recent call last)", 'File "'


def oldest_first(records: list[Record]) -> list[Record]:
    """Return the records in the order of time; records of one entry stay together where they were."""
    times = [r.seconds for r in records if r.seconds is not None]
    steps = [later - earlier for earlier, later in pairwise(times)]
    back = sum(step < 0 for step in steps)
    forward = sum(step > 0 for step in steps)
    if back < 2 or back <= 3 * forward:
        if back or forward or not _upside_down(records):
            return records
        return records[::-1]
    return records[::-1] if _upside_down(records) or not _in_blocks(records) else _blocks(records)


def _upside_down(records: list[Record]) -> bool:
    """Return whether frames stand above the header of their traceback."""
    above = below = 0
    for one, two in pairwise(records):
        if (
            _HEADER in two.text
            and one.text.lstrip().startswith((_FRAME, "^", "~"))
            and _FRAME not in two.text
        ):
            above += 1
        if _HEADER in one.text and two.text.lstrip().startswith(_FRAME):
            below += 1
    return above > below


def _in_blocks(records: list[Record]) -> bool:
    return any(_HEADER in r.text for r in records) or any(r.seconds is None for r in records)


def _blocks(records: list[Record]) -> list[Record]:
    """Reverse entries, where an entry is a line with a time and the lines without one below it."""
    blocks: list[list[Record]] = []
    for record in records:
        if (record.seconds is None and blocks) or (
            blocks and blocks[-1][-1].seconds == record.seconds and record.site is None
        ):
            blocks[-1].append(record)
        else:
            blocks.append([record])
    return [record for block in reversed(blocks) for record in block]
