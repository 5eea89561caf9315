"""What a deploy would change on a host, and what is not as the last one left it. Changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleetctl.apply import standing
from fleetctl.apply.prepare import prepare
from fleetctl.apply.session import Session
from fleetctl.apply.wish import Wish
from fleetctl.fleet import rollback
from fleetctl.model.fleet import Target

SCHEMA = "fleetctl.diff/1"


def compare(
    session: Session, target: Target, base: Wish, site: Path, *, profile: bool
) -> dict[str, Any]:
    """Return the line of ``fleetctl diff --json``. Raises FleetError.

    With ``profile`` the wish's profile is what is compared with, else the newest revision of the host.
    """
    drift = standing.status(target, session).get("drift") or []
    line: dict[str, Any] = {
        "schema": SCHEMA, "host": target.host.name, "service": target.service.name,
        "against": None, "changed": [], "files": [], "drift": drift,
    }  # fmt: skip
    wish = base
    if not profile:
        kept = rollback.revisions(session, target)
        if not kept:
            return line | {"same": not drift}
        wish = rollback.wish_for(session, target, kept[0].number, base, site)
    plan = prepare(session, target, wish).plan
    number = wish.revision.number if wish.revision else None
    line["against"] = f"revision {number}" if number else f"profile {wish.profile.name}"
    line["changed"] = [str(a) for a in plan.changed]
    line["files"] = [{"path": d.path, "text": d.text} for d in plan.diffs]
    return line | {"same": not (drift or line["changed"] or line["files"])}


def lines_of(line: dict[str, Any]) -> list[str]:
    """Return a comparison for a person."""
    where = f"{line['host']}/{line['service']}"
    if line["against"] is None and line["same"]:
        return [f"{where}: nothing was deployed there that is kept"]
    if line["same"]:
        return [f"{where}: as {line['against']}"]
    found = [f"{where}: differs from {line['against']}"]
    found += [f"  {d['path']} was {d['state']} by hand since" for d in line["drift"]]
    found += [f"  {atom}" for atom in line["changed"]]
    for file in line["files"]:
        found += file["text"].splitlines()
    return found
