"""Time as a dependency, so that waiting can be tested without waiting."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What code that waits may ask for."""

    def now(self) -> datetime:
        """Return the wall clock in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait that many seconds."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the wall clock in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds since some fixed point."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait that many seconds."""
        time.sleep(seconds)


class FakeClock:
    """A clock that only moves when somebody sleeps on it."""

    def __init__(self, start: datetime | None = None) -> None:
        self._start = start or datetime(2026, 1, 1, tzinfo=UTC)
        self.elapsed = 0.0

    def now(self) -> datetime:
        """Return the start plus what was slept so far."""
        return datetime.fromtimestamp(self._start.timestamp() + self.elapsed, UTC)

    def monotonic(self) -> float:
        """Return what was slept so far, in seconds."""
        return self.elapsed

    def sleep(self, seconds: float) -> None:
        """Move the clock."""
        self.elapsed += seconds


def rfc3339(moment: datetime) -> str:
    """Return the moment as RFC 3339 in UTC with milliseconds, ``2026-11-29T15:46:29.123Z``."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
