"""The answer where no candidate is left: a stop, a hang, one request, noise, or a root that is elsewhere."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.model.triage import Phase, State, Verdict
from fleetctl.triage import phase as phases
from fleetctl.triage.answer import Answer
from fleetctl.triage.candidate import UNMATCHED, Board, Candidate, weights
from fleetctl.triage.match import Match
from fleetctl.triage.story import Story, silent, unanswered
from fleetctl.triage.units import EXCEPTION, HEAD


def without_root(
    known: Board, story: Story, timeline: phases.Timeline, candidates: list[Candidate]
) -> Answer:
    """Return the answer for an attempt that holds nothing that may be the root of a crash."""
    return (
        _hung(story)
        or _stopped(story)
        or _ended_elsewhere(known, story, timeline)
        or _one_request(known, story, candidates)
        or _survived(story, candidates)
        or _quiet(known, story, timeline)
    )


def host_down(story: Story, timeline: phases.Timeline) -> Answer:
    """Return the answer for a service that ended because its host did, however its log breaks off."""
    serving = story.of("ready", "alive", "batch", "health-ok")
    phase = Phase.SERVING if serving else (timeline.last or Phase.UNKNOWN)
    why = "the host went down while it ran"
    return Answer(True, State.CRASHED, "host-down", phase, Verdict.ESTABLISHED, why=why)


def _stopped(story: Story) -> Answer | None:
    weak = story.of("stop-weak") and not story.of("dead", "killed", "fatal-head")
    if weak or story.asked_stop or (story.of("stop") and story.stopped_on_request):
        forced = story.of("stop-timeout", "platform")
        label = "external-kill" if forced else "graceful-shutdown"
        answer = Answer(False, State.STOPPED, label, Phase.SHUTDOWN, Verdict.ESTABLISHED)
        answer.seen = _seen(_asked(story, drained=not forced), answer)
        answer.why = "somebody asked for the stop"
        return answer
    platform = story.of("platform")
    if platform and not story.alive_after(platform[0].unit.index):
        answer = Answer(True, State.CRASHED, "external-kill", Phase.SERVING, Verdict.SUPPORTED)
        answer.root = _seen(platform[0], answer)
        answer.why = "the platform ended it"
        return answer
    return None


def _asked(story: Story, *, drained: bool) -> Match | None:
    """Return the record that shows the stop: that it ended in good order, else who asked for it."""
    stops = story.of("stop")
    ended = [m for m in stops if m.rule.id == "stop-zero"] if drained else []
    of_server = [m for m in stops if m.unit.origin == "app"]
    return next(iter((*ended, *of_server, *stops, *story.of("stop-weak"))), None)


def _ended_elsewhere(known: Board, story: Story, timeline: phases.Timeline) -> Answer | None:
    if (
        story.of("dead", "killed", "fatal-head", "wrapper")
        or _broken_off(known)
        or _uncaught(known, story)
    ):
        phase = _phase_of_end(known, story, timeline)
        why = "only consequences are in this log"
        return Answer(True, State.CRASHED, "root-not-in-log", phase, Verdict.UNKNOWN, why=why)
    return None


def _one_request(known: Board, story: Story, candidates: list[Candidate]) -> Answer | None:
    refused = [m for m in _benign(known) if m.rule.label == "request-error"]
    ready = story.first("ready")
    failed = next(
        (
            c
            for c in candidates
            if c.request or (c.rule is UNMATCHED and not c.unit.index < ready < 1 << 60)
        ),
        None,
    )
    if failed is not None and not story.of("alive", "batch", "ready") and not refused:
        failed = None
    if failed is None and not refused:
        return None
    answer = Answer(False, State.HEALTHY, "request-error", Phase.SERVING, Verdict.SUPPORTED)
    # The access log tells that a request failed, another line tells why.
    telling = [m for m in refused if '" 4' not in m.unit.text and '" 5' not in m.unit.text]
    answer.seen = failed or _seen(next(iter((*telling, *refused)), None), answer)
    answer.why = "one request failed, the server went on"
    return answer


def _survived(story: Story, candidates: list[Candidate]) -> Answer | None:
    scare = candidates[0] if candidates else None
    if scare is None or not story.of("ready", "alive", "batch"):
        return None
    why = f"survived: {scare.unit.shown}"[:200]
    return Answer(
        False,
        State.HEALTHY,
        "benign-warning",
        Phase.SERVING,
        Verdict.SUPPORTED,
        seen=scare,
        why=why,
    )


def _quiet(known: Board, story: Story, timeline: phases.Timeline) -> Answer:
    notable = [m for m in _benign(known) if m.rule.notable]
    serving = story.of("ready", "alive", "batch", "health-ok")
    phase = Phase.SERVING if serving else (timeline.last or Phase.UNKNOWN)
    if notable:
        state = State(next((m.rule.state for m in notable if m.rule.state), "healthy"))
        answer = Answer(False, state, "benign-warning", phase, Verdict.SUPPORTED)
        answer.seen, answer.why = _seen(notable[0], answer), notable[0].unit.shown
        return answer
    answer = Answer(False, State.HEALTHY, "healthy-startup", phase, Verdict.ESTABLISHED)
    if serving:
        answer.seen, answer.why = _seen(serving[0], answer), "the server answers"
        return answer
    if timeline.last is not None:
        answer.verdict, answer.why = (
            Verdict.HYPOTHESIS,
            "the start goes on; nothing is wrong so far",
        )
        return answer
    why = "nothing in this log tells"
    return Answer(False, State.HEALTHY, "unknown", phase, Verdict.UNKNOWN, why=why)


def _hung(story: Story) -> Answer | None:
    failed = story.of("health-failed")
    if failed and failed[-1].unit.index > story.last("batch", "dead", "killed"):
        return _hang(failed[0], "health probes get no answer from the scheduler")
    if story.hung and not story.of("dead", "killed", "stop"):
        why = "the unit ran and did not answer when the bundle was made"
        return Answer(
            False, State.HUNG, "hang-healthcheck", Phase.SERVING, Verdict.SUPPORTED, why=why
        )
    dumped = story.of("stacks")
    ended = story.of("dead", "killed", "stop", "fatal-head")
    if dumped and not ended and dumped[-1].unit.index > story.last("alive", "batch"):
        return _hang(dumped[0], "somebody took the stacks of its processes; nothing ran after that")
    refused = unanswered(story)
    if refused is not None:
        return _hang(refused, "health probes are refused since; it served before")
    probe = silent(story)
    if probe is not None:
        why = "the scheduler fell silent while it had requests; health is still answered"
        return _hang(probe, why)
    return None


def _hang(match: Match, why: str) -> Answer:
    answer = Answer(
        False, State.HUNG, "hang-healthcheck", Phase.SERVING, Verdict.HYPOTHESIS, why=why
    )
    answer.root = _seen(match, answer)
    return answer


def _seen(match: Match | None, answer: Answer) -> Candidate | None:
    """Return the record on which an answer rests, as a root would be."""
    if match is None:
        return None
    rule = replace(match.rule, role="root", label=answer.label, strength="symptom")
    return Candidate(match.unit, rule, dict(match.captured), answer.phase, answer.label)


def _uncaught(known: Board, story: Story) -> bool:
    """Return whether an exception that nobody caught ended the program, though none can be the root."""
    of_chain = weights(known)
    return any(
        u.raised is not None
        and u.kind == EXCEPTION
        and of_chain[u.raised.chain].fatal
        and not known.has(u, "benign")
        and not story.alive_after(u.index)
        for u in known.units
    )


def _broken_off(known: Board) -> bool:
    """Return whether the log ends inside a traceback of the program's own start."""
    last = next((u.raised for u in reversed(known.units) if u.raised is not None), None)
    if last is None or last.type or not last.frames or last.index < known.units[-1].index - 2:
        return False
    return last.frames[0].function in ("<module>", "_run_module_as_main", "run_scheduler_process")


def _phase_of_end(known: Board, story: Story, timeline: phases.Timeline) -> Phase:
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
    served = Phase.SERVING if story.of("alive", "batch", "health-ok") else Phase.UNKNOWN
    return timeline.at(min(ends, default=1 << 60)) or served


def _benign(known: Board) -> list[Match]:
    return [m for unit in known.units for m in known.of(unit) if m.rule.role == "benign"]
