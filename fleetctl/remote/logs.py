"""The log of one invocation, redacted before it leaves the host."""

from __future__ import annotations

from typing import Any

from fleetctl.remote import journal, patch_store, places, redact, unit
from fleetctl.remote.agent import AgentError

BATCH = 200


def _which(args: dict[str, Any]) -> str:
    invocation = args.get("invocation") or unit.must_show(args["unit"], ("InvocationID",)).get(
        "InvocationID", ""
    )
    if not invocation:
        raise AgentError(
            "no-invocation",
            "%s has not run since the last boot" % args["unit"],
            hint="give --invocation; `fleetctl status` and `fleetctl incidents list` show some",
        )
    return places.safe_name(invocation)


def _patches(args: dict[str, Any], session: Any) -> None:
    """Send first what the client should know of the service's patches."""
    notes = patch_store.notes(args["service"]) if args.get("service") else []
    if notes:
        session.emit({"event": "patches", "patch_notes": notes})


def _line(record: dict[str, Any]) -> dict[str, Any]:
    return {
        "at": int(record.get("__REALTIME_TIMESTAMP") or 0) / 1e6,
        "pid": record.get("_PID"),
        "by": record.get("SYSLOG_IDENTIFIER") or record.get("_COMM") or "",
        "text": redact.redact(journal.message(record)),
    }


def _read(args: dict[str, Any], session: Any) -> dict[str, Any]:
    """Send the last lines in ``lines`` events."""
    _patches(args, session)
    invocation = _which(args)
    batch: list[dict[str, Any]] = []
    count = 0
    more = ("-n", str(int(args.get("lines") or 200))) if args.get("lines") != "all" else ()
    for line in journal.read(journal.command(invocation, *more), 120.0, 256 << 20):
        record = journal.parse(line)
        if record is None:
            continue
        batch.append(_line(record))
        count += 1
        if len(batch) >= BATCH:
            session.emit({"event": "lines", "lines": batch})
            batch = []
        if session.cancelled():
            break
    if not count and args.get("invocation"):
        raise AgentError(
            "unknown-invocation",
            "the journal has no line of invocation %s" % invocation,
            hint="`fleetctl incidents list --json` has their ids; a journal that is full drops the oldest",
            exit_code=2,
        )
    session.emit({"event": "lines", "lines": batch})
    return {"invocation_id": invocation, "lines": count}


def _follow(args: dict[str, Any], session: Any) -> dict[str, Any]:
    """Send lines as they come, until the client goes away or the invocation has ended."""
    _patches(args, session)
    invocation = _which(args)
    follower = journal.Follower(
        invocation,
        "",
        lambda record: session.emit({"event": "lines", "lines": [_line(record)]}),
        lines=str(int(args.get("lines") or 50)),
    )
    try:
        while follower.alive() and not session.wait(1.0):
            pass
    finally:
        follower.close()
    return {"invocation_id": invocation}


VERBS = {"read": _read, "follow": _follow}
