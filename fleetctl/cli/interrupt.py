"""Ctrl-C that does not fall between the lines of an import, where it would leave a lock taken for ever."""

from __future__ import annotations

import signal
from types import FrameType

_AGAIN = 0.005  # seconds


def guard() -> None:
    """Let SIGINT raise KeyboardInterrupt, but a moment later where the import machinery is at work.

    That machinery takes the interpreter's import lock in plain lines of Python: an exception between them
    keeps the lock, and each thread that imports something afterwards waits for ever. A SIGINT that is
    ignored stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    signal.signal(signal.SIGALRM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)


def _interrupt(_number: int, frame: FrameType | None) -> None:
    if frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        return
    raise KeyboardInterrupt
