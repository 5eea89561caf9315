"""Threads for several hosts, with an orderly end on Ctrl-C. Loads little, so that logins begin early."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from fleetctl.apply.session import Session
from fleetctl.errors import Exit
from fleetctl.model.fleet import Target

T = TypeVar("T")
R = TypeVar("R")
WORKERS = 32


class Crew:
    """Threads for hosts. Ctrl-C asks each to stop at its next safe point, again gives up, thrice ends all."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._sessions: list[Session] = []
        self._early: dict[str, Session] = {}

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

    def close(self) -> None:
        """End every session, side by side: each waits for its host's last word."""
        ends = [threading.Thread(target=s.close, daemon=True) for s in self._sessions]
        for end in ends:
            end.start()
        for end in ends:
            end.join()

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Return the results in order. KeyboardInterrupt is swallowed once: the work says how it ended."""
        if not items:
            return []
        with concurrent.futures.ThreadPoolExecutor(min(len(items), WORKERS)) as pool:
            futures = [pool.submit(work, item) for item in items]
            try:
                self._wait(futures)
            except KeyboardInterrupt:
                self.stop.set()
                for session in self._sessions:
                    session.cancel()
                try:
                    self._wait(futures)
                except KeyboardInterrupt:  # once more: not even the host's last word is waited for
                    self.close()
                    self._last_wait(futures)
            return [future.result() for future in futures]

    def _last_wait(self, futures: Sequence[concurrent.futures.Future[R]]) -> None:
        try:
            self._wait(futures)
        except KeyboardInterrupt:  # a thread that cannot end must not keep the terminal
            os._exit(Exit.INTERRUPTED)

    @staticmethod
    def _wait(futures: Sequence[concurrent.futures.Future[R]]) -> None:
        pending = set(futures)
        while pending:  # in small steps, so that Ctrl-C is seen at once
            _, pending = concurrent.futures.wait(pending, timeout=0.2)


@contextlib.contextmanager
def crew() -> Iterator[Crew]:
    """A crew whose sessions are closed at the end."""
    found = Crew()
    try:
        yield found
    finally:
        found.close()
