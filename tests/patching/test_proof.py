"""When a patch counts as active: the rule, without a host."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.remote import patch_lines, patch_proof
from fleetctl.remote.patch_marker import Marker

PUSHED = 1000.0
RECORD = {"pushed_at": PUSHED, "files": ["/x.py"], "digest": "abcdef1234567890", "environment": {}}


def process(pid: int, title: str, started: float = PUSHED + 5) -> dict[str, Any]:
    return {"pid": pid, "title": title, "rank": patch_proof.rank_of(title), "started": started}


SERVER = process(1, "/opt/python")
RANKS = [process(2, "sglang::scheduler_TP0"), process(3, "sglang::scheduler_TP1")]


def beacon(pid: int, digest: str = "abcdef123456") -> Marker:
    return Marker("p", {"event": "loaded", "pid": pid, "digest": digest}, 0)


def judged(running: list[Any], said: list[Marker], **more: Any) -> tuple[str, str]:
    record = RECORD | more.pop("record", {})
    return patch_proof.judge(record, running, said, more.pop("seen", {}), more.pop("changed", []))


def test_every_rank_young_and_loaded_is_active() -> None:
    assert judged([SERVER, *RANKS], [beacon(2), beacon(3)])[0] == "active"


@pytest.mark.parametrize(
    ("running", "said", "more", "why"),
    [
        ([], [], {}, "does not run"),
        ([SERVER], [], {}, "no rank has started yet"),
        ([SERVER, *RANKS], [beacon(2)], {}, "TP1 (pid 3) has not loaded it"),
        (
            [SERVER, *RANKS],
            [beacon(2), beacon(3, "000000000000")],
            {},
            "TP1 (pid 3) has not loaded",
        ),
        (
            [SERVER, RANKS[0], process(4, "sglang::scheduler_TP1", PUSHED - 60)],
            [beacon(2), beacon(4)],
            {},
            "TP1 (pid 4) started before the push",
        ),
        ([SERVER, *RANKS], [beacon(2), beacon(3)], {"seen": {3: "sees the original"}}, "TP1"),
    ],
)
def test_what_is_missing_is_said(
    running: list[Any], said: list[Marker], more: dict[str, Any], why: str
) -> None:
    state, reason = judged(running, said, **more)
    assert state == "applied-not-active"
    assert why in reason


def test_a_unit_of_ranks_alone_is_judged_by_them() -> None:
    assert judged(RANKS, [beacon(2), beacon(3)])[0] == "active"


def test_a_file_that_changed_is_orphaned_whatever_runs() -> None:
    assert judged([SERVER, *RANKS], [beacon(2), beacon(3)], changed=["/x.py"])[0] == "orphaned"


def test_variables_need_no_beacon() -> None:
    assert judged([SERVER, *RANKS], [], record={"files": []})[0] == "active"


@pytest.mark.parametrize(
    ("title", "rank"),
    [
        ("sglang::scheduler", ""),
        ("sglang::scheduler_DP1_TP3", "DP1 TP3"),
        ("sglang::detokenizer", None),
        ("/usr/bin/python3", None),
    ],
)
def test_ranks_are_named_as_in_the_log(title: str, rank: str | None) -> None:
    assert patch_proof.rank_of(title) == rank


def test_traceback_lines_are_those_of_the_original_where_a_patch_was_active() -> None:
    bundle = {
        "patches": [{"state": "active", "files": [{"path": "/x.py"}]}],
        "files": {"/x.py": {"line_maps": [[[1, 1], [10, 0], [15, 10]]]}},
    }
    assert patch_lines.original(bundle, "/x.py", 9) == (9, True)
    assert patch_lines.original(bundle, "/x.py", 12) == (None, True)
    assert patch_lines.original(bundle, "/x.py", 20) == (15, True)
    assert patch_lines.original(bundle, "/y.py", 20) == (20, False)
    assert patch_lines.original(None, "/x.py", 20) == (20, False)
    bundle["patches"][0]["state"] = "applied-not-active"  # type: ignore[index]
    assert patch_lines.original(bundle, "/x.py", 20) == (20, False)


@pytest.mark.parametrize(("ended", "result"), [(True, "it is elsewhere"), (False, None)])
def test_silence_is_an_answer_only_when_the_launch_has_ended(
    ended: bool, result: str | None
) -> None:
    record = RECORD | {
        "name": "p", "rung": "overlay", "expires_at": 0.0, "by": "ann", "why": "", "version": "0.5",
        "parameters": {}, "silent": "it is elsewhere",
    }  # fmt: skip
    file = {"pristine": "a", "current": "b", "works": [{"name": "p"}]}
    state = {"files": {"/x.py": file}}
    found = patch_proof.describe(state, record, "active", "", [beacon(2)], "i", ended=ended)
    assert (found["result"], found["markers"], found["silent_means"]) == (
        result,
        0,
        "it is elsewhere",
    )
    loud = Marker("p", {"event": "none", "message": "pair 5 of 6"}, 1)
    found = patch_proof.describe(state, record, "active", "", [beacon(2), loud], "i", ended=ended)
    assert (found["result"], found["markers"]) == ("pair 5 of 6", 1)
