"""What counts as a crash, which record is the root, and how sure the answer may be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetctl.model.triage import Triage
from fleetctl.triage import Context, triage_bundle, triage_text

LIFE = "[2026-01-01 00:09:00 TP0] Decode batch. #running-req: 3, #token: 9120, token usage: 0.02, #queue-req: 0"
READY = "[2026-01-01 00:01:00] The server is fired up and ready to roll!"
SHUTDOWN = (
    "[2026-01-01 00:10:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down...",
    "sglang-main.service: Main process exited, code=killed, status=9/KILL",
)
CHILD = "[2026-01-01 00:10:00] Received sigquit from a child process. It usually means the child failed."


def trace(rank: str, text: str, *frames: str, second: int = 0) -> str:
    """A scheduler's traceback; a frame is written module:function."""
    lines = [
        f"[2026-01-01 00:05:{second:02d} {rank}] Scheduler hit an exception: Traceback (most recent call last):"
    ]
    for frame in frames or ("sglang/srt/managers/scheduler.py:event_loop_overlap",):
        file, function = frame.split(":")
        lines += [f'  File "/x/site-packages/{file}", line 7, in {function}', "    go()"]
    return "\n".join([*lines, text, ""])


def told(*parts: str, asked_stop: bool | None = None) -> Triage:
    return triage_text("\n".join(parts).encode(), Context(asked_stop=asked_stop))


def test_only_consequences_give_no_root_and_no_guess() -> None:
    found = told(CHILD, "Killed by the parent")
    assert (found.label, found.root, found.verdict, found.crash) == (
        "root-not-in-log",
        None,
        "unknown",
        True,
    )


def test_a_wrapper_is_not_the_root_but_what_it_wraps_is() -> None:
    inner = trace(
        "TP0", "TypeError: inner", "sglang/srt/model_executor/cuda_graph_runner.py:capture"
    )
    link = "\nDuring handling of the above exception, another exception occurred:\n"
    outer = 'Traceback (most recent call last):\n  File "/x/site-packages/sglang/srt/a.py", line 1, in __init__\n    x()\nException: Capture cuda graph failed: inner\nPossible solutions:\n1. set --mem-fraction-static to a smaller value'
    found = told(inner, link, outer, "", CHILD)
    assert found.root is not None
    assert (found.root.exception_type, found.phase, found.root.step) == (
        "TypeError",
        "graph-capture",
        "capture",
    )
    assert "capture-wrapper" in {c.kind for c in found.cascades}


def test_the_rank_that_differs_is_the_root_among_victims() -> None:
    victims = [
        trace(
            f"TP{n}",
            "RuntimeError: [/gloo/pair.cc:537] Connection closed by peer [10.0.0.4]:1",
            second=n,
        )
        for n in range(3)
    ]
    found = told(*victims, trace("TP5", "KeyError: 'x'", second=9), CHILD)
    assert found.root is not None
    assert (found.label, found.root.ranks) == ("code-bug", ("TP5",))
    (lost,) = [c for c in found.cascades if c.kind == "peer-closed"]
    assert (lost.count, lost.ranks) == (3, ("TP0", "TP1", "TP2"))


def test_the_watchdog_of_other_ranks_is_a_consequence_of_an_exception_before() -> None:
    dogs = [
        f"[2026-01-01 00:10:0{n} TP{n}] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"
        for n in (1, 2)
    ]
    assert told(trace("TP0", "IndexError: out"), *dogs, CHILD).label == "code-bug"
    alone = told(LIFE, *dogs, CHILD)
    assert (alone.label, alone.state, alone.crash) == ("hang-watchdog", "crashed", True)


def test_a_soft_watchdog_ends_nothing() -> None:
    found = told(
        LIFE,
        "[2026-01-01 00:10:01] Detokenizer watchdog timeout (self.watchdog_timeout=300, self.soft=True)",
        LIFE,
    )
    assert (found.label, found.state, found.crash) == ("benign-warning", "degraded", False)


def test_killed_means_out_of_memory_only_where_the_kernel_says_so() -> None:
    dead = "[2026-01-01 00:10:00] Subprocess scheduler_0 (pid=7) crashed with exit code -9. Triggering SIGQUIT for cleanup..."
    kernel = (
        "Jan 01 00:10:00 h kernel: Out of memory: Killed process 7 (sglang::schedul) total-vm:1kB"
    )
    assert told(LIFE, dead).label == "external-kill"
    proved = told(LIFE, dead, kernel)
    assert (proved.label, proved.entity) == ("host-oom-killed", "7")


def test_an_xid_of_a_page_fault_makes_a_cublas_status_an_illegal_access() -> None:
    surfaced = trace(
        "TP2",
        "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(handle)`",
    )
    xid = "[ 8123.511842] NVRM: Xid (PCI:0000:5d:00): 31, pid=48213, name=python3, Ch 0000000b, MMU Fault: ENGINE GRAPHICS"
    assert told(LIFE, surfaced, CHILD).label == "cublas-runtime"
    joined = told(LIFE, surfaced, CHILD, xid)
    assert (joined.label, joined.captured["xid"], joined.entity) == (
        "illegal-memory-access",
        "31",
        "0000:5d:00",
    )
    assert joined.root is not None
    assert joined.root.ranks == ("TP2",)
    assert "cublas" in {c.kind for c in joined.cascades}


def test_a_fault_of_the_card_explains_what_the_kernels_said() -> None:
    xid = "Jan 01 00:04:59 h kernel: NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    found = told(
        LIFE,
        xid,
        trace("TP1", "RuntimeError: CUDA error: an illegal memory access was encountered"),
        CHILD,
    )
    assert (found.label, found.captured["xid"]) == ("gpu-hw-fault", "79")


@pytest.mark.parametrize("asked", [None, True])
def test_what_dies_after_a_stop_was_asked_for_is_no_crash(asked: bool | None) -> None:
    stop = "[2026-01-01 00:09:59] SIGTERM received. signum=15 frame=None. Draining requests and shutting down..."
    end = "[2026-01-01 00:10:00] Subprocess scheduler_0 (pid=7) crashed with exit code -15. Triggering SIGQUIT for cleanup..."
    found = told(READY, LIFE, stop, end, CHILD, asked_stop=asked)
    assert (found.crash, found.state, found.label) == (False, "stopped", "graceful-shutdown")


def test_a_stop_after_the_crash_does_not_hide_it() -> None:
    stop = "[2026-01-01 00:11:00] SIGTERM received. signum=15 frame=None. Draining requests and shutting down..."
    assert told(READY, trace("TP0", "KeyError: 'x'"), CHILD, stop).label == "code-bug"


def test_an_exception_that_the_server_survived_is_one_requests_fault() -> None:
    text = "[2026-01-01 00:05:00] ERROR:    Exception in ASGI application\nTraceback (most recent call last):\n  File \"/x/site-packages/uvicorn/a.py\", line 1, in run_asgi\n    x()\nKeyError: 'x'"
    found = told(READY, text, LIFE)
    assert (found.crash, found.label, found.state) == (False, "request-error", "healthy")


def test_a_replica_that_died_beside_a_living_one_is_a_crash_in_a_degraded_server() -> None:
    found = told(READY, trace("DP1 TP2", "KeyError: 'x'"), LIFE)
    assert (found.crash, found.state) == (True, "degraded")
    assert found.root is not None
    assert found.root.ranks == ("DP1 TP2",)


def test_what_was_printed_before_the_server_became_ready_is_no_root() -> None:
    scare = "[2026-01-01 00:00:30 TP0] custom_all_reduce: failed, invalid argument custom_all_reduce.cuh:350"
    assert told(scare, READY, LIFE).crash is False


def test_health_that_fails_while_the_process_lives_is_a_hang_and_no_crash() -> None:
    sick = "[2026-01-01 00:12:00] Health check failed. Server couldn't get a response from detokenizer for last 20 seconds."
    found = told(READY, LIFE, sick, sick)
    assert (found.crash, found.state, found.label, found.verdict) == (
        False,
        "hung",
        "hang-healthcheck",
        "hypothesis",
    )


def test_a_restart_loop_tells_the_last_attempt_that_failed() -> None:
    def attempt(minute: int, text: str) -> str:
        return "\n".join(
            [
                f"Jan 01 00:{minute:02d}:00 h systemd[1]: Started sglang-main.service - SGLang.",
                f"Jan 01 00:{minute:02d}:01 h python3[{minute}]: [2026-01-01 00:{minute:02d}:01] server_args=ServerArgs(model_path='/m')",
                f"Jan 01 00:{minute:02d}:02 h python3[{minute}]: ValueError: {text}",
                f"Jan 01 00:{minute:02d}:03 h systemd[1]: sglang-main.service: Main process exited, code=exited, status=1/FAILURE",
            ]
        )

    again = "Jan 01 00:09:00 h systemd[1]: Started sglang-main.service - SGLang."
    found = told(attempt(1, "the first"), attempt(2, "the second"), again)
    assert found.root is not None
    assert found.root.message == "ValueError: the second"


def test_the_draft_worker_is_told_by_its_frames_not_by_the_mode() -> None:
    text = "AttributeError: 'NoneType' object has no attribute 'x'"
    draft = told(
        trace(
            "TP0",
            text,
            "sglang/srt/speculative/dflash_worker.py:draft_forward",
            "sglang/srt/models/a.py:forward",
        ),
        CHILD,
    )
    target = told(
        trace(
            "TP0",
            text,
            "sglang/srt/speculative/dflash_worker.py:verify",
            "sglang/srt/models/a.py:forward",
        ),
        CHILD,
    )
    neither = told(trace("TP0", text + " TARGET_VERIFY", "sglang/srt/models/a.py:forward"), CHILD)
    assert [t.root.worker if t.root else "" for t in (draft, target, neither)] == [
        "draft",
        "target",
        None,
    ]


def test_a_patchs_marker_tells_worker_and_step_where_frames_do_not() -> None:
    marker = 'fleetctl-patch grouped-foreach-copy v1 {"event": "found", "worker": "draft", "step": "replay", "pair": 5}'
    found = told(marker, trace("TP0", "KeyError: 'x'", "sglang/srt/models/a.py:forward"), CHILD)
    assert found.root is not None
    assert (found.root.worker, found.root.step) == ("draft", "replay")
    assert found.captured["patch_markers"][0]["pair"] == 5


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    rows = [
        ("3", "[2026-01-01 00:00:00 TP0] Load weight begin. avail mem=78.50 GB"),
        (
            "2",
            "[2026-01-01 00:00:09] Subprocess scheduler_0 (pid=3) crashed with exit code -9. Triggering SIGQUIT for cleanup...",
        ),
    ]
    journal = [
        {
            "__CURSOR": f"s=a;i={n:x};b=c",
            "__REALTIME_TIMESTAMP": str(n),
            "_PID": pid,
            "MESSAGE": text,
        }
        for n, (pid, text) in enumerate(rows, 1)
    ]
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(row) + "\n" for row in journal))
    (tmp_path / "manifest.json").write_text(
        json.dumps(
            {"schema": "fleetctl.bundle/1", "host": "h", "service": "main", "asked_stop": False}
        )
    )
    (tmp_path / "unit.txt").write_text("Result=signal\nExecMainStatus=9\n")
    return tmp_path


def test_a_bundle_joins_kernel_and_unit_with_the_journal(bundle: Path) -> None:
    assert triage_bundle(bundle).label == "external-kill"
    kernel = {
        "__CURSOR": "s=a;i=9;b=c",
        "_TRANSPORT": "kernel",
        "MESSAGE": "Memory cgroup out of memory: Killed process 3 (sglang::schedul) total-vm:1kB",
    }
    (bundle / "kernel.jsonl").write_text(json.dumps(kernel) + "\n")
    found = triage_bundle(bundle)
    assert (found.label, found.phase) == ("host-oom-killed", "weight-load")
    assert found.captured["exit_status"] == "9"
    assert found.coverage.sources == ("journal.jsonl", "kernel.jsonl", "unit.txt")


def test_a_bundle_knows_whether_the_stop_was_asked_for(bundle: Path) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text()) | {"asked_stop": True}
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    assert triage_bundle(bundle).crash is False


def test_a_bundle_of_a_hung_unit_says_so(bundle: Path) -> None:
    (bundle / "journal.jsonl").write_text(
        json.dumps({"__CURSOR": "s=a;i=1;b=c", "_PID": "3", "MESSAGE": LIFE}) + "\n"
    )
    (bundle / "unit.txt").unlink()
    manifest = json.loads((bundle / "manifest.json").read_text()) | {"hung": True}
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    found = triage_bundle(bundle)
    assert (found.state, found.crash, found.label) == ("hung", False, "hang-healthcheck")


@pytest.mark.parametrize("ended", [(), SHUTDOWN])
def test_a_bundle_of_a_host_that_went_down_blames_no_flag(
    bundle: Path, ended: tuple[str, ...]
) -> None:
    lines = [LIFE, *ended]
    (bundle / "journal.jsonl").write_text(
        "".join(
            json.dumps({"__CURSOR": f"s=a;i={n};b=c", "_PID": "3", "MESSAGE": line}) + "\n"
            for n, line in enumerate(lines)
        )
    )
    (bundle / "unit.txt").unlink()
    manifest = json.loads((bundle / "manifest.json").read_text())
    (bundle / "manifest.json").write_text(
        json.dumps(manifest | {"host_down": True, "asked_stop": False})
    )
    found = triage_bundle(bundle)
    assert (found.state, found.crash, found.label) == ("crashed", True, "host-down")
    assert found.phase == "serving"


def test_what_broke_the_server_before_its_host_went_down_stays_the_root(bundle: Path) -> None:
    kernel = {
        "_TRANSPORT": "kernel",
        "MESSAGE": "Out of memory: Killed process 3 (sglang::schedul)",
    }
    (bundle / "kernel.jsonl").write_text(json.dumps(kernel) + "\n")
    manifest = json.loads((bundle / "manifest.json").read_text()) | {"host_down": True}
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    assert triage_bundle(bundle).label == "host-oom-killed"
