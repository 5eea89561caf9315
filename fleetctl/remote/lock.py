"""The lock of one service on one host: an atomic mkdir with who, when, why, and a heartbeat.

/run is empty after a boot, and a holder that stops beating for TTL seconds has lost its lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
import time
from typing import Any, Iterator

from fleetctl.remote import files, places, records
from fleetctl.remote.agent import AgentError

TTL = 60.0  # seconds without a heartbeat
BEAT = 10.0
TELL = 5.0  # seconds between two words to who waits
FENCE = 10.0  # seconds for which files may be changing before their lock is broken all the same
LOCKED = 5  # exit code of the command line


class Locked(AgentError):
    """Somebody else holds the lock."""


def _started(pid: int) -> int:
    """Return when a process began, in clock ticks since the boot; 0 for one that is gone."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def alive(found: dict[str, Any]) -> bool:
    """Return whether the holder still beats, and its process is there (locks do not outlive a boot)."""
    if found["beat_seconds"] > TTL:
        return False
    return not found.get("pid") or _started(found["pid"]) == found["process_start"]


def _folder(service: str) -> str:
    return os.path.join(places.LOCKS, places.safe_name(service))


def holder(service: str) -> dict[str, Any] | None:
    """Return who holds the lock, with ``beat_seconds`` since the last heartbeat, or None."""
    folder = _folder(service)
    try:
        with open(os.path.join(folder, "holder.json"), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        found = {"who": "unknown", "since": "", "why": "", "token": ""}
    try:
        beat = os.stat(os.path.join(folder, "beat")).st_mtime
    except OSError:
        try:
            beat = os.stat(folder).st_mtime  # between mkdir and the first beat
        except FileNotFoundError:
            return None
    found["beat_seconds"] = max(0.0, time.time() - beat)
    return dict(found)


class Lock:
    """A lock that is held. Its heartbeat runs until ``release``."""

    def __init__(self, service: str, nonce: str) -> None:
        self.service = service
        self.nonce = nonce  # of this holder: the same client may come back with another agent
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._done.wait(BEAT):
            if not self.held():
                return
            _touch(self.service)

    def held(self) -> bool:
        """Return whether it is still ours: somebody may have broken it."""
        found = holder(self.service)
        return found is not None and found.get("nonce") == self.nonce

    def release(self) -> None:
        """Give it back; a lock that was broken and taken by another stays theirs."""
        self._done.set()
        if self.held():
            _remove(_folder(self.service))


def _remove(folder: str) -> None:
    """Remove a lock's folder, which holds files alone."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)


def _touch(service: str) -> None:
    path = os.path.join(_folder(service), "beat")
    try:
        with open(path, "a"):
            os.utime(path)
    except OSError:
        pass


@contextlib.contextmanager
def fence() -> Iterator[None]:
    """Within, no lock of this host changes its holder.

    Who changes files looks whose the lock is and changes them within one fence: nobody breaks the lock
    in between. After ``FENCE`` seconds it is given up, lest a process that is stopped keeps all others out.
    """
    os.makedirs(places.LOCKS, mode=0o755, exist_ok=True)
    handle = os.open(places.LOCKS, os.O_RDONLY)
    until = time.monotonic() + FENCE
    try:
        while time.monotonic() < until:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.01)
        yield
    finally:
        os.close(handle)


def acquire(service: str, who: dict[str, Any], force: str = "") -> Lock:
    """Take the lock. AgentError ``locked`` names the holder.

    ``who`` holds token, who, why and command. The same token takes its own lock again (a client that
    came back after a lost connection). ``force`` is the reason for breaking somebody else's.
    """
    folder = _folder(service)
    os.makedirs(places.LOCKS, mode=0o755, exist_ok=True)
    for _ in range(3):
        try:
            os.mkdir(folder, 0o755)
        except FileExistsError:
            found = holder(service)
            if found is None:
                continue
            if found.get("token") == who["token"]:
                break
            if alive(found) and not force:
                raise _locked(service, found)
            why = force or "its process is gone, no heartbeat for %d s" % found["beat_seconds"]
            by = who.get("who", "")
            records.audit(
                {"do": "break-lock", "service": service, "from": found, "by": by, "why": why}
            )
            _move_away(folder)
            continue
        break
    else:
        raise Locked("locked", "somebody else takes the lock all the time", exit_code=LOCKED)
    _touch(service)
    body = {k: who.get(k, "") for k in ("token", "who", "why", "command")}
    body["since"] = records.now()
    body["nonce"] = os.urandom(16).hex()
    body.update(pid=os.getpid(), process_start=_started(os.getpid()))
    with fence():
        files.write_atomic(os.path.join(folder, "holder.json"), json.dumps(body) + "\n")
    return Lock(service, body["nonce"])


def _move_away(folder: str) -> None:
    """Take a dead lock away in one step: of two that try, one gets it and the other looks again."""
    grave = "%s.dead-%d-%d" % (folder, os.getpid(), threading.get_ident())
    try:
        with fence():
            os.rename(folder, grave)
    except FileNotFoundError:
        return
    _remove(grave)


def _locked(service: str, found: dict[str, Any]) -> Locked:
    why = " (%s)" % found["why"] if found.get("why") else ""
    return Locked(
        "locked",
        "%s holds the lock of %s since %s%s" % (found["who"], service, found["since"], why),
        hint="--lock-wait SECONDS waits for it, --break-lock REASON takes it; its last heartbeat was %d s ago"
        % found["beat_seconds"],
        context=[found["command"]] if found.get("command") else [],
        exit_code=LOCKED,
    )


def wait_free(service: str, seconds: float, session: Any) -> dict[str, Any] | None:
    """Wait until nobody holds the lock, or its holder is dead; return who was waited for, or None.

    AgentError ``locked`` after so many seconds, ``interrupted`` when the client is gone.
    """
    until = time.monotonic() + seconds
    waited: dict[str, Any] | None = None
    told = 0.0
    while True:
        found = holder(service)
        if found is None or not alive(found):
            return waited
        if time.monotonic() >= until:
            raise _locked(service, found)
        if session is not None and session.cancelled():
            raise AgentError("interrupted", "nothing was changed", exit_code=130)
        if session is not None and time.monotonic() - told >= TELL:
            told = time.monotonic()
            session.emit({
                "event": "waiting", "who": found["who"], "why": found.get("why", ""),
                "seconds": round(seconds - (until - told), 1),
            })  # fmt: skip
        waited = {k: found.get(k) for k in ("who", "why", "since")}
        time.sleep(0.2)


def _wait(args: dict[str, Any], session: Any) -> dict[str, Any]:
    return {"waited_for": wait_free(args["service"], float(args["seconds"]), session)}


def living(service: str) -> dict[str, Any] | None:
    """Return who holds the lock, None also for a holder that is dead."""
    found = holder(service)
    return found if found is not None and alive(found) else None


def _status(args: dict[str, Any], _session: Any) -> dict[str, Any]:
    return {"lock": living(args["service"])}


def _break(args: dict[str, Any], _session: Any) -> dict[str, Any]:
    found = holder(args["service"])
    if found is not None:
        records.audit({
            "do": "break-lock", "service": args["service"], "from": found,
            "by": args.get("by", ""), "why": args["reason"],
        })  # fmt: skip
        _move_away(_folder(args["service"]))
    return {"broken": found}


VERBS = {"status": _status, "break": _break, "wait": _wait}
