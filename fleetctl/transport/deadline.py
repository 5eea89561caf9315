"""One deadline over an exchange of many steps."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class Deadline:
    """Counts down from its creation. Time that a person spends at a prompt does not count."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds left, at least a millisecond, so that it can be given to any wait."""
        return max(self._end - time.monotonic(), 0.001)

    def over(self) -> bool:
        """Return whether no time is left."""
        return time.monotonic() >= self._end

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Give back the time that the block takes."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._end += time.monotonic() - began
