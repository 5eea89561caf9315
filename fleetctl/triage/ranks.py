"""Which ranks a failure is of: those that show it, else those on which it surfaced; none of a main process."""

from __future__ import annotations

from fleetctl.evidence.exceptions import PYTHON, Raised
from fleetctl.model.triage import Phase
from fleetctl.triage import fingerprint
from fleetctl.triage.answer import Answer
from fleetctl.triage.candidate import Candidate, uncaught
from fleetctl.triage.rule import STRENGTHS
from fleetctl.triage.units import LINE

_CHILD = ("spawn_main", "_bootstrap", "run_scheduler_process")
_BEFORE_RANKS = (Phase.STARTUP_ARGS, Phase.IMPORT)


def of(root: Candidate, answer: Answer) -> tuple[str, ...]:
    """Return the ranks as written in the log, in the order in which they show the root."""
    if _of_no_rank(root, answer):
        return ()
    found = [rank for c in answer.candidates if _alike(c, root) for rank in c.unit.ranks]
    found = found or list(root.unit.ranks)
    if not found:
        kin = {*root.rule.explains, *root.rule.beats}
        units = [u for u in answer.known.units if any(m.rule.id in kin for m in answer.known.of(u))]
        found = [rank for unit in units for rank in unit.ranks]
    brief = {rank for rank in found if rank.startswith("rank")}
    return tuple(dict.fromkeys(r for r in found if r.lower().replace(" ", "") not in brief - {r}))


def _of_no_rank(root: Candidate, answer: Answer) -> bool:
    """Return whether the main process failed by itself, or all ranks say what only some died of."""
    if root.rule.needs:
        return True
    unit = root.unit
    if unit.ranks:
        return False
    if unit.raised is not None and _of_main(unit.raised):
        return True
    return unit.kind == LINE and answer.phase in _BEFORE_RANKS


def _of_main(raised: Raised) -> bool:
    """Return whether nobody caught it in the process that a person started."""
    child = any(f.function in _CHILD for f in raised.frames)
    return raised.kind == PYTHON and not child and uncaught(raised)


def _alike(one: Candidate, root: Candidate) -> bool:
    """Return whether a candidate is the root seen on another rank."""
    if one.rule.id != root.rule.id or (one.wrapped and not root.wrapped):
        return False
    if root.rule.rank > STRENGTHS.index("default"):
        return True
    return _told(one) == _told(root)


def _told(candidate: Candidate) -> list[tuple[str, str]]:
    """Return what failed and where: another rank's traceback of it is often cut short above."""
    parts = fingerprint.of(candidate, None).parts
    frames = [part for part in parts if part[0] == "frame"]
    return [part for part in parts if part[0] != "frame" or part == frames[-1]]
