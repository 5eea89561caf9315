"""The table of ``fleetctl status``. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fleetctl.model.plan import span

HEAD = ("SERVICE", "STATE", "PROFILE", "REV", "SGLANG", "SINCE", "REMARKS")


def table(
    lines: Sequence[Mapping[str, Any]], names: Callable[[list[str]], str] = ",".join
) -> list[str]:
    """Return aligned rows, the head first; services of which all is equal share one."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, *cells in map(row, lines):
        groups.setdefault(tuple(cells), []).append(name)
    rows = [HEAD, *((names(found), *cells) for cells, found in groups.items())]
    widths = [max(len(r[n]) for r in rows) for n in range(len(HEAD))]
    return ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]


def row(line: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of one service."""
    launch = line.get("launch") or {}
    unit = line.get("unit") or {}
    seconds = unit.get("active_seconds")
    return (
        f"{line['host']}/{line['service']}",
        str(line["state"]),
        str(launch.get("profile") or "-"),
        str(line.get("revision") or "-"),
        str(launch.get("sglang") or "-"),
        span(seconds) if seconds is not None else "-",
        "; ".join(remarks(line)),
    )


def remarks(line: Mapping[str, Any]) -> list[str]:
    """Return what a person should know beside the state."""
    if line.get("message"):
        return [str(line["message"])]
    unit = line.get("unit") or {}
    found = []
    if line["state"] == "starting" and line.get("phase"):
        found.append(str(line["phase"]))
    if unit.get("n_restarts"):
        found.append(f"restarted {unit['n_restarts']} times")
    if line["state"] in ("failed", "looping"):
        found.append(f"result {unit.get('result')}")
    health = line.get("health") or {}
    if line["state"] == "unhealthy":
        found.append(f"{health.get('path')} says {health.get('status') or health.get('error')}")
    if health.get("ours") is False:
        found.append("another process has its port")
    if line.get("lock"):
        found.append(f"locked by {line['lock']['who']}")
    if line.get("patches"):
        words = {n["name"]: _patch_word(n) for n in line.get("patch_notes") or ()}
        names = [f"{n}{words.get(n, '')}" for n in sorted(line["patches"])]
        found.append(f"patched: {', '.join(names)}")
    if line.get("drift"):
        names = [f"{d['path'].rpartition('/')[2]} {d['state']}" for d in line["drift"]]
        found.append(f"edited by hand: {', '.join(names)}")
    incident = line.get("incident")
    if incident and line["state"] != "ready":
        found.append(f"last incident {incident['id']}: {incident['label']}")
    if line["state"] in ("failed", "looping") and line.get("bundles"):
        found.append("evidence kept: fleetctl collect")
    return found


def _patch_word(note: Mapping[str, Any]) -> str:
    return " ORPHANED" if note.get("orphaned") else " EXPIRED" if note.get("expired") else ""
