"""Ctrl-C, a kill or a closed terminal: none falls between the lines of an import or gets lost."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

_AGAIN = 0.005  # seconds
_screens: list[int] = []  # what a closed terminal takes along


def guard() -> None:
    """Let SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt, a moment later where that would harm or be lost.

    The import machinery takes the interpreter's import lock in plain lines of Python: an exception between
    them keeps the lock, and each thread that imports something afterwards waits for ever. And where Python
    can raise nothing, in a destructor or the callback of a weak reference, it drops the exception.
    One that is ignored stays ignored, as nohup wants it.
    """
    ways = {signal.SIGINT: _interrupt, signal.SIGTERM: _interrupt, signal.SIGHUP: _hung_up}
    for number, handler in ways.items():
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, handler)
    signal.signal(signal.SIGALRM, _interrupt)
    sys.unraisablehook = _dropped
    _screens.extend(number for number in (1, 2) if os.isatty(number))


def _hung_up(_number: int, _frame: FrameType | None) -> None:
    """Take it as a kill, with what is still said going nowhere: a fault in writing would cut the end short."""
    if _screens:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        while _screens:
            os.dup2(nowhere, _screens.pop())
        os.close(nowhere)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the shell of that terminal sends its own
    signal.raise_signal(signal.SIGTERM)


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
