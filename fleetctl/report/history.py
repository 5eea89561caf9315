"""Tables of revisions, locks and audit lines. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleetctl.model.plan import span


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return aligned lines of rows that all have the same number of cells."""
    widths = [max(len(r[n]) for r in rows) for n in range(len(rows[0]))]
    return ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]


def revisions(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the revisions of one service, the newest first."""
    head = ("REV", "AT", "PROFILE", "SGLANG", "RESULT", "DIGEST", "BY", "REMARKS")
    return columns([head, *(_revision(line) for line in lines)])


def _revision(line: Mapping[str, Any]) -> tuple[str, ...]:
    result = line["result"]
    outcome = "ready" if line["ready"] else str(result.get("outcome") or "unknown")
    if line["ready"] and result.get("outcome") not in (None, "ready", "starting"):
        outcome = f"ready, then {result['outcome']}"
    remarks = []
    if line["restores"] is not None:
        remarks.append(f"brings back {line['restores']}")
    if result.get("label"):
        remarks.append(str(result["label"]))
    if line["patches"]:
        remarks.append(f"patched: {', '.join(sorted(line['patches']))}")
    if line["reason"] and line["restores"] is None:
        remarks.append(str(line["reason"]))
    return (
        str(line["number"]), str(line["at"])[:19] + "Z", str(line["profile"]),
        str(line["versions"].get("sglang") or "-"), outcome, str(line["digest"])[:8],
        str(line["by"]), "; ".join(remarks),
    )  # fmt: skip


def lock(line: Mapping[str, Any]) -> str:
    """Return one line about a lock."""
    where = f"{line['host']}/{line['service']}"
    if not line["held"]:
        return f"{where}: free"
    beat = line.get("beat_seconds")
    age = f", last heartbeat {span(beat)} ago" if beat is not None else ""
    why = f" ({line['why']})" if line.get("why") else ""
    if line.get("broken"):
        return f"{where}: taken from {line['who']}{why}"
    return f"{where}: held by {line['who']} since {line['since']}{why}{age}"


def audit(line: Mapping[str, Any]) -> str:
    """Return one audit line for a person."""
    where = "/".join(str(line[k]) for k in ("host", "service") if line.get(k)) or "-"
    extra = [str(line[k]) for k in ("summary", "reason", "why", "error") if line.get(k)]
    return "  ".join([str(line.get("at")), where, str(line.get("do")), _by(line), *extra])


def _by(line: Mapping[str, Any]) -> str:
    return str(line.get("by") or (line.get("from") or {}) or "-")
