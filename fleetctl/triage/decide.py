"""From signs and candidates to one answer for one attempt: crash or not, label, phase, root."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.evidence.exceptions import CPP, Raised
from fleetctl.evidence.record import Record
from fleetctl.model.triage import Phase, State, Verdict
from fleetctl.triage import phase as phases
from fleetctl.triage.answer import Answer
from fleetctl.triage.calm import host_down, without_root
from fleetctl.triage.candidate import (
    UNMATCHED,
    Board,
    Candidate,
    board,
    collect,
    instead,
    strongest,
)
from fleetctl.triage.match import Match
from fleetctl.triage.story import Story
from fleetctl.triage.units import EXCEPTION, LINE, Unit

_OF_A_SHUTDOWN = ("root-not-in-log", "external-kill")  # what the end of the host looks like, too
_LOOKED_AT = 64  # candidates that may lend their phase to a line


def decide(
    units: Sequence[Unit],
    matches: Sequence[Match],
    story: Story,
    records: Sequence[Record],
    raised: Sequence[Raised],
) -> Answer:
    """Return the answer for the units of one attempt."""
    known = board(units, matches)
    chains: dict[int, list[Raised]] = {}
    for one in raised:
        chains.setdefault(one.chain, []).append(one)
    timeline = phases.Timeline(records)
    candidates = collect(known, story)
    for candidate in candidates:
        phase = _place(candidate, candidates, chains, timeline, story)
        candidate.phase, candidate.label = phase, _label(candidate, phase)
        if _only_in(candidate):
            candidates += instead(candidate, known, story)
        _exclude(candidate, story)
        candidate.survived = _survived(candidate, story)
        joining = _quiet(candidate) and candidate.rule.phase == Phase.DIST_INIT.value
        if joining and timeline.joined_after(candidate.unit.index):
            candidate.lost = candidate.lost or "the ranks found each other after it"
    _without_clients(candidates, known)
    root = strongest([c for c in candidates if not c.lost], chains)
    answer = (
        without_root(known, story, timeline, candidates)
        if root is None
        else _with_root(root, story, candidates)
    )
    if story.host_down and (not answer.crash or answer.label in _OF_A_SHUTDOWN):
        answer = host_down(story, timeline)
    answer.candidates, answer.known, answer.story, answer.chains = candidates, known, story, chains
    return answer


def _without_clients(candidates: Sequence[Candidate], known: Board) -> None:
    """Note on a warm-up request that lost its server that an exception before it had ended that server."""
    refused = {
        m.unit.raised.chain
        for matches in known.by_unit.values()
        for m in matches
        if m.rule.id == "warmup-refused" and m.unit.raised is not None
    }
    fatal = [
        c.unit.index
        for c in candidates
        if not c.lost and c.fatal and c.unit.raised and c.unit.raised.chain not in refused
    ]
    for one in candidates:
        raised = one.unit.raised
        late = any(index < one.unit.index for index in fatal)
        if late and raised is not None and raised.chain in refused:
            one.lost = one.lost or "the server had failed before that"


def _label(candidate: Candidate, phase: Phase) -> str:
    """Return the label; what C++ threw and no rule knows is no bug of Python's."""
    raised = candidate.unit.raised
    if candidate.rule is UNMATCHED and raised is not None and raised.kind == CPP:
        return "native-crash"
    return candidate.rule.label_in(phase.value)


def _place(
    candidate: Candidate,
    candidates: list[Candidate],
    chains: dict[int, list[Raised]],
    timeline: phases.Timeline,
    story: Story,
) -> Phase:
    """Return the phase: what frames show, then what the rule is sure of, then markers, then its usual one.

    A log without markers that shows the server at work is of its serving.
    """
    rule, unit = candidate.rule, candidate.unit
    shown = _shown(unit, chains, timeline)
    if shown is None and unit.raised is None:
        kin = {*rule.beats, *rule.explains}
        near = (c for c in candidates[:_LOOKED_AT] if c.unit.raised is not None)
        others = (c.unit for c in near if c.rule.id in kin)
        shown = next((p for p in (_shown(u, chains, timeline) for u in others) if p), None)
    marked = timeline.at(unit.index, unit.ranks[0] if unit.ranks else "")
    usual = Phase(rule.phase) if rule.phase else None
    if rule.phase_is:
        return shown or Phase(rule.phase_is)
    if marked is None and story.of("alive", "batch", "health-ok"):
        marked = Phase.SERVING
    if marked is Phase.STARTUP_ARGS and usual is not None:
        marked = usual
    return shown or marked or usual or Phase.UNKNOWN


def _shown(unit: Unit, chains: dict[int, list[Raised]], timeline: phases.Timeline) -> Phase | None:
    raised = unit.raised
    if raised is None:
        return None
    return phases.of_failure(chains.get(raised.chain, [raised]), timeline)


def _only_in(candidate: Candidate) -> bool:
    """Note on a candidate that its rule is for other phases, and return whether it is."""
    if not candidate.rule.phases or candidate.phase.value in candidate.rule.phases:
        return False
    wanted = ", ".join(candidate.rule.phases)
    candidate.lost = f"only in {wanted}; this is {candidate.phase.value}"
    return True


def _exclude(candidate: Candidate, story: Story) -> None:
    """Note on a candidate why the course of events rules it out."""
    if candidate.lost:
        return
    index, rule = candidate.unit.index, candidate.rule
    ended = story.of("dead", "platform")
    if any(rule.id in m.rule.beats and m.unit.index < index for m in ended):
        candidate.lost = "who ended the processes stands before it"
        return
    if story.asked_stop and not story.of("stop") and not (candidate.fatal and rule.rank > 1):
        candidate.lost = "the stop was asked for"
        return
    if story.of("stop") and story.stopped_on_request and rule.strength != "cause":
        if index > story.first("stop"):
            candidate.lost = "after somebody asked for the stop"
        elif not candidate.fatal:
            candidate.lost = "the server went on until somebody asked for the stop"
        return
    if candidate.fatal or rule.crash == "yes" or rule.strength == "cause":
        return
    if index < story.first("ready") < 1 << 60:
        candidate.lost = "the server became ready after it"
    elif candidate.unit.kind == LINE and rule.crash == "unless-alive" and story.alive_after(index):
        candidate.lost = "the server went on after it"
    elif candidate.request and story.dead_after(0):
        candidate.lost = "it belongs to one request"


def _quiet(candidate: Candidate) -> bool:
    """Return whether a candidate is a line of a fault that ends the server only at times."""
    of_line = candidate.unit.kind == LINE and not candidate.fatal
    return of_line and candidate.rule.crash == "if-dead"


def _survived(candidate: Candidate, story: Story) -> bool:
    """Return whether the server served on after a line or a request that ends it only at times."""
    quiet = _quiet(candidate)
    went_on = story.last("alive", "batch") > candidate.unit.index
    survived = went_on and (quiet or candidate.request)
    ended = story.of("platform") or (quiet and story.of("dead", "killed", "fatal-head"))
    if survived and ended:
        candidate.lost = (
            candidate.lost or "the server served on after it, and died of something else"
        )
    return survived


def _same_chain(one: Candidate, other: Candidate) -> bool:
    return (
        one.unit.raised is not None
        and other.unit.raised is not None
        and one.unit.raised.chain == other.unit.raised.chain
    )


def _with_root(root: Candidate, story: Story, candidates: list[Candidate]) -> Answer:
    index, rule = root.unit.index, root.rule
    dead = story.dead_after(0)
    alive = story.alive_after(index)
    verdict = _verdict(root, dead=dead)
    if rule.crash == "no":
        state = State(rule.state or "healthy")
        return Answer(False, state, root.label, root.phase, verdict, seen=root)
    if (root.request and not dead) or (
        alive and not root.fatal and rule.crash != "yes" and rule is UNMATCHED
    ):
        first = min(
            (c for c in candidates if c.unit.raised is not None and _same_chain(c, root)),
            key=lambda c: c.unit.index,
            default=root,
        )
        answer = Answer(False, State.HEALTHY, "request-error", Phase.SERVING, verdict)
        answer.seen = first
        return answer
    if rule.crash == "if-dead" and not dead and not root.fatal:
        return Answer(False, State.DEGRADED, root.label, root.phase, verdict, root)
    if alive and not root.fatal and rule.crash != "yes":
        return Answer(False, State.DEGRADED, root.label, root.phase, verdict, root)
    state = State.DEGRADED if alive else State(rule.state or "crashed")
    return Answer(True, state, root.label, root.phase, verdict, root)


def _verdict(root: Candidate, *, dead: bool) -> Verdict:
    raised = root.unit.raised
    if root.rule is UNMATCHED or root.wrapped or root.rule.strength == "outcome":
        return (
            Verdict.SUPPORTED
            if root.rule is UNMATCHED and raised and raised.whole and root.fatal
            else Verdict.HYPOTHESIS
        )
    if root.rule.strength in ("symptom", "default", "generic"):
        return Verdict.SUPPORTED
    seen = (
        root.unit.origin == "kernel"
        or (raised is not None and raised.whole)
        or root.unit.kind != EXCEPTION
    )
    return (
        Verdict.ESTABLISHED
        if seen and (dead or root.fatal or root.rule.crash == "no")
        else Verdict.SUPPORTED
    )
