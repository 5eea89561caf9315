"""What a host keeps of its patches, and how files and the drop-in become what the state says.

One state file a service: its patches in the order of pushing, and each changed file with its pristine
and its built bytes (kept by their hash). The drop-in is a function of the state. A change writes down
what it is about to do, does it, and then writes the new state: whatever dies in between is taken back
by the next command.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from typing import Any

from fleetctl.remote import files, places, records
from fleetctl.remote.agent import AgentError

SCHEMA = "fleetctl.patch-state/1"
PATCHES = places.STATE + "/patches"
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]{1,200}\.service\Z")
DROP_IN = "50-fleetctl-patches.conf"
NOTICE = "notice"


def sha(data: bytes) -> str:
    """Return the hash by which bytes are kept."""
    return hashlib.sha256(data).hexdigest()


def folder(service: str) -> str:
    """Return the folder of a service's patches. AgentError: wrong-name."""
    try:
        return os.path.join(PATCHES, places.safe_name(service))
    except ValueError as error:
        raise AgentError("wrong-name", str(error), exit_code=2)


def kept(service: str, digest: str) -> str:
    """Return where bytes of that hash are kept."""
    return os.path.join(folder(service), "files", digest)


def keep(service: str, data: bytes) -> str:
    """Keep bytes by their hash, durably; return the hash. A mount of the file needs its mode alone."""
    digest = sha(data)
    path = kept(service, digest)
    base = os.path.dirname(path)
    os.makedirs(base, mode=0o755, exist_ok=True)
    if not os.path.exists(path) or sha(read(path)) != digest:
        put(path, data, 0o644)
    return digest


def read(path: str) -> bytes:
    """Return a file's bytes."""
    with open(path, "rb") as file:
        return file.read()


def put(path: str, data: bytes, mode: int, owner: tuple[int, int] | None = None) -> None:
    """Replace a file in one step: temporary file in its folder, fsync, rename, fsync of the folder."""
    temporary = stage(path, data, mode, owner)
    try:
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
    files.sync_folder(os.path.dirname(path))


def stage(path: str, data: bytes, mode: int, owner: tuple[int, int] | None = None) -> str:
    """Write bytes beside a path, durably, and return the temporary file's name."""
    temporary = os.path.join(
        os.path.dirname(path), ".fleetctl-%s-%d" % (os.path.basename(path)[:100], os.getpid())
    )
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            if owner is not None and os.geteuid() == 0:
                os.fchown(file.fileno(), owner[0], owner[1])
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        error.filename = path
        raise
    return temporary


# --- the state ---


def empty(service: str, unit: str) -> dict[str, Any]:
    """Return the state of a service without patches."""
    return {"schema": SCHEMA, "service": service, "unit": unit, "patches": [], "files": {}}


def load(service: str) -> dict[str, Any] | None:
    """Return a service's state, or None. AgentError: damaged-state."""
    path = os.path.join(folder(service), "state.json")
    try:
        with open(path, encoding="utf-8") as file:
            state = json.load(file)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise AgentError(
            "damaged-state", str(error), where=path, hint="its history.jsonl says what was pushed"
        )
    if state.get("schema") != SCHEMA:
        raise AgentError("newer-state", "written by another version", where=path)
    return dict(state)


def save(state: dict[str, Any]) -> None:
    """Write a service's state."""
    base = folder(state["service"])
    os.makedirs(base, mode=0o755, exist_ok=True)
    data = json.dumps(state, indent=1, sort_keys=True).encode("utf-8") + b"\n"
    put(os.path.join(base, "state.json"), data, 0o644)
    _notice(base, state)


def _notice(base: str, state: dict[str, Any]) -> None:
    """Write what a shell can read out to a command that has no agent: name, rung, by, until when."""
    path = os.path.join(base, NOTICE)
    rows = [(p["name"], p["rung"], p["by"], stamp(p["expires_at"])) for p in state["patches"]]
    text = "".join("\t".join(" ".join(str(v).split()) for v in row) + "\n" for row in rows)
    with contextlib.suppress(OSError):  # the state itself is written
        if text:
            with open(path + ".new", "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(path + ".new", path)
        elif os.path.exists(path):
            os.unlink(path)


def services() -> list[str]:
    """Return the services that have or had patches."""
    try:
        return sorted(n for n in os.listdir(PATCHES) if not n.startswith("."))
    except OSError:
        return []


def active(service: str) -> dict[str, str]:
    """Return the patches that are applied for a service: name → digest."""
    try:
        state = load(service)
    except AgentError:
        return {}
    return {p["name"]: p["digest"] for p in (state or {}).get("patches", [])}


def stamp(epoch: float) -> str:
    """Return seconds since 1970 as RFC 3339 in UTC, for the wire."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))


def notes(service: str) -> list[dict[str, Any]]:
    """Return what every command should say of a service's patches: name, rung, by whom, until when."""
    try:
        state = load(service)
    except AgentError as error:
        return [{"name": "?", "problem": error.fields["message"]}]
    if state is None:
        return []
    return [
        {
            "name": p["name"], "digest": p["digest"], "rung": p["rung"], "by": p["by"],
            "expires_at": stamp(p["expires_at"]), "expired": time.time() > p["expires_at"],
            "orphaned": changed(state, p), "python": p["interpreter"], "problem": "",
        }
        for p in state["patches"]
    ]  # fmt: skip


def changed(state: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """Return the files of a patch that are no longer what the push left on disk."""
    found = []
    for path in record["files"]:
        entry = state["files"][path]
        wanted = entry["current"] if entry["rung"] == "edit" else entry["pristine"]
        if disk_hash(path) != wanted:
            found.append(path)
    return found


def disk_hash(path: str) -> str | None:
    """Return the hash of a file as it is on disk now, None when it cannot be read."""
    try:
        return files.sha256(path)
    except OSError:
        return None


def remember(service: str, event: dict[str, Any]) -> None:
    """Append a line to the service's history and to the host's audit log."""
    line = dict({"at": records.now(), "service": service}, **event)
    path = os.path.join(folder(service), "history.jsonl")
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line, sort_keys=True) + "\n")
    audited = {
        k: v for k, v in line.items() if k in ("service", "name", "by", "why", "digest", "rung")
    }
    records.audit(dict(audited, do="patch-" + str(event["event"])))


def history(service: str, limit: int = 200) -> list[dict[str, Any]]:
    """Return the last lines of a service's history, the oldest first."""
    found = []
    try:
        with open(os.path.join(folder(service), "history.jsonl"), encoding="utf-8") as file:
            lines = file.readlines()[-limit:]
    except OSError:
        return []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


# --- files of the host ---


def drop_in_path(unit: str) -> str:
    """Return where the drop-in of a unit lies. AgentError: wrong-name."""
    if not UNIT.match(unit):
        raise AgentError("wrong-name", "not a service unit: %r" % unit, exit_code=2)
    return os.path.join(places.UNITS, unit + ".d", DROP_IN)


def bytecode_of(path: str) -> list[str]:
    """Return the cached bytecode files of a module, of every interpreter and optimisation."""
    base, name = os.path.split(path)
    cache = os.path.join(base, "__pycache__")
    wanted = re.compile(re.escape(name[:-3]) + r"\.[\w-]+(?:\.opt-\w+)?\.pyc\Z")
    try:
        return sorted(os.path.join(cache, n) for n in os.listdir(cache) if wanted.match(n))
    except OSError:
        return []


def unchecked(path: str) -> bool:
    """Return whether a bytecode file is used without a look at its source (PEP 552)."""
    try:
        with open(path, "rb") as file:
            head = file.read(8)
    except OSError:
        return False
    return len(head) == 8 and int.from_bytes(head[4:8], "little") & 3 == 1


def forget_bytecode(path: str) -> None:
    """Remove every cached bytecode file of a module: the next import compiles it again."""
    for one in bytecode_of(path):
        os.unlink(one)


def clean(state: dict[str, Any]) -> None:
    """Drop kept bytes that the state does not name any more."""
    base = os.path.join(folder(state["service"]), "files")
    needed = {f[k] for f in state["files"].values() for k in ("pristine", "current")}
    try:
        names = os.listdir(base)
    except OSError:
        return
    for name in names:
        if name not in needed:
            os.unlink(os.path.join(base, name))
    if not needed:
        files.remove_tree(base)


def _notes(args: dict[str, Any], _session: Any) -> dict[str, Any]:
    """Return the notes of these services, of all that have patches when none is named."""
    return {"patch_notes": {s: notes(s) for s in args.get("services") or services()}}


VERBS = {"notes": _notes}
