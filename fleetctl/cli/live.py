"""Lines at the foot of a terminal that are written over, one for each host."""

from __future__ import annotations

import shutil
from typing import TextIO

from fleetctl.cli import show

_LINE_GONE = "\r\x1b[K"
_LINE_ABOVE_GONE = "\x1b[A\r\x1b[K"


class LiveLines:
    """The present line of each host, the cursor behind the last.

    ``clear`` before any other output and ``draw`` after it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._texts: dict[str, str] = {}
        self._drawn = 0  # lines on the terminal now

    def show(self, key: str, text: str) -> None:
        """Put a text in the place of the one that the key had."""
        self._texts[key] = text
        self.clear()
        self.draw()

    def drop(self, key: str) -> None:
        """Take the line of a key away for good."""
        self._texts.pop(key, None)
        self.clear()
        self.draw()

    def clear(self) -> None:
        """Take all lines from the terminal."""
        if self._drawn:
            self._stream.write(_LINE_GONE + _LINE_ABOVE_GONE * (self._drawn - 1))
            self._stream.flush()
        self._drawn = 0

    def draw(self) -> None:
        """Put the lines there, as many as the terminal has room for; each is cut at its width."""
        columns, rows = shutil.get_terminal_size()
        texts = list(self._texts.values())
        room = max(1, rows - 2)
        if len(texts) > room:
            texts = [*texts[: room - 1], f"… and {len(texts) - room + 1} more"]
        if texts:
            self._stream.write("\n".join(show.safe_line(t)[: columns - 1] for t in texts))
            self._stream.flush()
        self._drawn = len(texts)
