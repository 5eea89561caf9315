"""What an earlier bisect took down and nobody brought back: its client was killed, or its machine is gone."""

from __future__ import annotations

from typing import Any

from fleetctl.apply.session import Session
from fleetctl.model.fleet import Host, Service
from fleetctl.trials import store

RUNS = ("active", "activating", "reloading", "deactivating")


def remarks(session: Session, host: Host, own: str) -> list[str]:
    """Return a line for each service of a host that is down for another bisect than ``own``.

    It says since when, and what brings the service back. One that runs, or whose bisect does, is none.
    """
    found = []
    for state in _states(session):
        down = [d for d in state["taken_down"] if d["host"] == host.name]
        if not down or state["id"] == own or _under_way(session, state):
            continue
        found += [_remark(host, state, d) for d in down if not _runs(session, host, d["service"])]
    return found


def _states(session: Session) -> list[dict[str, Any]]:
    """Return what this machine and the host know of bisects, of two copies the newer one."""
    newest: dict[str, dict[str, Any]] = {}
    for state in [*(s.to_json() for s in store.load_all()), *session.call("trial.rows")["rows"]]:
        known = newest.setdefault(state["id"], state)
        if state["version"] > known["version"]:
            newest[state["id"]] = state
    return sorted(newest.values(), key=lambda s: str(s["created_at"]))


def _under_way(session: Session, state: dict[str, Any]) -> bool:
    held = session.call("lock.status", {"service": state["service"]})["lock"]
    return held is not None and held.get("why") == f"bisect {state['id']}"


def _runs(session: Session, host: Host, name: str) -> bool:
    unit = (host.service(name) or Service(name)).unit
    props = session.call("unit.show", {"units": [unit]})["units"][unit]
    return props.get("ActiveState") in RUNS


def _remark(host: Host, state: dict[str, Any], down: dict[str, Any]) -> str:
    name = state["id"]
    ways = f"`fleetctl bisect abandon {name}` brings it back, `fleetctl bisect-flags --resume {name}` goes on"
    if not store.here(name):
        ways = f"`fleetctl bisect show {name} --on {host.name}` takes its state here, then {ways}"
    since = down.get("since") or state["created_at"]
    return (
        f"{host.name}/{down['service']} is down since {since}: the bisect {name} of {state['by']} took it "
        f"down and has ended without bringing it back; {ways}"
    )
