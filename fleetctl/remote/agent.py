"""The agent's main loop: JSON requests on standard input, events and results on standard output.

A verb ``unit.restart`` is ``VERBS["restart"]`` of ``fleetctl.remote.unit``: a function
``(args, session) -> dict``. The end of the input means that the client is gone.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import signal
import sys
import threading
import time
from typing import Any, Callable, Sequence

from fleetctl.remote import loader
from fleetctl.remote.fault import AgentError as AgentError


class Session:
    """What a verb may do besides returning: send events, and see whether to stop."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._id: Any = None
        self.gone = threading.Event()  # the client's end is closed
        self.changed = False  # a verb has changed this host, and may leave more than its answer
        self._cancel = threading.Event()

    def begin(self, request_id: Any) -> None:
        """Start on one request."""
        self._id = request_id
        self._cancel.clear()

    def emit(self, event: dict[str, Any]) -> None:
        """Send one event object; a client that is gone is noticed, not raised."""
        self._send({"id": self._id, "event": event})

    def cancelled(self) -> bool:
        """Return whether to stop at the next safe point."""
        return self.gone.is_set() or self._cancel.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleep that long or until cancelled; return whether to stop."""
        self._cancel.wait(seconds)
        return self.cancelled()

    def cancel(self) -> None:
        """Make the running verb stop soon."""
        self._cancel.set()


SILENCE = 40.0  # seconds without a word, not even a beat: the client is gone though the way stands


def _watch_client(heard: list[float], gone: Callable[[], None]) -> None:
    """Notice a client that has vanished without closing its end."""
    while time.monotonic() - heard[0] < SILENCE:
        time.sleep(2.0)
    gone()


def _reader(session: Session, requests: queue.Queue[Any], send: Callable[[Any], None]) -> None:
    """Read frames until the input ends."""
    heard = [time.monotonic()]

    def gone() -> None:
        session.gone.set()
        session.cancel()
        requests.put(None)

    threading.Thread(target=_watch_client, args=(heard, gone), daemon=True).start()
    for line in sys.stdin.buffer:
        heard[0] = time.monotonic()
        try:
            frame = json.loads(line.decode("utf-8"))
        except ValueError:
            continue
        if "verb" in frame:
            requests.put(frame)
        elif "cancel" in frame:
            session.cancel()
        elif "beat" in frame:
            send({"beat": frame["beat"]})
    gone()


def verb_of(text: str) -> Callable[[dict[str, Any], Session], dict[str, Any]]:
    """Return the function that ``module.function`` names. Raises AgentError ``unknown-verb``."""
    module_name, _, name = text.partition(".")
    if not module_name.isidentifier():
        raise AgentError("unknown-verb", "no verb " + repr(text))
    module = importlib.import_module("fleetctl.remote." + module_name)
    verb = getattr(module, "VERBS", {}).get(name)
    if verb is None:
        raise AgentError("unknown-verb", "no verb " + repr(text))
    found: Callable[[dict[str, Any], Session], dict[str, Any]] = verb
    return found


def _run(frame: dict[str, Any], session: Session) -> dict[str, Any]:
    return verb_of(str(frame["verb"]))(frame.get("args") or {}, session)


def _load(modules: Sequence[str]) -> None:
    """Compile what will be asked for, while the client is still busy; a fault is told when it is asked."""
    for name in modules:
        with contextlib.suppress(Exception):
            importlib.import_module("fleetctl.remote." + name)


def main(soon: Sequence[str] = ()) -> None:
    """Serve requests until the client is gone. ``soon``: modules to load in the meantime, in this order."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # a stray print must not break the protocol
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the end of the input ends it, after its atomic step
    lock = threading.Lock()

    def send(frame: dict[str, Any]) -> None:
        data = json.dumps(frame, separators=(",", ":"), default=str).encode("utf-8") + b"\n"
        with lock:
            try:
                while data:
                    data = data[out.write(data) :]
            except OSError:
                session.gone.set()
                session.cancel()

    session = Session(send)
    requests: queue.Queue[Any] = queue.Queue()
    threading.Thread(target=_reader, args=(session, requests, send), daemon=True).start()
    threading.Thread(target=_load, args=(soon,), daemon=True).start()
    while True:
        frame = requests.get()
        if frame is None:
            break
        session.begin(frame.get("id"))
        try:
            answer = {"result": _run(frame, session)}
        except AgentError as error:
            answer = {"error": error.fields}
        except OSError as error:
            answer = {"error": _os_error(error)}
        except Exception as error:  # noqa: BLE001  the far end shows it as a fault, never as a traceback
            answer = {"error": {
                "reference": "agent-fault",
                "message": "%s: %s" % (type(error).__name__, error),
                "where": _where(error),
            }}  # fmt: skip
        answer["id"] = frame.get("id")
        send(answer)
        if session.changed:
            session.changed = False
            loader.keep()


def _where(error: BaseException) -> str:
    """Return the line that raised. Without traceback, whose import is dear."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else "%s:%d" % (trace.tb_frame.f_code.co_filename, trace.tb_lineno)


def _os_error(error: OSError) -> dict[str, Any]:
    """Return the fields of a fault of the operating system, with the path that it names."""
    names = {
        28: "disk-full",
        30: "read-only",
        13: "permission-denied",
        1: "permission-denied",
        122: "disk-full",
    }
    return {
        "reference": names.get(error.errno or 0, "os-error"),
        "message": error.strerror or str(error),
        "where": str(error.filename or ""),
    }
