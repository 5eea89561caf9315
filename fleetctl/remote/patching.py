"""The agent's verbs for patches: resolve, push, revert, status, history, fetch.

Every change happens under the service's lock, is all or nothing, and leaves a line in the history.
"""

from __future__ import annotations

import base64
import contextlib
import os
import time
import zlib
from typing import Any, Dict, Iterator, Tuple

from fleetctl.remote import (
    lock,
    patch_change,
    patch_plan,
    patch_resolve,
    patch_store,
    records,
    unit,
)
from fleetctl.remote.agent import AgentError

REFUSED = 7
USAGE = 2
FETCH_LIMIT = 8 * 1024 * 1024


@contextlib.contextmanager
def locked(args: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Hold the service's lock and yield its state, recovered from whatever died before."""
    service = args["service"]
    patch_store.folder(service)
    patch_store.drop_in_path(args["unit"])
    held = lock.holder(service) or {}
    nested = held.get("token") == args["lock"]["token"]
    if args.get("lock_wait") and not nested:
        lock.wait_free(service, float(args["lock_wait"]), None)
    taken = lock.acquire(service, args["lock"], args.get("break_lock", ""))
    try:
        state = patch_store.load(service) or patch_store.empty(service, args["unit"])
        if state["unit"] != args["unit"] and state["patches"]:
            raise AgentError(
                "other-unit", "the patches of %s are on %s" % (service, state["unit"]),
                exit_code=REFUSED,
            )  # fmt: skip
        state["unit"] = args["unit"]
        patch_change.recover(state)
        yield state
    finally:
        if not nested:
            taken.release()


# --- resolve ---


Subject = Tuple[patch_resolve.Unit, patch_resolve.Launch, Dict[str, Any]]
_seen: dict[tuple[str, str], tuple[float, Subject]] = {}
FRESH = 10.0  # seconds for which one agent does not ask again


def _subject(args: dict[str, Any]) -> Subject:
    """Return the unit, how it starts Python, and what that Python says.

    The answer of ``resolve`` serves the push that follows it at once.
    """
    patch_store.drop_in_path(args["unit"])
    python = args.get("python") or ""
    asked, known = _seen.get((args["unit"], python), (0.0, None))
    if known is not None and time.monotonic() - asked < FRESH:
        return known
    found = patch_resolve.read_unit(args["unit"])
    if found.load_state != "loaded" and not python:
        raise AgentError(
            "no-unit", "%s is %s" % (found.name, found.load_state or "not known"),
            hint="deploy the service first, or name its interpreter with --python PATH",
        )  # fmt: skip
    launch = patch_resolve.launch_of(found, python)
    answer = (found, launch, patch_resolve.probe(launch))
    _seen[(found.name, python)] = (time.monotonic(), answer)
    return answer


def resolve(args: dict[str, Any], _session: Any = None) -> dict[str, Any]:
    """Return what the unit runs: interpreter, package, version, other copies; and its patches."""
    found, launch, seen = _subject(args)
    root = os.path.dirname(os.path.realpath(seen["locations"][0]))
    state = patch_store.load(args["service"])
    return {
        "unit": found.name, "load_state": found.load_state, "active_state": found.active_state,
        "invocation_id": found.invocation, "interpreter": launch.python, "cwd": launch.cwd,
        "user": launch.user, "root": root, "version": seen["version"], "record": seen["record"],
        "editable": seen["editable"], "installer": seen["installer"], "python": seen["python"],
        "prefix": seen["prefix"], "copies": _others(seen), "file_system": patch_resolve.file_system(root),
        "patches": patch_store.active(args["service"]) if state else {},
    }  # fmt: skip


def _others(seen: dict[str, Any]) -> list[str]:
    own = os.path.realpath(seen["locations"][0])
    return sorted({os.path.realpath(c) for c in seen["copies"]} - {own})


# --- push ---


def push(args: dict[str, Any], session: Any = None) -> dict[str, Any]:
    """Apply one patch. It is no fault when it is there already: ``changed`` is then false.

    AgentError: orphaned, anchor-missing, does-not-compile, other-rung, edit-refused and others;
    nothing has changed then.
    """
    patch = args["patch"]
    if not patch_store.NAME.match(patch["name"]):
        raise AgentError("wrong-name", "not a patch's name: %r" % patch["name"], exit_code=USAGE)
    started = time.monotonic()
    found, launch, seen = _subject(args)
    if args.get("version") and seen["version"] != args["version"]:
        raise AgentError(
            "version-changed", "sglang %s is there now, not %s" % (seen["version"], args["version"])
        )
    with locked(args) as state:
        there = next((p for p in state["patches"] if p["name"] == patch["name"]), None)
        if there is not None and _as_wanted(state, there, args, seen):
            result = _extend(state, there, args)
        else:
            result = _apply(state, args, found, launch, seen)
        result["seconds"] = round(time.monotonic() - started, 3)
        if args.get("restart"):
            result["invocation_id"] = restart(args, patch_resolve.read_unit(found.name))
        if session is not None:
            session.changed = True
        return result


def _as_wanted(
    state: dict[str, Any], there: dict[str, Any], args: dict[str, Any], seen: dict[str, Any]
) -> bool:
    """Return whether a patch is applied as it is asked for, to the package that the unit has now.

    An overlay over a file that a package upgrade replaced is made anew; an edit would be lost work.
    """
    wanted = (args["patch"]["digest"], args["rung"], seen["locations"][0])
    if (there["digest"], there["rung"], there["root"]) != wanted:
        return False
    return there["rung"] != "overlay" or not patch_store.changed(state, there)


def _extend(state: dict[str, Any], record: dict[str, Any], args: dict[str, Any]) -> dict[str, Any]:
    """The same patch again: only its time begins anew, and the drop-in is looked at."""
    for path in record["files"]:
        patch_plan.require_ours(state, path)
    again = dict(
        record, expires_at=time.time() + args["expire"], at_expiry=args.get("at_expiry", "warn")
    )
    others = [p if p is not record else again for p in state["patches"]]
    patch_change.move(state, dict(state, patches=others))
    until = patch_store.stamp(again["expires_at"])
    patch_store.remember(args["service"], {
        "event": "renew", "name": record["name"], "digest": record["digest"],
        "rung": record["rung"], "by": args["lock"]["who"], "why": args["lock"]["why"],
        "expires_at": until,
    })  # fmt: skip
    return {"changed": False, "files": _shown(state, record), "expires_at": until}


def _apply(
    state: dict[str, Any],
    args: dict[str, Any],
    found: patch_resolve.Unit,
    launch: patch_resolve.Launch,
    seen: dict[str, Any],
) -> dict[str, Any]:
    patch = args["patch"]
    root = os.path.dirname(os.path.realpath(seen["locations"][0]))
    new = patch_plan.without(state, patch["name"])
    ready = patch_plan.prepared(new, args, seen, root)
    for path in (p for r in state["patches"] if r["name"] == patch["name"] for p in r["files"]):
        if state["files"][path]["rung"] == "edit":  # what stands there now is about to be replaced
            patch_plan.require_ours(state, path)
    files = ready or _place(state, args, root)
    for path in files:
        patch_plan.admit(new, path, args, found, seen)
    built = patch_plan.build(new, files, args["rung"], root, patch_plan.originals_of(args))
    if not ready:
        patch_resolve.compile_check(
            launch, [(patch_store.kept(args["service"], d), p) for p, d in built.items()]
        )
    record = _record(args, found, launch, seen, sorted(files))
    new["patches"].append(record)
    patch_change.move(state, new)
    patch_store.remember(args["service"], {
        "event": "push", "name": patch["name"], "digest": patch["digest"], "rung": args["rung"],
        "by": args["lock"]["who"], "why": args["lock"]["why"], "files": sorted(files),
        "version": seen["version"], "expires_at": patch_store.stamp(record["expires_at"]),
    })  # fmt: skip
    return {
        "changed": True,
        "files": _shown(new, record),
        "expires_at": patch_store.stamp(record["expires_at"]),
        "others": _others(seen),
        "prepared": None if ready else patch_plan.prepare(new, files, seen, root, patch["name"]),
    }


def _place(state: dict[str, Any], args: dict[str, Any], root: str) -> Any:
    from fleetctl.remote import patch_place

    return patch_place.place(state, args["patch"], args, root)


def _record(
    args: dict[str, Any],
    found: patch_resolve.Unit,
    launch: patch_resolve.Launch,
    seen: dict[str, Any],
    files: list[str],
) -> dict[str, Any]:
    patch = args["patch"]
    now = time.time()
    return {
        "name": patch["name"], "digest": patch["digest"], "rung": args["rung"],
        "summary": args.get("summary", ""), "silent": args.get("silent", ""),
        "captures": args.get("captures", {}), "regex": args.get("regex", ""),
        "parameters": patch.get("parameters", {}), "environment": patch["environment"],
        "version": seen["version"], "interpreter": launch.python, "root": seen["locations"][0],
        "files": files, "pushed_at": now, "expires_at": now + args["expire"],
        "at_expiry": args.get("at_expiry", "warn"), "by": args["lock"]["who"],
        "why": args["lock"]["why"], "command": args["lock"].get("command", ""),
        "invocation_at_push": found.invocation, "boot_id": records.boot_id(),
    }  # fmt: skip


def _shown(state: dict[str, Any], record: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for path in record["files"]:
        entry = state["files"][path]
        mine = [a for a in entry["anchors"] if a["patch"] == record["name"]]
        found.append({
            "path": path, "original": entry["pristine"], "patched": entry["current"],
            "links": entry["links"], "anchors": mine,
            "symlink": entry["symlink"], "blind": entry["blind"],
        })  # fmt: skip
    return found


def restart(args: dict[str, Any], found: patch_resolve.Unit) -> str:
    """Restart the unit on purpose, as a launch with a record of its own; return its invocation."""
    who, why = args["lock"]["who"], args["lock"]["why"] or "restart for a patch"
    if found.invocation and found.alive:
        records.ask_stop(found.name, found.invocation, why, who)
    unit.reset_failed(found.name)
    before = records.last_launch(args["service"])
    invocation = unit.start(found.name, restart=True)
    if before is not None:
        records.save_launch(_relaunch(before, args["service"], invocation, who, why))
    return invocation


def _relaunch(
    before: dict[str, Any], service: str, invocation: str, who: str, why: str
) -> dict[str, Any]:
    """Return the record of the same launch again, with the patches of now."""
    config = dict(before.get("config") or {})
    old, new = config.get("patches") or {}, patch_store.active(service)
    names = sorted(set(old) | set(new))
    signs = {n: "+" if n not in old else "-" if n not in new else "~" for n in names}
    config["patches"] = new
    kept: dict[str, Any] = {k: before[k] for k in ("schema", "host", "service") if k in before}
    return dict(
        kept, id="%s-%s" % (time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), os.urandom(3).hex()),
        config=config, started_at=records.now(), invocation_id=invocation, outcome="starting",
        phase="unknown", by=who, reason=why,
        changed=["patch %s%s" % (signs[n], n) for n in names if old.get(n) != new.get(n)],
    )  # fmt: skip


# --- revert ---


def revert(args: dict[str, Any], _session: Any = None) -> dict[str, Any]:
    """Take patches out: the named ones, or all. Files are again what they were, byte for byte.

    A name that is not applied is ``absent``, no fault. AgentError: orphaned (with both differences)
    unless ``leave`` is given.
    """
    from fleetctl.remote import patch_proof

    names = list(args.get("names") or [])
    with locked(args) as state:
        there = [p["name"] for p in state["patches"]]
        gone = [n for n in names or there if n in there]
        absent = sorted(set(names) - set(there))
        if not gone:
            return {"reverted": [], "absent": absent, "files": [], "left": []}
        left = _orphans(state, gone) if args.get("leave") else []
        new = state
        for path in _orphans(state, gone):  # under an overlay the file itself was never ours
            if path not in left:
                patch_plan.require_ours(state, path)
        for name in gone:
            new = patch_plan.without(new, name)
        new = patch_plan.forgetting(new, left)
        hashes = _originals(state, new, left)
        ends = [patch_proof.ending(state, p) for p in state["patches"] if p["name"] in gone]
        patch_change.move(patch_plan.forgetting(state, left), new)
        _tell(state["service"], ends, args)
        result: dict[str, Any] = {
            "reverted": gone, "absent": absent, "files": hashes, "left": left,
        }  # fmt: skip
        if args.get("restart"):
            found = patch_resolve.read_unit(args["unit"])
            result["invocation_id"] = restart(args, found)
        return result


def _orphans(state: dict[str, Any], names: list[str]) -> list[str]:
    found = []
    for path, entry in state["files"].items():
        mine = any(w["name"] in names for w in entry["works"])
        ours = (entry["current"], entry["pristine"])
        if mine and entry["rung"] == "edit" and patch_store.disk_hash(path) not in ours:
            found.append(path)
    return sorted(found)


def _originals(state: dict[str, Any], new: dict[str, Any], left: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "path": p, "original": e["pristine"], "rung": e["rung"],
            "now": "left" if p in left else "patched" if p in new["files"] else "original",
        }
        for p, e in sorted(state["files"].items())
        if new["files"].get(p) != e
    ]  # fmt: skip


def _tell(service: str, ends: list[dict[str, Any]], args: dict[str, Any]) -> None:
    """Write down how each patch ended: what it said while it was there."""
    for judged in ends:
        patch_store.remember(service, {
            "event": "revert", "name": judged["name"], "digest": judged["digest"],
            "by": args["lock"]["who"], "why": args["lock"]["why"], "was": judged["state"],
            "markers": judged["markers"], "result": judged["result"],
            "invocation_id": judged["invocation_id"],
        })  # fmt: skip


# --- looking ---


def status(args: dict[str, Any], _session: Any = None) -> dict[str, Any]:
    """Return each patch of a service with its proof."""
    from fleetctl.remote import patch_proof

    state = patch_store.load(args["service"])
    if state is None:
        return {"patches": []}
    if state.get("pending"):
        state = dict(state, pending=None)
    return {"patches": [patch_proof.judge_record(state, p) for p in state["patches"]]}


def history(args: dict[str, Any], _session: Any = None) -> dict[str, Any]:
    """Return what was pushed and reverted, the oldest first."""
    return {"history": patch_store.history(args["service"], int(args.get("limit", 200)))}


def fetch(args: dict[str, Any], _session: Any = None) -> dict[str, Any]:
    """Return the kept bytes of a hash that the service's state names."""
    state = patch_store.load(args["service"]) or {"files": {}}
    known = {e[k] for e in state["files"].values() for k in ("pristine", "current")}
    if args["sha256"] not in known:
        raise AgentError("not-kept", "no such bytes: %r" % args["sha256"])
    data = patch_store.read(patch_store.kept(args["service"], args["sha256"]))
    if len(data) > FETCH_LIMIT:
        raise AgentError("too-large", "%d bytes" % len(data))
    return {"data": base64.b64encode(zlib.compress(data)).decode("ascii")}


VERBS = {
    "resolve": resolve,
    "push": push,
    "revert": revert,
    "status": status,
    "history": history,
    "fetch": fetch,
}
