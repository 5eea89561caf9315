"""What a person reads of a deploy."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.apply.outcome import State
from fleetctl.report.advice import command_line
from fleetctl.report.deploy import event_line, progress_text, verdict_lines
from fleetctl.report.status import table

HEAD = {"host": "b300-01", "service": "main"}


def result(**fields: Any) -> dict[str, Any]:
    base = {
        "event": "result", "state": "failed-start", "error": "crashed", "phase": "graph-capture",
        "launch_id": "L", "invocation_id": "abc", "seconds": 12.34, "incident": None, "triage": None,
    }  # fmt: skip
    return HEAD | base | fields


TRIAGE = {
    "label": "cublas-capture",
    "verdict": "established",
    "root": {
        "exception_type": "RuntimeError",
        "message": "CUDA error",
        "ranks": ["TP3"],
        "worker": "draft",
        "step": "capture",
        "frames": [
            {
                "file": "/v/site-packages/sglang/srt/x.py",
                "line": 7,
                "function": "f",
                "in_app": True,
            },
            {"file": "/v/site-packages/torch/y.py", "line": 9, "function": "g", "in_app": False},
        ],
    },
    "advice": [{"action": "a", "why": "look here", "command": "do it", "disruptive": True}],
}


def test_a_crash_is_told_with_root_place_change_advice_and_ways_on() -> None:
    text = "\n".join(
        verdict_lines(
            result(
                triage=TRIAGE, incident="i-1", bundle="/b/i-1", profile="ep8", last_ready_profile="tp8",
                changed_since_ready=["+a", "+b"],
            )
        )
    )  # fmt: skip
    for part in (
        "b300-01/main: CRASHED in graph-capture after 12.3 s  [cublas-capture, established]",
        "RuntimeError: CUDA error (TP3)", "sglang/srt/x.py:7 in f", "draft, capture",
        "2 atoms since the last ready launch: +a, +b",
        "fleetctl bisect-flags b300-01 --good tp8 --bad ep8",
        "look here", "$ do it  # disruptive", "/b/i-1", "fleetctl incidents show i-1",
        "fleetctl logs b300-01/main --invocation abc",
    ):  # fmt: skip
        assert part in text, text


def test_a_bisect_is_offered_for_this_very_launch_and_not_for_its_profile_alone() -> None:
    both = {"changed_since_ready": ["+a", "+b"], "profile": "ep8", "last_ready_profile": "tp8"}
    changed = ["--unset", "enable-nccl-nvls", "--set", "env.X=a b"]
    text = "\n".join(verdict_lines(result(**both, overrides=changed)))
    assert (
        "$ fleetctl profiles save-as ep8-crashed -p ep8 --unset enable-nccl-nvls --set 'env.X=a b'"
        in text
    )
    assert "$ fleetctl bisect-flags b300-01 --good-last-ready --bad ep8-crashed" in text
    same = "\n".join(verdict_lines(result(**both | {"last_ready_profile": "ep8"})))
    assert "fleetctl bisect-flags b300-01 --good-last-ready --bad ep8" in same


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("fleetctl patch push capture-guard HOST", "$ fleetctl patch push capture-guard b300-01"),
        ("fleetctl lint PROFILE --sglang VERSION", "$ fleetctl lint ep8 --sglang VERSION"),
        (
            "fleetctl bisect-flags HOST --good PROFILE --bad PROFILE",
            "$ fleetctl bisect-flags b300-01 --good PROFILE --bad PROFILE",
        ),
        (
            "fleetctl deploy HOST --profile P --set disable-cuda-graph",
            "$ fleetctl deploy b300-01 --profile ep8 --unset x --set disable-cuda-graph",
        ),
        ("nc -vz HOST PORT", "$ nc -vz HOST PORT"),
        ("--disable-cuda-graph", "add to the deploy: --set disable-cuda-graph"),
        (
            "--attention-backend triton --moe-runner-backend triton",
            "add to the deploy: --set attention-backend=triton --set moe-runner-backend=triton",
        ),
        ("NCCL_NVLS_ENABLE=0", "add to the deploy: --set env.NCCL_NVLS_ENABLE=0"),
        ("A=/b PATH=/b:$PATH", "$ A=/b PATH=/b:$PATH"),
        ("", ""),
    ],
)
def test_advice_is_something_to_type(command: str, shown: str) -> None:
    names = {"HOST": "b300-01", "PROFILE": "ep8", "P": "ep8 --unset x", "VERSION": None}
    assert command_line({"command": command}, names) == shown


def test_a_start_that_was_not_waited_for_goes_on() -> None:
    text = "\n".join(verdict_lines(result(state="timed-out", error="timeout")))
    assert "NOT READY IN TIME in graph-capture" in text
    assert "the service goes on starting (abc)" in text
    assert "$ fleetctl wait b300-01/main" in text


def test_a_unit_that_systemd_starts_again_is_said_to_go_on() -> None:
    text = "\n".join(verdict_lines(result(restarts_after=15)))
    assert "systemd starts it again after 15 s; to leave it down:" in text
    assert "$ fleetctl stop b300-01/main" in text
    assert "starts it again" not in "\n".join(verdict_lines(result()))


def test_a_value_of_a_whole_page_does_not_hide_the_rest() -> None:
    atoms = ["env +X=" + "x" * 9000, "+b"]
    text = "\n".join(verdict_lines(result(changed_since_ready=atoms)))
    assert "2 atoms since the last ready launch: env +X=xxx" in text
    assert "… (9007 characters), +b" in text
    assert len(text) < 700


def test_one_atom_needs_no_bisect() -> None:
    text = "\n".join(
        verdict_lines(result(changed_since_ready=["+a"], profile="b", last_ready_profile="a"))
    )
    assert "1 atom since the last ready launch: +a" in text
    assert "bisect" not in text


def test_without_triage_the_first_look_is_shown_as_such() -> None:
    crash = {"line": "ValueError: x", "ranks": [], "file": "/a.py", "file_line": 3, "function": "f"}
    assert "ValueError: x at /a.py:3 in f (first look)" in "\n".join(
        verdict_lines(result(crash=crash))
    )


def test_without_any_sign_the_last_line_is_shown_and_no_root_is_made_up() -> None:
    text = "\n".join(verdict_lines(result(state="hung", error="silent", last_line="Capturing")))
    assert "HANGS in graph-capture" in text
    assert "last line Capturing" in text
    assert "root" not in text


@pytest.mark.parametrize("state", State)
def test_every_state_has_a_headline_of_its_own(state: State) -> None:
    first = verdict_lines(result(state=state.value, error=None, phase="unknown"))[0]
    assert state.value not in first or state.value in first.lower()
    assert first.startswith("b300-01/main: ")
    assert first.split(": ")[1][0].isupper()


def test_an_interrupted_one_says_what_runs() -> None:
    text = "\n".join(verdict_lines(result(state="interrupted", error="interrupted")))
    assert "goes on starting (abc)" in text
    assert "fleetctl wait b300-01/main" in text


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            {"phase": "weight-load", "progress": {"of": "shards", "done": 3, "total": 23, "eta": 61.0},
             "life": {"read_bytes_per_second": 3 * 1024**3, "gpu_bytes": 0, "cpu": 1.0}},
            "weight-load, 3/23 shards, 3.0 GiB/s, ETA 1 min",
        ),
        (
            {"phase": "weight-load", "progress": {"of": "bytes", "done": 1024**3, "total": 4 * 1024**3, "eta": 9.0}},
            "weight-load, 1.0 GiB of 4.0 GiB read, ETA 9 s",
        ),
        ({"phase": "graph-capture", "life": {"read_bytes_per_second": 0, "gpu_bytes": 0, "cpu": 0.5}},
         "graph-capture, CPU 0.5"),
        ({"phase": "import"}, "import"),
    ],
)  # fmt: skip
def test_progress_is_one_short_line(event: dict[str, Any], text: str) -> None:
    assert progress_text(event) == text


@pytest.mark.parametrize(
    ("event", "part"),
    [
        ({"event": "step", "do": "restart-unit", "state": "issued", "seconds": 0.2, "target": "u"}, "restart issued"),
        ({"event": "connection", "state": "lost", "attempt": 2}, "connection lost, trying again (2)"),
        ({"event": "connection", "state": "back"}, "connected again"),
        ({"event": "request", "number": 1, "path": "/generate", "status": None, "error": "reset", "seconds": 1.0}, "reset"),
        ({"event": "ready", "seconds": 3.0}, "ready"),
        ({"event": "warning", "message": "m"}, "warning: m"),
        ({"event": "step", "do": "write-file", "state": "done", "seconds": 0.1, "target": "x"}, ""),
    ],
)  # fmt: skip
def test_each_event_has_its_line(event: dict[str, Any], part: str) -> None:
    line = event_line(HEAD | event)
    assert part in line if part else line == ""


def test_the_table_of_status_says_what_is_wrong_where() -> None:
    unit = {"active_seconds": 7200.0, "n_restarts": 0, "result": "success"}
    lines: list[dict[str, Any]] = [
        HEAD | {"state": "ready", "unit": unit, "launch": {"profile": "tp8", "sglang": "0.5.12"}},
        {"host": "b", "service": "main", "state": "unreachable", "message": "refused"},
        {"host": "c", "service": "main", "state": "looping", "unit": {"n_restarts": 3, "result": "signal"},
         "bundles": [{}], "lock": {"who": "ann@desk"}},
        {"host": "d", "service": "main", "state": "unhealthy", "unit": {},
         "health": {"path": "/health", "status": 503, "ours": False}},
    ]  # fmt: skip
    text = "\n".join(table(lines))
    for part in (
        "b300-01/main  ready", "2 h", "refused", "restarted 3 times; result signal; locked by ann@desk",
        "evidence kept", "/health says 503; another process has its port",
    ):  # fmt: skip
        assert part in text, text
