"""Questions to the person at the terminal: one at a time, each asked once a process."""

from __future__ import annotations

import contextlib
import getpass
import os
import threading

from fleetctl.transport.deadline import Deadline

_lock = threading.Lock()
_answers: dict[tuple[str, ...], str | None] = {}


def terminal() -> bool:
    """Return whether somebody can be asked."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def visible(text: str) -> str:
    """Return a server's text without what could steer the terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def secret(
    key: tuple[str, ...], question: str, deadline: Deadline, *, echo: bool = False
) -> str | None:
    """Return the answer, or None where nobody can be asked or nothing was typed.

    Threads that ask the same (``key``) wait for the first one's answer. The wait does not
    count against ``deadline``.
    """
    with deadline.paused(), _lock:
        if key not in _answers:
            _answers[key] = _ask(question, echo) if terminal() else None
        return _answers[key]


def forget(key: tuple[str, ...]) -> None:
    """Drop an answer that proved wrong, so that it is asked again."""
    with _lock:
        _answers.pop(key, None)


def _ask(question: str, echo: bool) -> str | None:
    with contextlib.suppress(EOFError):
        if echo:
            with open("/dev/tty", "r+", encoding="utf-8", buffering=1) as tty:  # noqa: PTH123
                tty.write(visible(question))
                return tty.readline().rstrip("\n") or None
        return getpass.getpass(visible(question)) or None
    return None
