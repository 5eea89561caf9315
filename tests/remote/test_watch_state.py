"""The state of a watched start: what each observation leads to, without waiting for anything."""

from __future__ import annotations

from typing import Any

from fleetctl.remote.probes import probe_for
from fleetctl.remote.watch_state import STOPPING, WatchState

ACTIVE = {"InvocationID": "a", "ActiveState": "active", "SubState": "running", "NRestarts": "0"}
FAILED = ACTIVE | {"ActiveState": "failed", "SubState": "failed", "Result": "signal"}
LOOPING = ACTIVE | {"ActiveState": "activating", "SubState": "auto-restart", "Result": "signal"}


def start(**options: Any) -> WatchState:
    """A watch of invocation "a" that begins at 0."""
    version = options.pop("version", "0.5.12.post1")
    probe = probe_for(version, warms_up=options.pop("warms_up", False))
    return WatchState("a", probe, 0.0, model="/m", **options)


def names(events: list[dict[str, Any]]) -> list[str]:
    return [event["event"] for event in events]


def crash(state: WatchState, now: float) -> list[dict[str, Any]]:
    """The scheduler prints its traceback."""
    events = []
    for text in (
        "[2026-11-29 13:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/x/runner.py", line 9, in capture',
        "RuntimeError: CUDA error",
    ):
        events += state.line(text, "7", now, now)
    return events


def test_ready_is_health_then_the_right_model() -> None:
    state = start()
    assert state.due() == ("/health", 25.0)
    assert state.answered(503, 0.0, True, 1.0) == []
    assert not state.wants_identity()
    state.answered(200, 1.0, True, 2.0)
    assert state.wants_identity()
    assert names(state.identity({"model_path": "/m"}, 3.0)) == ["ready"]
    assert state.result is not None
    assert (state.result["state"], state.result["ready_seconds"]) == ("ready", 3.0)


def test_from_0_5_20_on_two_answers_are_needed() -> None:
    state = start(version="0.5.23")
    state.answered(200, 0.0, True, 1.0)
    assert not state.wants_identity()
    assert state.due() == ("/health", 25.0)
    state.answered(503, 0.0, True, 2.0)
    assert state.due() == ("/ready", 5.0), "after a no everything is asked again"


def test_before_0_4_10_the_log_must_say_so_too() -> None:
    state = start(version="0.4.9")
    state.answered(200, 1.0, True, 1.0)
    assert not state.wants_identity()
    state.line("The server is fired up and ready to roll!", "1", 2.0, 2.0)
    assert state.wants_identity()


READY_LINE = "[2026-11-29 13:00:00] The server is fired up and ready to roll!"


def test_sglangs_own_request_is_proof_enough_once_its_ready_line_is_there() -> None:
    state = start(warms_up=True)
    assert state.due() == ("/health", 25.0), "a log that says little never shows the line"
    state.line(READY_LINE, "1", 2.0, 2.0)
    assert (state.due(), state.wants_identity()) == (None, True)
    assert names(state.identity({"model_path": "/m"}, 2.1, True)) == ["ready"]


def test_from_0_5_20_on_the_line_leaves_one_cheap_question() -> None:
    state = start(version="0.5.23", warms_up=True)
    state.answered(200, 0.0, True, 1.0)
    state.line(READY_LINE, "1", 2.0, 2.0)
    assert (state.due(), state.wants_identity()) == (("/ready", 5.0), False)
    state.answered(200, 0.0, True, 2.1)
    assert (state.due(), state.wants_identity()) == (None, True)


def test_the_line_is_no_proof_without_a_request_of_sglangs_own() -> None:
    state = start()
    state.line(READY_LINE, "1", 2.0, 2.0)
    assert (state.due(), state.wants_identity()) == (("/health", 25.0), False)


def test_a_line_from_before_the_watch_says_nothing_of_now() -> None:
    state = start(warms_up=True, attached=True, signs_from=100.0)
    state.line(READY_LINE, "1", 50.0, 1.0)
    assert (state.due(), state.wants_identity()) == (("/health", 25.0), False)


def test_after_the_line_another_process_on_the_port_still_proves_nothing() -> None:
    state = start(warms_up=True)
    state.line(READY_LINE, "1", 2.0, 2.0)
    assert "another process" in state.identity({"model_path": "/m"}, 2.1, False)[0]["note"]
    assert state.result is None


def test_after_the_line_another_model_is_still_the_wrong_one() -> None:
    state = start(warms_up=True)
    state.line(READY_LINE, "1", 2.0, 2.0)
    state.identity({"model_path": "/other"}, 2.1, True)
    assert state.result is not None
    assert state.result["state"] == "ready-wrong-config"


def test_after_the_line_a_server_that_is_going_down_is_not_ready() -> None:
    state = start(warms_up=True)
    state.line(READY_LINE, "1", 2.0, 2.0)
    crash(state, 2.05)
    assert not state.wants_identity()
    state.unit(FAILED, 2.1)
    assert names(state.tick(2.2)) == ["failed"]


def test_another_model_ends_the_wait_at_once() -> None:
    state = start()
    state.answered(200, 1.0, True, 2.0)
    events = state.identity({"model_path": "/other"}, 3.0)
    assert names(events) == ["failed"]
    assert state.result is not None
    assert state.result["state"] == "ready-wrong-config"
    assert "/other" in state.result["message"]


def test_the_answer_of_another_process_on_the_port_proves_nothing() -> None:
    state = start()
    events = state.answered(200, 1.0, False, 2.0)
    assert "another process" in events[0]["note"]
    assert state.answered(200, 1.0, False, 3.0) == [], "said once"
    assert not state.wants_identity()


def test_a_crash_is_told_when_it_is_printed_and_settled_when_the_unit_has_ended() -> None:
    state = start()
    events = crash(state, 5.0)
    assert names(events) == ["crash"]
    assert events[0]["exception_type"] == "RuntimeError"
    assert events[0]["ranks"] == ["TP0"]
    assert state.due() is None, "no answer counts any more"
    state.unit(FAILED, 5.2)
    assert names(state.tick(5.2)) == ["failed"], "nothing more is waited for"
    assert state.result is not None
    assert (state.result["state"], state.result["error"]) == ("failed-start", "crashed")
    assert state.result["crash"]["line"] == "RuntimeError: CUDA error"


def test_lines_that_come_after_the_end_still_name_the_root() -> None:
    state = start()
    state.unit(FAILED, 5.0)
    assert state.tick(5.1) == [], "lines may still come"
    assert names(crash(state, 5.2)) == ["crash"]
    state.tick(5.2)
    assert state.result is not None
    assert state.result["crash"] is not None


def test_waiting_for_a_restart_is_an_end() -> None:
    state = start()
    state.unit(LOOPING, 5.0)
    state.tick(6.0)
    assert state.result is not None
    assert state.result["state"] == "failed-start"


def test_a_unit_that_restarts_again_and_again_is_a_loop() -> None:
    state = start()
    state.unit(LOOPING | {"NRestarts": "3"}, 5.0)
    state.tick(6.0)
    assert state.result is not None
    assert (state.result["state"], state.result["restarts"]) == ("crash-loop", 3)


def test_a_start_limit_is_a_loop() -> None:
    state = start()
    state.unit(FAILED | {"Result": "start-limit-hit"}, 5.0)
    state.tick(6.0)
    assert state.result is not None
    assert state.result["state"] == "crash-loop"


def test_somebody_elses_restart_is_named() -> None:
    state = start()
    state.unit(ACTIVE | {"InvocationID": "b"}, 5.0)
    state.tick(6.0)
    assert state.result is not None
    assert (state.result["state"], state.result["error"]) == ("failed-start", "replaced")


def test_a_stop_that_was_asked_for_is_no_crash() -> None:
    state = start()
    state.line("Stopping sglang-main.service...", "1", 4.0, 4.0, manager=True, message_id=STOPPING)
    text = "Subprocess scheduler_0 (pid=7) crashed with exit code -15. Triggering SIGQUIT for cleanup..."
    assert state.line(text, "1", 4.1, 4.1) == []
    state.unit(FAILED, 5.0)
    state.tick(6.0)
    assert state.result is not None
    assert state.result["error"] == "stopped"
    assert state.result["asked_stop"] is True
    assert state.result["crash"] is None


def test_an_end_without_a_word_is_a_failure() -> None:
    state = start()
    state.unit(ACTIVE | {"ActiveState": "inactive", "Result": "success"}, 5.0)
    state.tick(6.0)
    assert state.result is not None
    assert state.result["error"] == "ended"


def test_an_unsure_sign_is_forgotten_when_the_start_goes_on() -> None:
    state = start()
    for text in (
        "Traceback (most recent call last):",
        '  File "/x.py", line 1, in f',
        "OSError: no",
    ):
        state.line(text, "7", 1.0, 1.0)
    assert names(state.tick(1.5)) == ["crash"]
    state.line("Load weight begin.", "7", 2.0, 2.0)
    assert state.crash is None
    state.answered(200, 1.0, True, 3.0)
    assert names(state.identity({}, 4.0)) == ["ready"]


def test_a_server_whose_parent_outlives_its_crash_is_not_waited_for() -> None:
    state = start()
    crash(state, 5.0)
    state.unit(ACTIVE, 19.0)
    assert state.tick(19.0) == []
    assert names(state.tick(20.0)) == ["failed"]
    assert state.result is not None
    assert state.result["still_running"] is True


def life(cpu: float = 0.0, read: int = 0, gpu: int = 0) -> dict[str, Any]:
    return {"cpu_seconds": cpu, "read_bytes": read, "gpu_bytes": gpu, "processes": 3}


def test_silence_is_a_hang() -> None:
    state = start()
    state.life(life(), 2.0)
    state.life(life(), 100.0)
    assert state.tick(179.0) == []
    assert names(state.tick(180.0)) == ["failed"]
    assert state.result is not None
    assert (state.result["state"], state.result["error"]) == ("hung", "silent")


def test_a_long_load_is_normal_while_it_reads() -> None:
    state = start()
    state.line("Load weight begin.", "7", 1.0, 1.0)
    for n in range(1, 200):
        state.life(life(read=n * 10**9), n * 60.0)
        assert state.tick(n * 60.0) == []
    assert state.result is None


def test_gpu_memory_that_grows_is_life() -> None:
    state = start()
    for n in range(1, 40):
        state.life(life(gpu=n * 10**9), n * 100.0)
        state.tick(n * 100.0)
    assert state.result is None


def test_cpu_alone_is_life_only_for_so_long() -> None:
    state = start()
    now = 0.0
    while state.result is None and now < 10_000:
        now += 10.0
        state.life(life(cpu=now), now)
        state.tick(now)
    assert state.result is not None
    assert (state.result["state"], state.result["error"]) == ("timed-out", "phase-timeout")
    assert now >= 300.0


def test_health_polls_in_the_log_are_no_life() -> None:
    state = start()
    for n in range(1, 20):
        now = n * 10.0
        state.line('INFO: 127.0.0.1:1 - "GET /health HTTP/1.1" 503', "1", now, now)
        state.tick(now)
    assert state.result is not None
    assert state.result["state"] == "hung"


def test_a_ready_server_whose_scheduler_does_not_answer_hangs() -> None:
    state = start()
    state.line("The server is fired up and ready to roll!", "1", 1.0, 1.0)
    state.answered(503, 20.1, True, 22.0)
    assert state.result is None
    events = state.answered(503, 20.1, True, 43.0)
    assert names(events) == ["failed"]
    assert state.result is not None
    assert (state.result["state"], state.result["error"]) == ("hung", "health-hung")


def test_the_timeout_that_was_asked_for_ends_it() -> None:
    state = start(limits={"timeout": 60.0})
    state.line("Load weight begin.", "7", 59.0, 59.0)
    assert names(state.tick(60.0)) == ["failed"]
    assert state.result is not None
    assert state.result["error"] == "timeout"


def test_a_crash_after_ready_is_found_while_requests_run() -> None:
    state = start(requests=2)
    state.answered(200, 1.0, True, 2.0)
    assert names(state.identity({"model_path": "/m"}, 3.0)) == ["ready"]
    assert state.result is None, "the requests come first"
    state.answered_request({"number": 1, "status": 200}, 4.0)
    assert names(crash(state, 5.0)) == ["crash"]
    state.unit(FAILED, 5.2)
    state.tick(6.0)
    assert state.result is not None
    assert (state.result["state"], state.result["phase"]) == ("failed-start", "serving")
    assert state.result["ready_seconds"] == 3.0


def test_after_the_last_request_it_is_watched_a_little_longer() -> None:
    state = start(requests=1)
    state.answered(200, 1.0, True, 2.0)
    state.identity({"model_path": "/m"}, 3.0)
    state.answered_request({"number": 1, "status": 200}, 4.0)
    state.tick(5.0)
    assert state.result is None
    state.tick(6.0)
    assert state.result is not None
    assert state.result["state"] == "ready"


def test_a_request_that_is_not_answered_in_its_time_is_a_hang() -> None:
    state = start(requests=2)
    state.answered(200, 1.0, True, 2.0)
    state.identity({"model_path": "/m"}, 3.0)
    events = state.answered_request({"number": 1, "status": None, "error": "timeout"}, 123.0)
    assert names(events) == ["request", "failed"]
    assert state.result is not None
    assert (state.result["state"], state.result["error"]) == ("hung", "request-timeout")


def test_a_request_that_takes_long_is_no_hang() -> None:
    state = start(requests=1)
    state.answered(200, 1.0, True, 2.0)
    state.identity({"model_path": "/m"}, 3.0)
    state.tick(1000.0)
    assert state.result is None


def test_progress_carries_how_long_is_left() -> None:
    state = start()
    state.line("Load weight begin.", "7", 10.0, 10.0)
    bar = "Loading safetensors checkpoint shards:  25% Completed | 5/20 [00:10<00:30]"
    (event,) = state.line(bar, "7", 20.0, 20.0)
    assert event["progress"] == {"of": "shards", "done": 5, "total": 20, "eta": 30.0}


def test_bytes_read_are_the_progress_where_the_log_shows_none() -> None:
    state = start(model_bytes=1000 << 20)
    state.line("Load weight begin.", "7", 1.0, 1.0)
    state.life(life(read=0), 2.0)
    (event,) = state.life(life(read=100 << 20), 12.0)
    assert event["progress"]["of"] == "bytes"
    assert event["progress"]["eta"] == 90.0


def test_what_was_survived_before_an_attached_watch_is_no_crash() -> None:
    state = start(attached=True, signs_from=100.0)
    for text in (
        "Scheduler hit an exception: Traceback (most recent call last):",
        "ValueError: old",
    ):
        assert state.line(text, "7", 50.0, 1.0) == []
    assert state.crash is None


def test_a_watch_that_was_lost_after_ready_comes_to_its_end() -> None:
    state = start()
    state.was_ready(1.0)
    state.tick(2.0)
    assert state.result is None
    state.tick(3.0)
    assert state.result is not None
    assert state.result["state"] == "ready"


def test_going_away_is_told_as_such() -> None:
    state = start()
    state.line("Load weight begin.", "7", 1.0, 1.0)
    assert state.interrupted(2.0) == []
    assert state.result is not None
    assert (state.result["state"], state.result["phase"]) == ("interrupted", "weight-load")
