"""Answers come as they are ready; one target's fault is its own."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fleetctl.errors import FleetError, UnreachableError
from fleetctl.fleet.fanout import common_exit, fan_out


def answers(found: object) -> dict[str, object]:
    return dict(item for item in found if item is not None)  # type: ignore[attr-defined]


def test_every_target_gets_its_answer() -> None:
    assert answers(fan_out("abc", str.upper, workers=2)) == {"a": "A", "b": "B", "c": "C"}


def test_a_slow_target_delays_no_other() -> None:
    gate = threading.Event()

    def work(name: str) -> str:
        if name == "slow":
            gate.wait(10)
        return name

    found = fan_out(["slow", "a", "b", "c"], work, workers=2)
    first = [next(found) for _ in range(3)]
    gate.set()
    assert {item[0] for item in first} == {"a", "b", "c"}
    assert next(found) == ("slow", "slow")


def test_a_fault_is_an_answer_and_the_others_go_on() -> None:
    def work(name: str) -> str:
        if name == "bad":
            raise UnreachableError("auth-failed", "no", where=name)
        return name

    found = answers(fan_out(["bad", "good"], work))
    assert found["good"] == "good"
    assert isinstance(found["bad"], UnreachableError)


def test_a_bug_is_an_internal_fault_of_that_target() -> None:
    found = answers(fan_out(["a", ""], lambda name: name[0]))
    assert found["a"] == "a"
    fault = found[""]
    assert isinstance(fault, FleetError)
    assert fault.reference == "internal-fault"
    assert "IndexError" in fault.message


def test_no_more_than_the_workers_run_at_once() -> None:
    running, most, lock = 0, 0, threading.Lock()
    full = threading.Barrier(3, timeout=10)

    def work(_: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        full.wait()
        with lock:
            running -= 1

    list(fan_out(range(9), work, workers=3))
    assert most == 3


def test_a_beat_comes_while_nothing_finishes() -> None:
    gate = threading.Event()
    found = fan_out(["a"], lambda _: gate.wait(10), beat=0.01)
    assert next(found) is None
    gate.set()
    assert [item for item in found if item] == [("a", True)]


def test_closing_starts_no_further_target() -> None:
    started: list[int] = []
    gate = threading.Event()

    def work(number: int) -> None:
        started.append(number)
        if number:
            gate.wait(10)

    found = fan_out(range(100), work, workers=1)
    next(found)
    found.close()  # type: ignore[attr-defined]
    gate.set()
    assert len(started) <= 3


def test_no_targets_are_no_answers() -> None:
    assert list(fan_out([], str)) == []


@pytest.mark.parametrize(
    ("codes", "expected"), [([], 0), ([0, 0], 0), ([6, 6], 6), ([4], 4), ([0, 6], 1), ([4, 6], 1)]
)
def test_several_hosts_have_their_common_exit_code_else_one(
    codes: list[int], expected: int
) -> None:
    assert common_exit(codes) == expected


def test_fan_outs_can_run_side_by_side() -> None:
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda n: answers(fan_out(str(n) * n, str)), range(1, 5))
    assert [len(f) for f in found] == [1, 1, 1, 1]
