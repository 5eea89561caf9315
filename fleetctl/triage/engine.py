"""The whole way from evidence to a :class:`Triage`; ``fleetctl.triage`` is its public face."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fleetctl.evidence import traceback
from fleetctl.evidence.exceptions import Raised
from fleetctl.evidence.record import UNIT, Evidence, Record
from fleetctl.model.triage import Advice, Cascade, Coverage, Root, Triage, Verdict
from fleetctl.remote import patch_marker
from fleetctl.triage import advice, filling, fingerprint, foreign, ranks, story
from fleetctl.triage.answer import Answer
from fleetctl.triage.candidate import Candidate, said_by_client
from fleetctl.triage.decide import decide
from fleetctl.triage.match import Match, Matcher
from fleetctl.triage.patched import at_original_lines, still_open, told
from fleetctl.triage.rule import Rules
from fleetctl.triage.units import EXCEPTION, HEAD, Unit, build

_MESSAGE_LIMIT = 2000
_CASCADES = 60


@dataclass(slots=True)
class Explained:
    """A triage with everything behind it, for ``rules explain`` and ``--explain-fingerprint``."""

    triage: Triage
    answer: Answer
    identity: fingerprint.Print
    matches: list[Match]


def examine(
    evidence: Evidence, rules: Rules, number: Callable[[int], int] | None = None
) -> Explained:
    """Return the triage of evidence and what it was made of.

    Args:
        evidence: records in the order of time.
        rules: the rules to use.
        number: turns the ``line`` of a record into a line number, where records hold offsets.
    """
    parsed = traceback.parse(evidence.records)
    units = build(evidence.records, parsed)
    known = rules.of_version(evidence.versions.get("sglang", "")).rules
    matches = foreign.set_aside(Matcher(units).run(known), evidence)
    for match in matches:
        if "rank" in match.captured and not match.unit.ranks:
            match.unit.ranks = [match.captured["rank"]]
    answer = _best_attempt(evidence, units, matches, parsed.raised)
    return _explained(evidence, answer, matches, number or (lambda line: line))


def _best_attempt(
    evidence: Evidence, units: list[Unit], matches: list[Match], raised: Sequence[Raised]
) -> Answer:
    records = evidence.records
    ends = sorted(
        {m.unit.index for m in matches if m.rule.means in ("dead", "killed", "ready", "fatal-head")}
    )
    spans = story.attempts(records, ends)
    answers = [
        (span, _attempt(span, evidence, units, matches, raised))
        for span in spans
        if len(spans) == 1 or not story.is_fragment(records, span)
    ] or [(range(len(records)), _attempt(range(len(records)), evidence, units, matches, raised))]
    for _, answer in reversed(answers):
        if answer.crash and answer.label != "root-not-in-log":
            return answer
    for _, answer in reversed(answers):
        if answer.crash or answer.state == "hung":
            return answer
    told = [a for _, a in answers if a.label != "unknown"]
    return told[-1] if told else answers[-1][1]


def _attempt(
    span: range,
    evidence: Evidence,
    units: list[Unit],
    matches: list[Match],
    raised: Sequence[Raised],
) -> Answer:
    def inside(index: int, origin: str = "app") -> bool:
        return index in span or origin in ("kernel", UNIT)

    mine = [m for m in matches if inside(m.unit.index, m.unit.origin)]
    tale = story.tell(
        [
            m
            for m in mine
            if m.unit.index in span or m.rule.means not in ("ready", "alive", "batch")
        ],
        evidence.asked_stop,
        hung=evidence.hung,
        host_down=evidence.host_down,
    )
    return decide(
        [u for u in units if inside(u.index, u.origin)],
        mine,
        tale,
        [r if i in span else Record(r.line, "") for i, r in enumerate(evidence.records)]
        if len(span) < len(evidence.records)
        else evidence.records,
        [r for r in raised if inside(r.index)],
    )


def _explained(
    evidence: Evidence, answer: Answer, matches: list[Match], number: Callable[[int], int]
) -> Explained:
    candidate = answer.root
    markers = _markers(evidence.records)
    step = worker = None
    if candidate is not None:
        step = fingerprint.step_of(candidate.unit.raised) or _field(
            markers, candidate, "step", ("capture", "replay")
        )
        worker = fingerprint.worker_of(candidate.unit.raised) or _field(
            markers, candidate, "worker", ("target", "draft")
        )
        identity = fingerprint.of(candidate, step)
    else:
        identity = fingerprint.without_root(answer.label, answer.phase.value)
    shown = candidate or answer.seen
    root = _root(shown, answer, worker, step, number) if shown is not None else None
    root = at_original_lines(root, evidence.patches)
    triage = Triage(
        crash=answer.crash,
        state=answer.state,
        label=answer.label,
        phase=answer.phase,
        verdict=_capped(answer.verdict, evidence),
        root=root,
        cascades=_cascades(answer, number),
        signature=identity.signature,
        fingerprint=identity.fingerprint,
        entity=_entity(candidate),
        advice=filling.filled(still_open(_advice(answer), markers), evidence, answer),
        captured=_captured(answer, markers) | told(evidence.patches),
        coverage=_coverage(evidence),
    )
    return Explained(triage, answer, identity, matches)


def _capped(verdict: Verdict, evidence: Evidence) -> Verdict:
    """A verdict from a log with holes is at most supported."""
    return Verdict.SUPPORTED if verdict is Verdict.ESTABLISHED and evidence.suppressed else verdict


def _root(
    candidate: Candidate,
    answer: Answer,
    worker: str | None,
    step: str | None,
    number: Callable[[int], int],
) -> Root:
    unit, raised = candidate.unit, candidate.unit.raised
    kind = raised.type if raised is not None and raised.type else None
    message = unit.shown
    if unit.kind == HEAD and raised is not None:
        chain = answer.chains.get(raised.chain, [raised])
        message = f"{unit.text} {said_by_client(chain, raised).text}"
    elif raised is not None and unit.kind == EXCEPTION:
        message = raised.text
    return Root(
        line=number(unit.line),
        exception_type=kind,
        message=message[:_MESSAGE_LIMIT],
        ranks=ranks.of(candidate, answer),
        worker=worker,
        step=step,
        frames=tuple(raised.frames) if raised is not None else (),
        rule=candidate.rule.id,
    )


def _cascades(answer: Answer, number: Callable[[int], int]) -> tuple[Cascade, ...]:
    groups: dict[tuple[str, str], list[Unit]] = {}
    root = answer.root or answer.seen
    for unit in answer.known.units:
        if root is not None and unit is root.unit:
            continue
        kind = _kind(unit, answer)
        if kind:
            groups.setdefault((kind, fingerprint.shape_of(unit.text)), []).append(unit)
    found = [
        Cascade(
            number(units[0].line),
            kind,
            units[0].shown.split("\n")[0][:400],
            tuple(dict.fromkeys(r for u in units for r in u.ranks)),
            len(units),
        )
        for (kind, _), units in groups.items()
    ]
    return tuple(found[:_CASCADES])


def _kind(unit: Unit, answer: Answer) -> str:
    matches = answer.known.of(unit)
    for role in ("cascade", "teardown", "confirmation", "root"):
        match = next((m for m in matches if m.rule.role == role), None)
        if match is not None:
            return match.rule.id
    if (
        unit.kind == EXCEPTION
        and unit.raised is not None
        and unit.raised.type
        and not any(m.rule.role == "benign" for m in matches)
    ):
        return unit.raised.name
    return ""


def _entity(candidate: Candidate | None) -> str | None:
    if candidate is None or not candidate.rule.entity:
        return None
    try:
        return candidate.rule.entity.format(**candidate.captured)
    except (KeyError, IndexError, ValueError):
        return None


def _advice(answer: Answer) -> tuple[Advice, ...]:
    rule = answer.root.rule if answer.root is not None else None
    if answer.label == "gpu-hw-fault":
        of_driver = advice.for_xids(u.text for u in answer.known.units if "NVRM" in u.text)
        if of_driver:
            return of_driver
    given = rule.advice if rule is not None else ()
    found = [Advice(a.action, a.why, a.command or None, a.disruptive) for a in given]
    return tuple(found) or advice.for_label(answer.label)


def _captured(answer: Answer, markers: list[patch_marker.Marker]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for matches in answer.known.by_unit.values():
        for match in matches:
            if match.rule.role in ("confirmation", "teardown") and match.captured:
                found |= {k: v for k, v in match.captured.items() if k not in found}
    if answer.root is not None:
        found |= answer.root.captured
    if markers:
        found["patch_markers"] = [{"patch": m.patch, **m.fields} for m in markers[-8:]]
    return found


def _markers(records: Sequence[Record]) -> list[patch_marker.Marker]:
    return [m for m in patch_marker.scan(r.text for r in records) if m.event != "loaded"]


def _field(
    markers: list[patch_marker.Marker], candidate: Candidate, name: str, allowed: tuple[str, ...]
) -> str | None:
    """Return a field of the last marker of the root's process, else of the last marker of all."""
    own = [
        m for m in markers if candidate.unit.pid and str(m.fields.get("pid")) == candidate.unit.pid
    ]
    for marker in reversed(own or markers):
        value = marker.fields.get(name)
        if value in allowed:
            return str(value)
    return None


def _coverage(evidence: Evidence) -> Coverage:
    seen = Counter(r.rank for r in evidence.records if r.rank)
    return Coverage(
        lines=evidence.lines,
        suppressed_messages=evidence.suppressed,
        truncated_lines=evidence.truncated,
        ranks_seen=tuple(sorted(seen, key=_natural)),
        sources=tuple(evidence.sources),
    )


def _natural(text: str) -> list[tuple[int, str]]:
    import re

    return [(int(p), "") if p.isdigit() else (-1, p) for p in re.split(r"(\d+)", text) if p]
