"""Threads for several hosts, with an orderly end on Ctrl-C. Loads little, so that logins begin early."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from fleetctl.apply.session import Session
from fleetctl.errors import Exit
from fleetctl.model.fleet import Target

if TYPE_CHECKING:
    from fleetctl.model.facts import PatchNote

T = TypeVar("T")
R = TypeVar("R")
WORKERS = 32
STEP = 0.1  # seconds until Ctrl-C is seen
ENDS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C and a kill; a closed terminal comes as one


class Crew:
    """Threads for hosts. Ctrl-C or a kill stops each at a safe point, again gives up, a third ends all."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._sessions: list[Session] = []
        self._early: dict[str, Session] = {}
        self._pressed = 0
        self._heeded = 0

    def reach(self, targets: Sequence[Target]) -> None:
        """Begin to log in to the first of the hosts, each in its own thread; ``session`` takes them up."""
        for target in targets[:WORKERS]:
            session = self.session(target)
            session.open_soon()
            self._early[str(target)] = session

    def session(self, target: Target) -> Session:
        """Return a session with a host that ends with this crew's."""
        early = self._early.pop(str(target), None)
        if early is not None:
            return early
        session = Session(target.host, stop=self.stop)
        self._sessions.append(session)
        return session

    def noted(self) -> list[tuple[str, tuple[PatchNote, ...]]]:
        """Return the patches that came along with the answers of all hosts: ``Session.noting``."""
        return [found for session in self._sessions for found in session.noted]

    def close(self) -> None:
        """End every session, side by side: each waits for its host's last word."""
        ends = [threading.Thread(target=s.close, daemon=True) for s in self._sessions]
        for end in ends:
            end.start()
        for end in ends:
            end.join()

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Return the results in order. Ctrl-C raises nothing here: the work says how it ended."""
        if not items:
            return []
        with (
            self.patient(),
            concurrent.futures.ThreadPoolExecutor(min(len(items), WORKERS)) as pool,
        ):
            futures = [pool.submit(work, item) for item in items]
            pending = set(futures)
            while pending:
                _, pending = concurrent.futures.wait(pending, timeout=STEP)
                self._heed()
        return [future.result() for future in futures]

    @contextlib.contextmanager
    def patient(self) -> Iterator[None]:
        """Within, Ctrl-C is counted, and heeded at the next wait: what has begun gets to say how it ended."""
        with _pressing(self._press):
            yield

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """A question to a person within ``patient``: there Ctrl-C ends the question at once, and is counted."""
        try:
            with _pressing(signal.default_int_handler):
                yield
        except KeyboardInterrupt:
            self._pressed += 1
        self._heed()

    def _press(self, *_: object) -> None:
        self._pressed += 1

    def _heed(self) -> None:
        while self._heeded < self._pressed:
            self._heeded += 1
            if self._heeded == 1:
                self.stop.set()
                for session in self._sessions:
                    session.cancel()
            elif self._heeded == 2:  # not even the host's last word is waited for
                self.close()
            else:  # a thread that cannot end must not keep the terminal
                os._exit(Exit.INTERRUPTED)


@contextlib.contextmanager
def _pressing(handler: Callable[..., object]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDS}
    mine = {n: old for n, old in before.items() if old not in (signal.SIG_IGN, None)}
    for number in mine:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in mine.items():
            signal.signal(number, old)


@contextlib.contextmanager
def crew() -> Iterator[Crew]:
    """A crew whose sessions are closed at the end."""
    found = Crew()
    try:
        yield found
    finally:
        found.close()
