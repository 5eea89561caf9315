"""What a service is doing now, in one answer."""

from __future__ import annotations

import os
from typing import Any

from fleetctl.remote import (
    facts,
    journal,
    lock,
    markers,
    patch_store,
    probes,
    procs,
    records,
    revisions,
    spool,
    unit,
    web,
)

QUICK = 6.0  # seconds for a health check; a deep one takes 1 s when the server is well


def look(args: dict[str, Any], _session: Any = None) -> dict[str, Any]:
    """Return state, unit, launch, health, lock and evidence of one service. AgentError: systemd-silent."""
    name, service = args["unit"], args["service"]
    props = unit.must_show(name)
    seen = facts.unit_facts(name, props)
    invocation = seen["invocation_id"]
    launch = records.last_launch(service)
    current = launch if launch and launch.get("invocation_id") == invocation else None
    health = _health(args, current) if seen["active_state"] == "active" else None
    phase = _phase(invocation) if seen["active_state"] == "active" else None
    kept = spool.bundles(service)
    # A stop by systemctl is not asked for here; who collects its end finds it out and writes it down.
    ended = (current or {}).get("outcome") == "stopped"
    asked = ended or records.asked_stop(invocation) is not None
    return {
        "state": state_of(props, health, phase, asked),
        "phase": phase,
        "unit": seen,
        "health": health,
        "launch": _short(launch),
        "of_this_launch": current is not None,
        "lock": _holder(service),
        "revision": (revisions.newest(service) or {}).get("number"),
        "drift": drift(service, name, seen["drop_ins"]),
        "patches": patch_store.active(service),
        "patch_notes": patch_store.notes(service),
        "bundles": [
            {"invocation_id": m["invocation_id"], "at": m.get("failed_at")} for m in kept[-5:]
        ],
    }


def drift(service: str, name: str, drop_ins: list[str]) -> list[dict[str, Any]]:
    """Return what differs from the newest revision: its files, and drop-ins that are nobody's patch."""
    if revisions.newest(service) is None:
        return []
    own = patch_store.drop_in_path(name)
    odd = [p for p in drop_ins if p != own and os.path.dirname(p) == os.path.dirname(own)]
    return revisions.drift(service) + [{"path": p, "state": "added", "launch": None} for p in odd]


def state_of(
    props: dict[str, str], health: dict[str, Any] | None, phase: str | None, asked: bool
) -> str:
    """Return one word: ready, starting, unhealthy, looping, failed, stopped or absent. Pure."""
    if props.get("LoadState") == "not-found":
        return "absent"
    if props.get("SubState") in ("auto-restart", "auto-restart-queued"):
        return "looping"
    active = props.get("ActiveState", "inactive")
    if active == "failed":
        return "stopped" if asked else "failed"
    if active == "inactive":
        return "stopped"
    if active != "active":
        return "stopping" if active == "deactivating" else "starting"
    if health and health["status"] == 200 and health["ours"] is not False:
        return "ready"
    return "unhealthy" if phase in ("serving", None) else "starting"


def _health(args: dict[str, Any], launch: dict[str, Any] | None) -> dict[str, Any]:
    config = (launch or {}).get("config") or {}
    flags = config.get("flags") or {}
    probe = probes.probe_for((config.get("versions") or {}).get("sglang"))
    server = web.Server(
        procs.local_address(str(flags.get("host") or "")),
        int(args["port"]),
        bool(flags.get("ssl-certfile")),
    )
    path = probe.paths[-1][0]
    answer = server.ask("GET", path, QUICK)
    return {
        "path": path,
        "status": answer.status,
        "error": answer.error,
        "seconds": round(answer.seconds, 3),
        "ours": _ours(int(args["port"]), args["unit"]),
    }


def _ours(port: int, name: str) -> bool | None:
    users = procs.port_users([port])
    if not users or not users[0]["pid"]:
        return None
    return bool(users[0]["unit"] == name)


def _phase(invocation: str) -> str | None:
    """Return the phase of a start from its journal, None where the markers are long gone."""
    phases = markers.Phases()
    seen = None
    for line in journal.read(journal.command(invocation, "-n", "2000"), 5.0, 16 << 20):
        record = journal.parse(line) or {}
        seen = phases.feed(journal.message(record), record.get("_PID")) or seen
    return seen


def _short(launch: dict[str, Any] | None) -> dict[str, Any] | None:
    if launch is None:
        return None
    config = launch.get("config") or {}
    wanted = ("id", "started_at", "outcome", "by", "reason", "invocation_id", "ready_seconds")
    found = {k: launch.get(k) for k in wanted}
    return dict(found, profile=config.get("profile"), model=config.get("model"),
                sglang=(config.get("versions") or {}).get("sglang"))  # fmt: skip


def _holder(service: str) -> dict[str, Any] | None:
    found = lock.living(service)
    return (
        None
        if found is None
        else {k: found.get(k) for k in ("who", "since", "why", "beat_seconds")}
    )


VERBS = {"look": look}
