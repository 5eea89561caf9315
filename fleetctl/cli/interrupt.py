"""Ctrl-C that neither falls between the lines of an import nor gets lost."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any

_AGAIN = 0.005  # seconds


def guard() -> None:
    """Let SIGINT raise KeyboardInterrupt, but a moment later where an exception would do harm or be lost.

    The import machinery takes the interpreter's import lock in plain lines of Python: an exception between
    them keeps the lock, and each thread that imports something afterwards waits for ever. And where Python
    can raise nothing, in a destructor or the callback of a weak reference, it drops the exception.
    A SIGINT that is ignored stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    signal.signal(signal.SIGALRM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _dropped


def _interrupt(_number: int, frame: FrameType | None) -> None:
    if frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        _again()
        return
    raise KeyboardInterrupt


def _dropped(told: Any) -> None:
    if told.exc_type is KeyboardInterrupt:
        _again()
    else:
        sys.__unraisablehook__(told)


def _again() -> None:
    signal.setitimer(signal.ITIMER_REAL, _AGAIN)
