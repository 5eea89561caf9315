"""Phases, progress and the first sign of a crash, from lines that machines printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleetctl.remote.markers import CrashSigns, Phases, is_own_poll, phase_of, progress_of

CASES = sorted((Path(__file__).parent / "cases" / "markers").glob("*.log"))


def rows(path: Path) -> list[tuple[float, str, str]]:
    """Each line of a case: seconds, process, text."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        at, process, text = line.split(" ", 2)
        found.append((float(at), process, text))
    return found


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_a_recorded_start_gives_its_phases_and_its_root(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    phases, signs = Phases(), CrashSigns()
    seen: list[str] = []
    crash: dict[str, Any] | None = None
    at = 0.0
    for at, process, text in rows(path):
        crash = crash or signs.tick(at)
        changed = phases.feed(text, process)
        if changed:
            seen.append(changed)
        found = signs.feed(text, process, at)
        crash = crash or found
    crash = crash or signs.tick(at + 1)
    assert seen == expected["phases"]
    assert (crash and {k: crash[k] for k in expected["crash"]}) == expected["crash"]


def test_the_slowest_rank_decides_the_phase() -> None:
    phases = Phases()
    phases.feed("[ TP0] Load weight begin.", "10")
    phases.feed("[ TP1] Load weight begin.", "11")
    assert phases.feed("[ TP0] Load weight end.", "10") is None
    assert phases.phase == "weight-load"
    assert phases.feed("[ TP1] Load weight end.", "11") == "kv-alloc"


def test_a_draft_model_goes_back_to_its_weights() -> None:
    phases = Phases()
    for text in ("Load weight begin.", "Load weight end.", "Capture cuda graph begin."):
        phases.feed(text, "10")
    assert phases.feed("Load weight begin.", "10") == "weight-load"


@pytest.mark.parametrize(
    "text",
    [
        "Capture cuda graph begin. This can take up to several minutes.",
        "Capture target decode CUDA graph begin. avail mem=3 GB",
        "Capture draft verify CUDA graph begin.",
        "Capture piecewise CUDA graph begin.",
    ],
)
def test_every_wording_of_a_capture_begins_it(text: str) -> None:
    assert phase_of(text) == "graph-capture"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Loading safetensors checkpoint shards:  13% Completed | 3/23 [00:10<01:00,  2.1s/it]",
            {"of": "shards", "done": 3, "total": 23},
        ),
        (
            "  0%|  | 0/4 [00:00<?]\rCapturing batches (bs=8 avail_mem=97.28 GB):  25%|##  | 1/4 [00:33<1:40]",
            {"of": "captures", "done": 1, "total": 4},
        ),
        ("Capture cuda graph bs [1, 2, 4, 8]", None),
        ("a | b | 3/4 of something else", None),
    ],
)
def test_the_last_bar_of_a_line_is_the_progress(text: str, expected: dict[str, Any] | None) -> None:
    assert progress_of(text) == expected


def test_a_health_poll_is_no_sign_of_life_but_a_request_is() -> None:
    assert is_own_poll('INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 503 Service Unavailable')
    assert not is_own_poll('INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 200 OK')


TRACE = (
    "Traceback (most recent call last):",
    '  File "/opt/x.py", line 3, in load',
    "    raise ValueError(name)",
    "ValueError: no such thing",
)


def feed(signs: CrashSigns, texts: tuple[str, ...], at: float) -> dict[str, Any] | None:
    """The last root that these lines gave away."""
    found = None
    for text in texts:
        found = signs.feed(text, "7", at) or found
    return found


def test_a_traceback_that_a_logger_printed_is_no_crash() -> None:
    signs = CrashSigns()
    signs.feed("[2026-11-29 13:00:00] could not load the plugin, going on", "7", 1.0)
    assert feed(signs, TRACE, 1.0001) is None
    assert signs.tick(5.0) is None


def test_a_bare_traceback_counts_only_when_nothing_follows() -> None:
    signs = CrashSigns()
    assert feed(signs, TRACE, 1.0) is None
    assert signs.waiting()
    assert signs.tick(1.1) is None
    found = signs.tick(1.4)
    assert found is not None
    assert found["exception_type"] == "ValueError"
    assert found["sure"] is False


def test_a_process_that_goes_on_printing_has_survived_its_traceback() -> None:
    signs = CrashSigns()
    feed(signs, TRACE, 1.0)
    signs.feed("[2026-11-29 13:00:00] going on", "7", 1.1)
    assert signs.tick(9.0) is None


def test_the_innermost_of_a_chain_is_named() -> None:
    signs = CrashSigns()
    feed(signs, TRACE, 1.0)
    link = "During handling of the above exception, another exception occurred:"
    outer = (*TRACE[:2], "RuntimeError: could not start")
    feed(signs, ("", link, "", *outer), 1.001)
    found = signs.feed("Received sigquit from a child process.", "1", 1.2)
    assert found is not None
    assert found["exception_type"] == "ValueError"
    assert found["sure"] is True


def test_a_dying_server_without_a_traceback_is_named_by_its_own_line() -> None:
    text = "[2026-11-29 13:00:00 TP4] Watchdog timeout (self.watchdog_timeout=300)"
    found = CrashSigns().feed(text, "7", 1.0)
    assert found is not None
    assert (found["kind"], found["ranks"]) == ("watchdog", ["TP4"])


def test_a_soft_watchdog_kills_nobody() -> None:
    text = "Watchdog timeout (self.watchdog_timeout=300, self.soft=True)"
    assert CrashSigns().feed(text, "7", 1.0) is None
