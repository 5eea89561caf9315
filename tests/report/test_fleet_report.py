"""What a person reads of a rolling deploy, of revisions, locks and equal services."""

from __future__ import annotations

from typing import Any

from fleetctl.report import deploy, history, status


def report(**more: Any) -> dict[str, Any]:
    return {
        "event": "rollout", "state": "done", "why": "", "ready": [], "unchanged": [], "failed": [],
        "untouched": [], "rolled_back": {}, "seconds": 11.0,
    } | more  # fmt: skip


def test_a_stopped_rollout_says_what_was_and_was_not_done() -> None:
    text = deploy.event_line(
        report(
            state="stopped",
            why="the canary a/main failed",
            failed=["a/main"],
            untouched=["b/main", "c/main"],
            rolled_back={"a/main": 4},
        )
    )
    assert text.splitlines() == [
        "rolling: STOPPED after 11 s: the canary a/main failed",
        "  failed             a/main",
        "  not touched        b/main, c/main",
        "  back at revision   4 on a/main",
        "  the same command goes on, --resume without a second canary; what is ready stays",
    ]


def test_a_finished_rollout_says_no_more_than_it_did() -> None:
    text = deploy.event_line(report(ready=["a/main"], unchanged=["b/main"]))
    assert text.splitlines() == [
        "rolling: DONE after 11 s",
        "  changed and ready  a/main",
        "  had it already     b/main",
    ]


def line(host: str, **more: Any) -> dict[str, Any]:
    return {"host": host, "service": "main", "state": "ready", "revision": 3} | more


def test_equal_services_share_a_line_and_edits_by_hand_are_told() -> None:
    drift = [{"path": "/etc/fleetctl/main/environment", "state": "changed", "launch": "l"}]
    rows = status.table([line("a"), line("b"), line("c", drift=drift)], " ".join)
    assert len(rows) == 3
    assert rows[1].startswith("a/main b/main")
    assert rows[2].endswith("edited by hand: environment changed")


def test_a_revision_that_was_ready_and_failed_later_says_both() -> None:
    rows = history.revisions([{
        "number": 5, "at": "2026-11-29T17:53:22.123Z", "profile": "tp8", "versions": {}, "ready": True,
        "result": {"outcome": "crashed", "label": "oom"}, "digest": "7664de7400", "by": "ann",
        "restores": 2, "patches": {"nccl-init": "x"}, "reason": "",
    }])  # fmt: skip
    assert "ready, then crashed" in rows[1]
    assert rows[1].endswith("brings back 2; oom; patched: nccl-init")


def test_a_lock_says_who_and_how_long_it_was_silent() -> None:
    held = {"host": "a", "service": "main", "held": True, "who": "ann@desk", "why": "deploy tp8",
            "since": "2026", "beat_seconds": 42.0}  # fmt: skip
    assert history.lock(held) == (
        "a/main: held by ann@desk since 2026 (deploy tp8), last heartbeat 42 s ago"
    )
    assert history.lock(held | {"held": False}) == "a/main: free"
