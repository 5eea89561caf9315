"""Candidates for the root, and which of two is nearer to the cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from fleetctl.evidence.exceptions import CPP, FAULT, USAGE, Raised
from fleetctl.model.triage import Frame, Phase
from fleetctl.triage.match import Match
from fleetctl.triage.rule import Rule
from fleetctl.triage.story import Story
from fleetctl.triage.units import EXCEPTION, Unit

_MOST_OF_A_RULE = 256  # candidates; more of the same kind tell nothing new
_LONGEST_CHAIN = 64

# What reads a request or writes its answer, apart from the schedulers.
_OF_REQUESTS = (".entrypoints.openai", "srt.function_call.")
_CLIENTS = ("requests.", "httpx.", "aiohttp.")
_BELOW_CLIENTS = ("urllib3.", "http.client.", "httpcore.", "anyio.", "socket.")
_PROBES = ("KeyError", "StopIteration", "Empty", "LookupError")
_OF_CONNECTIONS = ("TimeoutError", "ConnectionRefusedError", "ConnectionResetError", "OSError")

UNMATCHED = Rule(
    "python.unmatched",
    "An exception that no rule knows ended the server",
    "root",
    label="code-bug",
    strength="default",
    on="exception",
)


@dataclass(slots=True)
class Candidate:
    """A unit that may be the root, by one rule."""

    unit: Unit
    rule: Rule
    captured: dict[str, str] = field(default_factory=dict)
    phase: Phase = Phase.UNKNOWN
    label: str = ""
    fatal: bool = False
    wrapped: bool = False
    request: bool = False
    survived: bool = False  # the server served on after it
    position: int = 0  # in its chain
    lost: str = ""
    ruled_out: frozenset[str] = frozenset()  # rules of the unit that are for other phases

    @property
    def order(self) -> tuple[int, int, int, int, int, int]:
        """Sort key: what comes first is nearest to the cause."""
        return (
            int(self.survived),
            -self.rule.rank,
            -int(self.fatal),
            int(self.wrapped),
            self.unit.index,
            self.position,
        )


@dataclass(slots=True)
class Board:
    """All that is known of the units of one attempt: their matches, grouped."""

    by_unit: dict[int, list[Match]] = field(default_factory=dict)
    units: list[Unit] = field(default_factory=list)

    def of(self, unit: Unit) -> list[Match]:
        """Return the matches of a unit."""
        return self.by_unit.get(id(unit), [])

    def has(self, unit: Unit, *roles: str) -> bool:
        """Return whether a rule of one of the roles matches the unit."""
        return any(m.rule.role in roles for m in self.of(unit))

    def means(self, unit: Unit, meaning: str) -> bool:
        """Return whether a rule with the meaning matches the unit."""
        return any(m.rule.means == meaning for m in self.of(unit))


def board(units: Sequence[Unit], matches: Sequence[Match]) -> Board:
    """Return the matches by unit."""
    found = Board(units=list(units))
    for match in matches:
        found.by_unit.setdefault(id(match.unit), []).append(match)
    return found


def collect(known: Board, story: Story) -> list[Candidate]:
    """Return a candidate for each unit that a root rule matches, and for exceptions that none does."""
    weight_of = weights(known)
    found: list[Candidate] = []
    counts: Counter[str] = Counter()
    for unit in known.units:
        for candidate in _of_unit(unit, known, story, weight_of):
            counts[candidate.rule.id] += 1
            if counts[candidate.rule.id] <= _MOST_OF_A_RULE:
                found.append(candidate)
    return found


@dataclass(slots=True)
class Weight:
    """What a chain of exceptions did: end a process for sure, or spoil one request."""

    fatal: bool = False
    request: bool = False


def _of_web(frame: Frame) -> bool:
    """Return whether a frame is of a web framework, or a handler of SGLang's own routes."""
    if frame.module.startswith(("starlette", "uvicorn", "fastapi")):
        return True
    if any(part in frame.module for part in _OF_REQUESTS):
        return True
    name = frame.function.rsplit(".", 1)[-1]
    handler = name.endswith("_request") or name.startswith(("openai_", "v1_", "stream_"))
    return handler and frame.module.endswith(".entrypoints.http_server")


def weights(known: Board) -> dict[int, Weight]:
    """Return the weight of each chain: from the lines that announce it, and from its outermost frames."""
    found: dict[int, Weight] = {}
    for unit in known.units:
        raised = unit.raised
        if raised is None:
            continue
        weight = found.setdefault(raised.chain, Weight())
        said = {m.rule.means for m in known.of(unit)}
        web = any(_of_web(f) for f in raised.frames)
        weight.request = weight.request or "request" in said or web
        weight.fatal = (
            weight.fatal
            or bool(said & {"fatal-head", "wrapper"})
            or raised.kind in (CPP, FAULT, USAGE)
            or (not weight.request and uncaught(raised))
        )
    for weight in found.values():
        weight.request = weight.request and not weight.fatal
    return found


def instead(candidate: Candidate, known: Board, story: Story) -> list[Candidate]:
    """Return what the unit of a candidate is by the rules that are left, when its rule is for other phases."""
    raised = candidate.unit.raised
    weight = Weight(candidate.fatal, candidate.request)
    without = candidate.ruled_out | {candidate.rule.id}
    found = _of_unit(
        candidate.unit, known, story, {raised.chain: weight} if raised is not None else {}, without
    )
    for other in found:
        other.ruled_out = without
    return found


def _of_unit(
    unit: Unit,
    known: Board,
    story: Story,
    weight_of: dict[int, Weight],
    without: frozenset[str] = frozenset(),
) -> list[Candidate]:
    matches = [m for m in known.of(unit) if m.rule.id not in without]
    roots = [m for m in matches if m.rule.role == "root"]
    names = {m.rule.id for m in matches}
    stoppers = {m.rule.id for m in matches if m.rule.role in ("benign", "advice")}
    wrapped = any(m.rule.role in ("cascade", "teardown") for m in matches)
    roots = [
        m for m in roots if not stoppers - set(m.rule.beats) and _needed(m.rule, unit, story, known)
    ]
    # A rule that knows the message speaks before one that only knows its kind of exception, or its place.
    knowing = [m for m in roots if m.rule.strength != "default"]
    knowing = [m for m in knowing if not m.rule.by_place or _beats_any(m, knowing)] or knowing
    roots = knowing or ([] if wrapped else roots)
    unbeaten = [m for m in roots if not any(m.rule.id in o.rule.beats for o in roots)]
    roots = unbeaten or roots
    raised = unit.raised
    weight = Weight()
    if raised is not None and unit.kind == EXCEPTION:
        weight = weight_of[raised.chain]
    if (
        not roots
        and raised is not None
        and unit.kind == EXCEPTION
        and raised.type
        and not wrapped
        and not stoppers
    ):
        return [Candidate(unit, UNMATCHED, fatal=weight.fatal, request=weight.request)]
    best = max((m.rule.rank for m in roots), default=0)
    chosen = [m for m in roots if m.rule.rank == best]
    if not chosen:
        return []
    match = min(chosen, key=lambda m: (m.start, -len(m.rule.beats), m.rule.id))
    wrapped = wrapped and not names & set(match.rule.beats)
    return [
        Candidate(
            unit,
            match.rule,
            dict(match.captured),
            fatal=weight.fatal,
            request=weight.request,
            wrapped=wrapped,
        )
    ]


def _beats_any(match: Match, others: Sequence[Match]) -> bool:
    return any(o.rule.id in match.rule.beats for o in others if not o.rule.by_place)


def uncaught(raised: Raised) -> bool:
    """Return whether the outermost frame is the program's own start: nobody caught the exception."""
    if not raised.whole or not raised.frames or raised.head:
        return False
    outer = raised.frames[0]
    return (
        outer.function
        in (
            "<module>",
            "_run_module_as_main",
            "_bootstrap",
            "run_scheduler_process",
        )
        or outer.module == "runpy"
    )


def _needed(rule: Rule, unit: Unit, story: Story, known: Board) -> bool:
    """Return whether the other signs that a rule needs are there, after its own line."""
    if not rule.needs:
        return True
    later = [m for matches in known.by_unit.values() for m in matches if m.rule.id in rule.needs]
    return any(m.unit.index >= unit.index for m in later) and story.first("ready") > unit.index


def strongest(candidates: list[Candidate], chains: dict[int, list[Raised]]) -> Candidate | None:
    """Return the root among candidates and note on the others why they lost."""
    present = {c.rule.id: c.rule for c in candidates}
    beaten = {name: r.id for r in present.values() for name in r.beats if name in present}
    for candidate in candidates:
        raised = candidate.unit.raised
        chain = chains.get(raised.chain, [])[:_LONGEST_CHAIN] if raised is not None else []
        candidate.position = chain.index(raised) if raised in chain else len(chain)
        if candidate.rule.id in beaten:
            candidate.lost = f"{beaten[candidate.rule.id]} beats it"
    standing = _without_restated(_without_probes([c for c in candidates if not c.lost]))
    if not standing:
        return None
    root = min(standing, key=lambda c: c.order)
    for candidate in standing:
        if candidate is not root:
            candidate.lost = _why(root, candidate)
    return root


def _without_probes(standing: list[Candidate]) -> list[Candidate]:
    """Drop a failed look-up where the code that expected it failed in its turn, in the same function."""
    later = {(r.chain, *_place(r)) for c in standing if (r := c.unit.raised) is not None and r.link}
    probes = [c for c in standing if _probe(c) and _key(c) in later]
    for candidate in probes:
        candidate.lost = "the code expected it; what handles it failed"
    return [c for c in standing if not c.lost]


def _probe(candidate: Candidate) -> bool:
    """Return whether an exception is of a kind that code provokes to look something up."""
    raised = candidate.unit.raised
    asked = raised is not None and not raised.link and raised.name in _PROBES
    return asked and candidate.rule.strength == "default"


def _key(candidate: Candidate) -> tuple[int, str, str]:
    raised = candidate.unit.raised
    return (raised.chain, *_place(raised)) if raised is not None else (-1, "", "")


def _place(raised: Raised) -> tuple[str, str]:
    """Return module and function of the innermost frame."""
    return (raised.frames[-1].module, raised.frames[-1].function) if raised.frames else ("", "")


def said_by_client(chain: Sequence[Raised], raised: Raised) -> Raised:
    """Return the exception of a chain that names the address of a connection, else ``raised``."""
    return next((r for r in chain if r.type.startswith(_CLIENTS)), raised)


def _without_restated(standing: list[Candidate]) -> list[Candidate]:
    """Drop errors of a connection where the client library says the same again with the address."""
    clients = {
        (c.unit.raised.chain, c.rule.id)
        for c in standing
        if c.unit.raised is not None and c.unit.raised.type.startswith(_CLIENTS)
    }
    kept = []
    for candidate in standing:
        raised = candidate.unit.raised
        low = raised is not None and (
            raised.type.startswith(_BELOW_CLIENTS) or raised.type in _OF_CONNECTIONS
        )
        if raised is not None and low and (raised.chain, candidate.rule.id) in clients:
            candidate.lost = "the client library says it again with the address"
        else:
            kept.append(candidate)
    return kept


_SAID = {
    "outcome": "only an outcome",
    "symptom": "a symptom",
    "default": "an exception of no known kind",
    "generic": "a known kind of failure",
    "specific": "a known failure",
    "cause": "a cause outside the program",
}


def _why(root: Candidate, other: Candidate) -> str:
    if other.survived and not root.survived:
        return "the server served on after it"
    if root.rule.rank != other.rule.rank:
        return f"it is {_SAID[other.rule.strength]}, the root is {_SAID[root.rule.strength]}"
    if root.fatal != other.fatal:
        return "the root's exception ended a process, this line did not"
    if root.wrapped != other.wrapped:
        return "it only repeats another's message"
    same_chain = (
        root.unit.raised and other.unit.raised and root.unit.raised.chain == other.unit.raised.chain
    )
    return "later in the same chain" if same_chain else "later in the log"
