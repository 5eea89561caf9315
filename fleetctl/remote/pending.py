"""A unit that does not run: the restart that systemd is about to make, and whose wish its end was."""

from __future__ import annotations

import time
from typing import Any

from fleetctl.remote import journal, records, unit, watch_state

EVERY = 0.2
GONE = 3.0  # seconds without a start, after which none is to come
ENDED = ("inactive", "failed")


def coming(props: dict[str, str]) -> bool:
    """Return whether this invocation is over and systemd has not yet said what follows. Pure."""
    if props.get("SubState") in watch_state.RESTARTING:
        return True
    return props.get("ActiveState") == "deactivating"


def how(props: dict[str, str]) -> str:
    """Return in what way a unit is down. Pure."""
    if props.get("LoadState", "not-found") == "not-found":
        return "there is no such unit"
    return "%s, result %s" % (props.get("ActiveState", "inactive"), props.get("Result", "unknown"))


def _next(args: dict[str, Any], session: Any) -> dict[str, Any]:
    """Wait for the start that follows an invocation.

    ``state``: started (``invocation_id`` is the new one), down (none comes; ``ended`` says why),
    timeout, interrupted.
    """
    name, old, limit = args["unit"], args["invocation_id"], args.get("timeout")
    began = down_at = time.monotonic()
    while True:
        props, now = unit.must_show(name), time.monotonic()
        active = props.get("ActiveState", "inactive")
        invocation = props.get("InvocationID", "")
        if active not in ENDED and not coming(props) and invocation != old:
            return {"state": "started", "invocation_id": invocation}
        down_at = down_at if active in ENDED else now
        if now - down_at >= GONE:
            return {"state": "down"}
        if limit is not None and now - began >= float(limit):
            return {"state": "timeout"}
        if session.wait(EVERY):
            return {"state": "interrupted"}


def _ended(args: dict[str, Any], _session: Any) -> dict[str, Any]:
    """Return why a unit is down: ``stopped`` and ``given_up``, neither for an end that nobody asked for.

    ``stopped``: who asked for the end of the newest of these invocations that somebody stopped. Its
    ``by`` is empty for a stop that fleetctl did not make: the journal tells only when.
    """
    stopped = _stopped(args)
    props = unit.must_show(args["unit"])
    # systemd 252 leaves the result of the last run in place when it refuses a further start.
    restarts = props.get("Restart", "no") not in ("no", "")
    failed = props.get("ActiveState") == "failed"
    return {
        "stopped": stopped,
        "given_up": not stopped and failed and restarts,
        "restarts": int(props.get("NRestarts") or 0),
        "how": how(props),
    }


def _stopped(args: dict[str, Any]) -> dict[str, str]:
    for invocation in filter(None, args["invocations"]):
        asked = records.asked_stop(invocation)
        if asked is not None:
            return {k: str(asked.get(k) or "") for k in ("by", "at", "reason")}
        at = _told_to_stop(invocation)
        if at:
            return {"by": "", "at": records.rfc3339(at), "reason": ""}
    return {}


def _told_to_stop(invocation: str) -> float:
    """Return when systemd began to stop it (seconds since 1970), 0 where it was not told to."""
    argv = [
        "journalctl", "-q", "--no-pager", "-n", "1", "-o", "json",
        "MESSAGE_ID=" + watch_state.STOPPING, "INVOCATION_ID=" + invocation,
    ]  # fmt: skip
    for line in journal.read(argv, 5.0, 1 << 16):
        record = journal.parse(line)
        if record is not None:
            return int(record.get("__REALTIME_TIMESTAMP") or 0) / 1e6
    return 0.0


VERBS = {"next": _next, "ended": _ended}
