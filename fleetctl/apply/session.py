"""A session with the agent of one host that can be taken up again after the connection was lost."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from fleetctl.clock import Clock, SystemClock
from fleetctl.errors import FleetError, RemoteError, UnreachableError
from fleetctl.model.fleet import Host
from fleetctl.transport import connect
from fleetctl.transport.agent import Agent
from fleetctl.transport.base import Connection

if TYPE_CHECKING:
    from fleetctl.model.facts import PatchNote

# In the order in which a deploy asks for them: the agent loads them while nothing is asked yet.
SOON = ("several", "facts", "doctor", "model_folder", "apply", "unit", "watch")
MODULES = (
    *SOON,
    "collect",
    "flags",
    "lock",
    "logs",
    "patching",
    "pending",
    "records",
    "revisions",
    "status",
)
NOTES = "patch_store.notes"
NOTING = ("patch_store", "several")  # the modules that ``noting`` needs
CONNECT_SECONDS = 10.0
REATTACH_SECONDS = 900.0

Event = dict[str, Any]
Sink = Callable[[Event], None]


class Interrupted(FleetError):
    """The person pressed Ctrl-C, or wants the command to end."""

    def __init__(self, where: str) -> None:
        from fleetctl.errors import Exit

        super().__init__(
            "interrupted", "interrupted", where=where, exit_code=Exit.INTERRUPTED
        )  # fmt: skip


class Session:
    """One host's connection and agent. Use as a context manager."""

    def __init__(
        self,
        host: Host,
        *,
        stop: threading.Event | None = None,
        timeout: float = CONNECT_SECONDS,
        clock: Clock | None = None,
        open_connection: Callable[[Host, float], Connection] = connect,
        modules: tuple[str, ...] = MODULES,
    ) -> None:
        self.host = host
        self.stop = stop or threading.Event()
        self._timeout = timeout
        self._clock = clock or SystemClock()
        self._open = open_connection
        self._modules = modules
        self._connection: Connection | None = None
        self._agent: Agent | None = None
        self._opening: threading.Thread | None = None
        self._fault: FleetError | None = None
        self._noting: list[str] | None = None
        self.noted: list[tuple[str, tuple[PatchNote, ...]]] = []

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End agent and connection; what is lost already is no fault."""
        self._end(lost=False)

    def _end(self, *, lost: bool) -> None:
        agent, self._agent = self._agent, None
        connection, self._connection = self._connection, None
        # Over a way that is cut a polite end would wait for answers that never come.
        ends = (connection, agent) if lost else (agent, connection)
        for end in ends:
            if end is not None:
                with contextlib.suppress(Exception):
                    end.close()

    def open_soon(self) -> None:
        """Begin to connect in another thread; the next call waits for it and tells its fault."""
        if self._agent is None and self._opening is None:
            self._opening = threading.Thread(target=self._try_open, daemon=True)
            self._opening.start()

    def _try_open(self) -> None:
        try:
            self._start()
        except FleetError as error:
            self._fault = error

    def _start(self) -> None:
        self._connection = self._open(self.host, self._timeout)
        self._agent = Agent(
            self._connection, self._modules, tuple(m for m in SOON if m in self._modules)
        )

    @property
    def agent(self) -> Agent:
        """Return the running agent, starting it when there is none."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.join()
            fault, self._fault = self._fault, None
            if fault is not None:
                raise fault
        if self._agent is None:
            self._start()
        assert self._agent is not None
        return self._agent

    def call(
        self,
        verb: str,
        args: Mapping[str, Any] | None = None,
        *,
        on_event: Sink | None = None,
        timeout: float | None = 60.0,
    ) -> dict[str, Any]:
        """Run one verb. Raises UnreachableError when the session is lost; the next call starts anew."""
        if self.stop.is_set():
            raise Interrupted(self.host.name)
        if self._noting is not None and verb != "several.run":
            both = {verb: args or {}, NOTES: {"services": self._noting}}
            said = self.call("several.run", {"verbs": both}, on_event=on_event, timeout=timeout)
            self._note(said[NOTES]["patch_notes"])
            return dict(said[verb])
        try:
            return self.agent.call(verb, args, on_event=on_event, timeout=timeout)
        except (UnreachableError, RemoteError) as error:
            if isinstance(error, UnreachableError) or error.reference == "agent-died":
                self._end(lost=True)
            raise

    def noting(self, *services: str) -> Self:
        """Have the next answer bring the patches of these services along (none named: all of the host).

        They are in ``noted`` then, by ``HOST/SERVICE``.
        """
        self._noting = list(services)
        return self

    def _note(self, said: Mapping[str, Any]) -> None:
        from fleetctl.patching import active

        self._noting = None
        for service, notes in said.items():
            self.noted.append(
                (f"{self.host.name}/{service}", active.notes_of({"patch_notes": notes}))
            )

    def cancel(self) -> None:
        """Ask the running verb to stop at its next safe point. May be called from another thread."""
        agent = self._agent
        if agent is not None:
            with contextlib.suppress(FleetError, OSError, EOFError):
                agent.cancel()

    def reconnect(self, tell: Sink, seconds: float = REATTACH_SECONDS) -> None:
        """Come back to the host, trying for that long with backoff and jitter. Raises the last fault."""
        import tenacity

        def before(state: tenacity.RetryCallState) -> None:
            tell({"event": "connection", "state": "lost", "attempt": state.attempt_number})

        def pause(length: float) -> None:
            if self.stop.is_set():
                raise Interrupted(self.host.name)
            self._clock.sleep(length)

        began = self._clock.monotonic()
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_worth_another),
            wait=tenacity.wait_exponential_jitter(multiplier=0.5, max=15.0),
            stop=lambda _: self._clock.monotonic() - began >= seconds,
            sleep=pause,
            before_sleep=before,
            reraise=True,
        )
        retrying(self._hello)
        tell({"event": "connection", "state": "back"})

    def _hello(self) -> None:
        self._end(lost=True)
        self.call("unit.show", {"units": []}, timeout=self._timeout)


def _worth_another(error: BaseException) -> bool:
    """A host that is away may come back; one whose key changed or that says no will not."""
    final = {"auth-failed", "host-key-changed", "host-key-unknown", "name-unknown"}
    return isinstance(error, UnreachableError) and error.reference not in final
