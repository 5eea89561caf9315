"""Tell an Xid of this invocation from one of another process of the same machine, by its pid."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.evidence.record import Evidence
from fleetctl.triage import xid
from fleetctl.triage.match import Match
from fleetctl.triage.rule import Rule
from fleetctl.triage.units import Unit

# Shown beside the answer, and never a part of it.
FOREIGN = Rule(
    "xid-of-another-process",
    "An Xid of a process that is none of this invocation's",
    "confirmation",
    on="line",
    origin="any",
)


def set_aside(matches: Sequence[Match], evidence: Evidence) -> list[Match]:
    """Return the matches; those of foreign Xids are replaced by one that only shows the line.

    Nothing is foreign where no pid of the invocation is known, as in a text log, nor where the driver
    knew none. A fault of the card itself hits all that run on it: its pid only says who noticed, so
    it is foreign before the invocation began alone.
    """
    if not evidence.pids:
        return list(matches)
    foreign: dict[int, bool] = {}
    found: list[Match] = []
    for match in matches:
        unit = match.unit
        if "Xid" not in unit.text:
            found.append(match)
            continue
        if id(unit) not in foreign:
            foreign[id(unit)] = _foreign(unit, evidence)
            if foreign[id(unit)]:
                found.append(Match(FOREIGN, unit, {}))
        if not foreign[id(unit)]:
            found.append(match)
    return found


def _foreign(unit: Unit, evidence: Evidence) -> bool:
    said = xid.parse(unit.text)
    if said is None or said.pid is None or str(said.pid) in evidence.pids:
        return False
    entry = xid.catalogue().get(said.code)
    if entry is None or not entry.hardware:
        return True
    if evidence.began is None or unit.seconds is None:
        return False
    return unit.seconds < evidence.began
