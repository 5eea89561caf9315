"""A bisect for people: table rows and event lines. The page is ``bisect_page``. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleetctl.bisect import verdict as verdicts
from fleetctl.bisect.model import Outcome, Purpose
from fleetctl.bisect.state import Entry, State
from fleetctl.model.plan import span

WORDS = {
    Outcome.PASS: "serves",
    Outcome.SAME: "CRASHES",
    Outcome.OTHER: "other failure",
    Outcome.INVALID: "cannot run",
    Outcome.INFRA: "host's fault",
}


def table_head() -> str:
    """Return the heading of the table of trials."""
    return f"{'no':>4}  {'outcome':13} {'time':>7}  {'why':9} on"


def said_set(on: Sequence[str], names: Sequence[str]) -> str:
    """Return a set of switches in few words: by what is off, where that is shorter."""
    off = [n for n in names if n not in on]
    if not on:
        return "(the good end)"
    if names and not off:
        return "(the bad end)"
    if names and len(off) < len(on):
        return f"all but {' + '.join(off)}"
    return " + ".join(on)


def table_row(event: Mapping[str, Any], names: Sequence[str] = ()) -> str:
    """Return one trial of the table; ``names``: every switch of its search."""
    word = WORDS[Outcome(event["outcome"])]
    time = span(event["seconds"]) if event["seconds"] else "-"
    on = said_set(event["on"], names)
    marks = [m for m, there in (
        ("confounded", event.get("confounded")), ("not launched", event.get("cached")),
        ("marked", event.get("was")),
    ) if there]  # fmt: skip
    notes = [*marks, *([event["note"]] if event.get("note") else [])]
    if event["outcome"] == Outcome.OTHER:
        notes.append(f"{event['signature']} in {event['phase']}")
    tail = f"  [{'; '.join(notes)}]" if notes else ""
    line = f"{event['number']:>4}  {word:13} {time:>7}  {event['purpose']:9} {on}{tail}"
    return "\n".join([line, *(f"{'':6}{text}" for text in told(event))])


def told(event: Mapping[str, Any]) -> list[str]:
    """Return what the patches of a trial said, and which of them were not active in it."""
    lines = []
    for one in event.get("patches") or ():
        if one.get("result"):
            lines.append(f"{one['name']}: {one['result']}")
        elif one.get("state") != "active":
            lines.append(f"{one['name']}: {one.get('state')}")
    return lines


def event_line(event: Mapping[str, Any], names: Sequence[str] = ()) -> str:
    """Return the line of an event, "" for one that needs none."""
    match event.get("event"):
        case "trial-start":
            on = said_set(event["on"], names)
            return f"  trial {event['number']} on {event['host']}: {on} ({event['purpose']})"
        case "remaining":
            return f"  left: {event['text']}, {event['time']}" if event["rounds"] else ""
        case "split":
            return f"  now inside the group: {', '.join(event['flags'])}"
        case "take-down":
            loops = ", which only crashed: it stays down" if event.get("failing") else ""
            return f"  taking down {event['host']}/{event['service']}{loops}"
        case "brought-back":
            name = f"{event['host']}/{event['service']}"
            if event["state"] == "ready":
                return f"  {name} is back: ready"
            why = event.get("message") or event.get("error") or ""
            return f"  {name} is NOT back: {event['state']}{' (' + why + ')' if why else ''}"
    return ""


def row(state: State) -> dict[str, Any]:
    """Return a line of ``bisect list --json``."""
    return {
        "schema": "fleetctl.bisect-row/1",
        "id": state.id,
        "hosts": state.hosts,
        "service": state.service,
        "good": state.good,
        "bad": state.bad,
        "sglang": state.sglang,
        "status": state.status,
        "trials": len(state.trials),
        "created_at": state.created_at,
        "updated_at": state.updated_at,
        "by": state.by,
        "causes": [c["flags"] for c in (state.verdict or {}).get("causes", ())],
        "taken_down": state.taken_down,
    }


def row_line(state: State) -> str:
    """Return a line of ``bisect list``."""
    causes = "; ".join(" + ".join(c["flags"]) for c in (state.verdict or {}).get("causes", ()))
    hosts = ", ".join(state.hosts)
    return (
        f"{state.id}  {state.status:18} {len(state.trials):>3} trials  {hosts}: "
        f"{state.good} → {state.bad}{'  ' + causes if causes else ''}"
    )


def text(state: State) -> str:
    """Return a bisect as ``bisect show`` prints it."""
    lines = [row_line(state), f"  by {state.by}, sglang {state.sglang}, hunting {hunted_of(state)}"]
    lines += [f"  {n:2}. {s.name}  ({s})" for n, s in enumerate(state.space.switches, 1)]
    if state.trials:
        lines += [table_head(), *(table_row(event_of(e), names_of(state, e)) for e in state.trials)]
    if state.taken_down:
        down = ", ".join(f"{d['host']}/{d['service']}" for d in state.taken_down)
        lines.append(f"still down: {down}; `fleetctl bisect abandon {state.id}` brings it back")
    if state.verdict:
        lines.append(verdicts.sentence(state.verdict))
        lines += [f"  {title}: {command}" for title, command in commands(state, state.verdict)]
    return "\n".join(lines)


def hunted_of(state: State) -> str:
    """Return how the hunted crash is called."""
    return state.hunted.signature or "a crash that was not seen yet"


def names_of(state: State, entry: Entry) -> list[str]:
    """Return every switch of the search that a trial belongs to."""
    return [s.name for s in state.stages[max(entry.stage, 0)].space.switches]


def event_of(entry: Entry) -> dict[str, Any]:
    """Return what a row of the table needs of a launch."""
    names = ("number", "purpose", "outcome", "seconds", "confounded", "cached", "was", "note")
    more = {
        "on": entry.on, "signature": entry.signature, "phase": entry.phase,
        "patches": () if entry.cached else entry.patches,
    }  # fmt: skip
    return {name: getattr(entry, name) for name in names} | more


def commands(state: State, said: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the two launches that show the verdict: the one that crashes, and the one that serves."""
    if said["status"] != "found":
        return []
    cause = said["causes"][0]
    guilty = {*cause["flags"], *cause["undetermined"]}
    last = len(state.stages) - 1
    base = {s.name for s in state.stage.base}
    proofs = [e for e in state.trials if e.command and e.stage in (0, last)]
    out = []
    crash = [
        e for e in proofs if e.outcome == Outcome.SAME and {*e.on, *_base(e, last, base)} == guilty
    ]
    serve = [
        e for e in proofs if e.outcome == Outcome.PASS and e.purpose == Purpose.CONFIRM and e.on
    ]
    if crash:
        out.append(("crashes", crash[-1].command))
    if serve:
        largest = max(serve, key=lambda e: len(e.on))
        out.append(("serves", largest.command))
    return out


def _base(entry: Entry, last: int, base: set[str]) -> set[str]:
    return base if entry.stage == last and last > 0 else set()
