"""State files of bisects on this machine; the host has a copy of each."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from fleetctl.bisect.state import State
from fleetctl.config import places
from fleetctl.errors import ConfigError, UsageError

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,60}")


def folder() -> Path:
    """Return where the files are."""
    return places.home() / "bisect"


def path_of(bisect: str) -> Path:
    """Return the state file of an id. UsageError ``bad-bisect-id`` for what can be none."""
    if _ID.fullmatch(bisect) is None:
        raise UsageError("bad-bisect-id", f"{bisect!r} is no id of a bisect")
    return folder() / f"{bisect}.json"


def save(state: State) -> Path:
    """Write the state at once and whole; a reader sees the old file or the new one."""
    path = path_of(state.id)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with fresh.open("w", encoding="utf-8") as file:
        json.dump(state.to_json(), file, indent=1, default=str)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    return path


def here(bisect: str) -> bool:
    """Return whether this machine has a state whose id begins so."""
    path_of(bisect)
    return folder().is_dir() and any(folder().glob(f"{bisect}*.json"))


def load(bisect: str) -> State:
    """Return a state by its id or a unique beginning of one. UsageError ``unknown-bisect``."""
    path = path_of(bisect)
    if not path.is_file():
        found = sorted(folder().glob(f"{bisect}*.json")) if folder().is_dir() else []
        if len(found) != 1:
            raise UsageError(
                "unknown-bisect" if not found else "ambiguous-bisect",
                f"{len(found) or 'no'} bisect{'s' if len(found) != 1 else ''} {bisect!r} here",
                hint="fleetctl bisect list; one that was started elsewhere: add its HOST",
            )
        path = found[0]
    return read(path)


def read(path: Path) -> State:
    """Return the state in a file. ConfigError ``bad-bisect-state``."""
    return State.from_json(_body(path), str(path))


def _body(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError("bad-bisect-state", f"not readable: {error}", where=str(path)) from error
    if not isinstance(value, dict):
        raise ConfigError("bad-bisect-state", "not an object", where=str(path))
    return value


def load_all() -> list[State]:
    """Return every readable state, the oldest first."""
    found = []
    for path in sorted(folder().glob("*.json")) if folder().is_dir() else []:
        try:
            found.append(read(path))
        except ConfigError:
            continue
    return sorted(found, key=lambda s: s.created_at)


def keep(state: State) -> None:
    """Write a state that somebody corrected; the host takes it at the next resume."""
    state.version += 1
    save(state)


def fetch(bisect: str, host: str) -> State:
    """Return the copy that a host has, and keep it here. UsageError ``unknown-bisect``."""
    from fleetctl.apply.session import Session
    from fleetctl.config.site import load_site

    path_of(bisect)
    (target, *_) = load_site().select([host])
    with Session(target.host, modules=("trial",)) as session:
        found = session.call("trial.load", {"id": bisect})["state"]
        if found is None:
            there = [str(s.get("id")) for s in session.call("trial.list")["states"]]
            raise UsageError(
                "unknown-bisect",
                f"{host} has no bisect {bisect}",
                hint=f"it has {', '.join(there)}" if there else "it has none",
            )
    state = State.from_json(found, f"{host}:{bisect}")
    save(state)
    return state
