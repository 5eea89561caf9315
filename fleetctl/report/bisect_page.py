"""A bisect as one page for a ticket: the answer, what to do, the proof, the narrowing. Pure."""

from __future__ import annotations

import importlib.resources
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from fleetctl.bisect import verdict as verdicts
from fleetctl.bisect.model import Outcome, Purpose, Status
from fleetctl.bisect.state import State
from fleetctl.model.launch import Atom, shown
from fleetctl.model.plan import span
from fleetctl.report.bisect import WORDS, commands, event_of, hunted_of, names_of, said_set, told

CELL, ROW, LEFT = 24, 22, 252  # of the drawing, in pixels
WHY = {
    Purpose.CALIBRATE: "an end",
    Purpose.SEARCH: "search",
    Purpose.OUTRIGHT: "search, proof",
    Purpose.CONFIRM: "proof",
    Purpose.ISOLATE: "table",
    Purpose.PAID: "known before",
}
HEADLINES = {
    Status.NOT_FLAGS: "Not the flags: {good} crashes in the same way",
    Status.DOES_NOT_REPRODUCE: "{bad} did not crash here",
    Status.INCONCLUSIVE: "No flag can be named",
    Status.BUDGET: "Stopped before an answer",
}


def html(state: State) -> str:
    """Return the page. Everything that comes from hosts is escaped; there is no script in it."""
    import jinja2

    source = (
        importlib.resources.files("fleetctl.report").joinpath("bisect.html.j2").read_text("utf-8")
    )
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    said = state.verdict
    return environment.from_string(source).render(
        state=state,
        said=said,
        headline=_headline(state, said),
        sentence=verdicts.sentence(said).splitlines() if said else [],
        chips=_chips(state, said) if said else [],
        todo=_todo(state, said) if said else [],
        facts=_facts(state),
        commands=_marked(commands(state, said)) if said else [],
        hunted=hunted_of(state),
        drawings=[_drawing(state, n) for n in range(len(state.stages))],
        rows=_rows(state),
    )


def _headline(state: State, said: Mapping[str, Any] | None) -> str:
    if said is None:
        return f"Still looking for what makes {state.bad} crash"
    if said["status"] == Status.FOUND:
        causes = [" + ".join(c["flags"]) for c in said["causes"]]
        verb = "bring" if len(causes) > 1 or " + " in causes[0] else "brings"
        return f"{', and '.join(causes)} {verb} the crash of {state.bad}"
    return HEADLINES[Status(said["status"])].format(good=state.good, bad=state.bad)


def _chips(state: State, said: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return each switch with what it changes and what it turned out to be, the guilty first."""
    parts = _parts(state)
    groups = [
        ("guilty", [f for c in said["causes"] for f in c["flags"]]),
        ("open", [f for c in said["causes"] for f in c["undetermined"]]),
        ("innocent", said["innocent"]),
    ]
    return [
        {"name": name, "role": role, "change": "; ".join(map(_change, parts.get(name, ())))}
        for role, names in groups
        for name in names
    ]


def _parts(state: State) -> dict[str, Sequence[Atom]]:
    return {s.name: s.parts for stage in state.stages for s in (*stage.space.switches, *stage.base)}


def _value(value: Any) -> str:
    if value is None:
        return "not there"
    return "on" if value is True else f"{value:g}" if isinstance(value, float) else shown(value)


def _change(part: Atom) -> str:
    return f"{_value(part.before)} → {_value(part.after)}"


def _todo(state: State, said: Mapping[str, Any]) -> list[str]:
    """Return what gets the service back, then what is left to find out."""
    parts = _parts(state)
    out = []
    for cause in said["causes"]:
        ways = [_ways(n, parts[n]) for n in cause["flags"] if n in parts]
        one = ways[0] if len(ways) == 1 else f"any one of these is enough: {' — or '.join(ways)}"
        if ways:
            out.append(f"To serve with the rest of {state.bad}: {one}.")
        if cause["masked_by"]:
            out.append(
                f"{', '.join(cause['undetermined'])} cannot be judged: "
                f"fix or patch “{cause['masked_by']}”, then bisect again."
            )
        if not cause["confirmed"]:
            out.append("Not shown from both sides yet: take it as a strong suspicion.")
    if said["status"] == Status.BUDGET:
        out.append(f"Go on where it ended: fleetctl bisect-flags --resume {state.id}")
    if said["differs_otherwise"]:
        out.append(f"The code differs too: {', '.join(said['differs_otherwise'])}.")
    return out


def _ways(name: str, parts: Sequence[Atom]) -> str:
    """Return how a switch gets back to its good value, under the name that the profile has."""
    if len(parts) == 1:
        return _back(name, parts[0])
    return "; ".join(_back(p.name, p) for p in parts)


def _back(name: str, part: Atom) -> str:
    return (
        f"leave {name} out" if part.before is None else f"set {name} back to {_value(part.before)}"
    )


def _facts(state: State) -> list[tuple[str, str]]:
    """Return the figures of the page's head."""
    launched = [e for e in state.trials if e.launched]
    spent = sum(e.seconds for e in launched)
    known = sum(1 for e in state.trials if e.purpose == Purpose.PAID)
    return [
        ("launches", f"{len(launched)}" + (f", and {known} known before" if known else "")),
        ("time", span(spent) if spent else "–"),
        ("on", f"{', '.join(state.hosts)}, service {state.service}"),
        ("between", f"{state.good} → {state.bad}"),
        ("sglang", state.sglang),
        ("begun", f"{state.created_at[:16].replace('T', ' ')} UTC by {state.by}"),
    ]


def _marked(found: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return the command lines in pieces; what the crashing one alone has is marked."""
    pieces = {title: _pieces(command) for title, command in found}
    serving = pieces.get("serves")
    return [
        {
            "title": title,
            "pieces": [
                {"text": p, "own": title == "crashes" and serving is not None and p not in serving}
                for p in mine
            ],
        }
        for title, mine in pieces.items()
    ]


def _pieces(command: str) -> list[str]:
    """Return a command line cut before each flag."""
    out: list[str] = []
    for word in shlex.split(command):
        quoted = shlex.quote(word)
        if word.startswith("--") or not out:
            out.append(quoted)
        else:
            out[-1] += f" {quoted}"
    return out


def _rows(state: State) -> list[dict[str, Any]]:
    return [
        event_of(e)
        | {
            "word": WORDS[Outcome(e.outcome)],
            "time": span(e.seconds) if e.seconds else "–",
            "host": e.host,
            "told": told(event_of(e)),
            "set": said_set(e.on, names_of(state, e)),
            "why": WHY[Purpose(e.purpose)],
        }
        for e in state.trials
    ]


def _drawing(state: State, stage: int) -> dict[str, Any]:
    """Return the narrowing of one search as cells: a row a trial, a column a switch."""
    names = [s.name for s in state.stages[stage].space.switches]
    trials = [e for e in state.trials if e.stage == stage]
    causes = (state.verdict or {}).get("causes", ())
    guilty = {f for c in causes for f in c["flags"]}
    open_ = {f for c in causes for f in c["undetermined"]}
    innocent = set((state.verdict or {}).get("innocent", ()))
    head = max([len(n) for n in names], default=0) * 6 + 24
    roles = {n: "guilty" if n in guilty else "open" if n in open_ else "" for n in names}
    return {
        "names": [
            {"name": n, "x": LEFT + i * CELL, "role": roles[n] or ("soft" if n in innocent else "")}
            for i, n in enumerate(names)
        ],
        "bands": [
            {"x": LEFT + i * CELL, "role": roles[n]} for i, n in enumerate(names) if roles[n]
        ],
        "rows": [
            {
                "y": head + i * ROW,
                "number": e.number,
                "outcome": e.outcome,
                "word": WORDS[Outcome(e.outcome)],
                "why": WHY[Purpose(e.purpose)],
                "cells": [{"x": LEFT + c * CELL, "on": n in e.on} for c, n in enumerate(names)],
            }
            for i, e in enumerate(trials)
        ],
        "head": head,
        "width": LEFT + len(names) * CELL + head,
        "height": head + len(trials) * ROW + 10,
        "cell": CELL,
        "row": ROW,
    }
