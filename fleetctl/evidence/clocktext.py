"""Read the times that logs print, enough to order lines and measure silence."""

from __future__ import annotations

import re
from functools import lru_cache

_MONTHS = {
    m: i
    for i, m in enumerate(
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    )
}
_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_SHORT = re.compile(r"(?<![\d-])(\d\d)-(\d\d)[ T]")
_NAMED = re.compile(r"([A-Z][a-z]{2}) +(\d{1,2})(?=[ ,])")
_ZONE = re.compile(r"(?<=\d)([+-])(\d\d):?(\d\d)\b")
_BEFORE = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)


@lru_cache(maxsize=4096)
def seconds(when: str) -> float | None:
    """Return a time in seconds on a scale of its own kind, or None.

    Dates without a year and clocks without a date are only good for differences inside one log.
    """
    clock = _CLOCK.search(when)
    if clock is None:
        return _bare(when)
    hours, minutes, secs, fraction = clock.groups()
    value = int(hours) * 3600 + int(minutes) * 60 + int(secs) + float(f"0.{fraction or 0}")
    zone = _ZONE.search(when, clock.end() - 1)
    if zone is not None:
        offset = int(zone.group(2)) * 3600 + int(zone.group(3)) * 60
        value += offset if zone.group(1) == "-" else -offset
    return value + 86400 * _day(when[: clock.start()])


def _day(date: str) -> int:
    iso = _ISO.search(date)
    if iso is not None:
        year, month, day = (int(g) for g in iso.groups())
        return (year - 1970) * 366 + _BEFORE[min(max(month, 1), 12) - 1] + day
    named = _NAMED.search(date)
    if named is not None and named.group(1) in _MONTHS:
        return _BEFORE[_MONTHS[named.group(1)]] + int(named.group(2))
    short = _SHORT.search(date)
    if short is not None:
        return _BEFORE[min(max(int(short.group(1)), 1), 12) - 1] + int(short.group(2))
    return 0


def _bare(when: str) -> float | None:
    try:
        return float(when)
    except ValueError:
        return None
