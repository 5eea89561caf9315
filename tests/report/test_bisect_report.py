"""How the trials and events of a bisect read."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.bisect.model import Outcome, Purpose
from fleetctl.bisect.space import Space, Switch
from fleetctl.bisect.state import Entry, Stage, State
from fleetctl.model.launch import Atom
from fleetctl.report import bisect as report

NAMES = ["ep", "nvls", "page"]


def trial(**changes: Any) -> dict[str, Any]:
    body = {
        "number": 7, "outcome": "same", "seconds": 64.0, "purpose": "search", "on": ["ep", "nvls"],
        "note": "", "signature": "boom", "phase": "graph-capture",
    }  # fmt: skip
    return body | changes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ["7", "CRASHES", "1 min", "search", "all but page"]),
        ({"outcome": "pass", "on": []}, ["serves", "(the good end)"]),
        ({"outcome": "other"}, ["other failure", "boom in graph-capture"]),
        (
            {"outcome": "invalid", "seconds": 0, "note": "refused"},
            ["cannot run", " - ", "[refused]"],
        ),
        ({"outcome": "infra", "note": "host-rebooted"}, ["host's fault", "host-rebooted"]),
        ({"confounded": True, "cached": True, "was": "pass"}, ["confounded; not launched; marked"]),
    ],
    ids=lambda v: "",
)
def test_a_row_of_the_table(changes: dict[str, Any], words: list[str]) -> None:
    text = report.table_row(trial(**changes), NAMES)
    assert all(w in text for w in words), text


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            {"event": "trial-start", "number": 3, "host": "h", "on": ["ep"], "purpose": "search"},
            "  trial 3 on h: ep (search)",
        ),
        (
            {"event": "remaining", "rounds": 3, "text": "3 to 4", "time": "5 min"},
            "  left: 3 to 4, 5 min",
        ),
        ({"event": "remaining", "rounds": 0, "text": "", "time": ""}, ""),
        ({"event": "split", "flags": ["a", "b"]}, "  now inside the group: a, b"),
        ({"event": "take-down", "host": "h", "service": "main"}, "  taking down h/main"),
        (
            {"event": "take-down", "host": "h", "service": "main", "failing": True},
            "  taking down h/main, which only crashed: it stays down",
        ),
        (
            {"event": "brought-back", "host": "h", "service": "main", "state": "ready"},
            "  h/main is back: ready",
        ),
        ({"event": "unheard-of"}, ""),
    ],
    ids=lambda v: "",
)
def test_the_line_of_an_event(event: dict[str, Any], line: str) -> None:
    assert report.event_line(event, NAMES) == line


def test_a_bisect_that_left_a_service_down_says_how_it_comes_back() -> None:
    switches = tuple(Switch(n, (Atom("flag", n, None, "1"),)) for n in NAMES)
    state = State(
        "b1",
        "2026-01-01T00:00:00Z",
        "me",
        "main",
        ["h1"],
        "tp8",
        "bad",
        "0.5.12",
        [Stage(Space(switches))],
    )
    assert "a crash that was not seen yet" in report.text(state)
    state.add(Entry(0, 0, ("ep",), Purpose.SEARCH.value, Outcome.PASS.value, seconds=3.0))
    state.taken_down = [{"host": "h1", "service": "main"}]
    assert "still down: h1/main; `fleetctl bisect abandon b1`" in report.text(state)
    row = report.row(state)
    assert (row["schema"], row["trials"], row["causes"]) == ("fleetctl.bisect-row/1", 1, [])
    assert report.row_line(state).startswith("b1  running")
    assert report.commands(state, {"status": "budget"}) == []
