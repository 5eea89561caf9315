"""From signs and candidates to one answer for one attempt: crash or not, label, phase, root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fleetctl.evidence.exceptions import Raised
from fleetctl.evidence.record import Record
from fleetctl.model.triage import Phase, State, Verdict
from fleetctl.triage import phase as phases
from fleetctl.triage.candidate import UNMATCHED, Board, Candidate, board, collect, strongest
from fleetctl.triage.match import Match
from fleetctl.triage.story import Story, silent
from fleetctl.triage.units import EXCEPTION, HEAD, LINE, Unit

_LOOKED_AT = 64  # candidates that may lend their phase to a line


@dataclass(slots=True)
class Answer:
    """What one attempt came to, with everything that was weighed."""

    crash: bool
    state: State
    label: str
    phase: Phase
    verdict: Verdict
    root: Candidate | None = None
    candidates: list[Candidate] = field(default_factory=list)
    known: Board = field(default_factory=Board)
    story: Story = field(default_factory=Story)
    chains: dict[int, list[Raised]] = field(default_factory=dict)
    why: str = ""


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
        phase = _place(candidate, candidates, chains, timeline)
        if phase is Phase.UNKNOWN and story.of("alive", "batch", "health-ok"):
            phase = Phase.SERVING
        candidate.phase, candidate.label = phase, candidate.rule.label_in(phase.value)
        _only_in(candidate)
        _exclude(candidate, story)
    root = strongest([c for c in candidates if not c.lost], chains)
    answer = (
        _without_root(known, story, timeline, candidates)
        if root is None
        else _with_root(root, story)
    )
    answer.candidates, answer.known, answer.story, answer.chains = candidates, known, story, chains
    return answer


def _place(
    candidate: Candidate,
    candidates: list[Candidate],
    chains: dict[int, list[Raised]],
    timeline: phases.Timeline,
) -> Phase:
    """Return the phase: what frames show, then what the rule is sure of, then markers, then its usual one."""
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
    if marked is Phase.STARTUP_ARGS and usual is not None:
        marked = usual
    return shown or marked or usual or Phase.UNKNOWN


def _shown(unit: Unit, chains: dict[int, list[Raised]], timeline: phases.Timeline) -> Phase | None:
    raised = unit.raised
    if raised is None:
        return None
    return phases.of_failure(chains.get(raised.chain, [raised]), timeline)


def _only_in(candidate: Candidate) -> None:
    if candidate.rule.phases and candidate.phase.value not in candidate.rule.phases:
        wanted = ", ".join(candidate.rule.phases)
        candidate.lost = f"only in {wanted}; this is {candidate.phase.value}"


def _exclude(candidate: Candidate, story: Story) -> None:
    """Note on a candidate why the course of events rules it out."""
    if candidate.lost:
        return
    index, rule = candidate.unit.index, candidate.rule
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


def _with_root(root: Candidate, story: Story) -> Answer:
    index, rule = root.unit.index, root.rule
    dead = story.dead_after(0)
    alive = story.alive_after(index)
    verdict = _verdict(root, dead=dead)
    if rule.crash == "no":
        return Answer(False, State(rule.state or "healthy"), root.label, root.phase, verdict, root)
    if (root.request and not dead) or (
        alive and not root.fatal and rule.crash != "yes" and rule is UNMATCHED
    ):
        return Answer(False, State.HEALTHY, "request-error", Phase.SERVING, verdict, root)
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
    if root.rule.strength in ("symptom", "generic"):
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


def _without_root(
    known: Board, story: Story, timeline: phases.Timeline, candidates: list[Candidate]
) -> Answer:
    hung = _hung(story)
    if hung is not None:
        return hung
    weak = story.of("stop-weak") and not story.of("dead", "killed", "fatal-head")
    if weak or story.asked_stop or (story.of("stop") and story.stopped_on_request):
        label = "external-kill" if story.of("stop-timeout") else "graceful-shutdown"
        return Answer(
            False,
            State.STOPPED,
            label,
            Phase.SHUTDOWN,
            Verdict.ESTABLISHED,
            why="somebody asked for the stop",
        )
    if story.of("dead", "killed", "fatal-head", "wrapper") or _broken_off(known):
        phase = _phase_of_end(known, timeline)
        return Answer(
            True,
            State.CRASHED,
            "root-not-in-log",
            phase,
            Verdict.UNKNOWN,
            why="only consequences are in this log",
        )
    requests = [m for m in _benign(known) if m.rule.label == "request-error"]
    ready = story.first("ready")
    failed = next(
        (
            c
            for c in candidates
            if c.request or (c.rule is UNMATCHED and not c.unit.index < ready < 1 << 60)
        ),
        None,
    )
    if requests or (failed is not None and story.of("alive", "batch", "ready")):
        return Answer(
            False,
            State.HEALTHY,
            "request-error",
            Phase.SERVING,
            Verdict.SUPPORTED,
            why="one request failed, the server went on",
        )
    scare = candidates[0] if candidates else None
    if scare is not None and story.of("ready", "alive", "batch"):
        why = f"survived: {scare.unit.shown}"[:200]
        return Answer(
            False, State.HEALTHY, "benign-warning", Phase.SERVING, Verdict.SUPPORTED, why=why
        )
    return _quiet(known, story, timeline)


def _broken_off(known: Board) -> bool:
    """Return whether the log ends inside a traceback of the program's own start."""
    last = next((u.raised for u in reversed(known.units) if u.raised is not None), None)
    if last is None or last.type or not last.frames or last.index < known.units[-1].index - 2:
        return False
    return last.frames[0].function in ("<module>", "_run_module_as_main", "run_scheduler_process")


def _quiet(known: Board, story: Story, timeline: phases.Timeline) -> Answer:
    notable = [m for m in _benign(known) if m.rule.notable]
    phase = (
        Phase.SERVING
        if story.of("ready", "alive", "batch", "health-ok")
        else (timeline.last or Phase.UNKNOWN)
    )
    if notable:
        state = State(next((m.rule.state for m in notable if m.rule.state), "healthy"))
        return Answer(
            False, state, "benign-warning", phase, Verdict.SUPPORTED, why=notable[0].unit.shown
        )
    if phase is Phase.SERVING:
        return Answer(
            False,
            State.HEALTHY,
            "healthy-startup",
            phase,
            Verdict.ESTABLISHED,
            why="the server answers",
        )
    if timeline.last is not None:
        why = "the start goes on; nothing is wrong so far"
        return Answer(False, State.HEALTHY, "healthy-startup", phase, Verdict.HYPOTHESIS, why=why)
    return Answer(
        False, State.HEALTHY, "unknown", phase, Verdict.UNKNOWN, why="nothing in this log tells"
    )


def _hung(story: Story) -> Answer | None:
    failed = story.of("health-failed")
    if failed and failed[-1].unit.index > story.last("batch", "dead", "killed"):
        return _hang(failed[0], "health probes get no answer from the scheduler")
    if story.hung and not story.of("dead", "killed", "stop"):
        why = "the unit ran and did not answer when the bundle was made"
        return Answer(
            False, State.HUNG, "hang-healthcheck", Phase.SERVING, Verdict.SUPPORTED, why=why
        )
    probe = silent(story)
    if probe is not None:
        return _hang(
            probe, "the scheduler fell silent while it had requests; health is still answered"
        )
    return None


def _hang(match: Match, why: str) -> Answer:
    rule = replace(match.rule, role="root", label="hang-healthcheck", strength="symptom")
    root = Candidate(match.unit, rule, dict(match.captured), Phase.SERVING, "hang-healthcheck")
    return Answer(
        False, State.HUNG, "hang-healthcheck", Phase.SERVING, Verdict.HYPOTHESIS, root, why=why
    )


def _phase_of_end(known: Board, timeline: phases.Timeline) -> Phase:
    for unit in known.units:
        if unit.raised is not None and unit.kind in (EXCEPTION, HEAD):
            found = phases.of_failure([unit.raised], timeline)
            if found is not None:
                return found
    ends = [
        m.unit.index
        for unit in known.units
        for m in known.of(unit)
        if m.rule.means in ("dead", "killed", "fatal-head")
    ]
    return timeline.at(min(ends, default=1 << 60)) or Phase.UNKNOWN


def _benign(known: Board) -> list[Match]:
    return [m for unit in known.units for m in known.of(unit) if m.rule.role == "benign"]
