"""Rolling deploys over three real hosts: the canary, the drain hooks, an interruption, one host dead."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.lab import bed
from fleetctl.lab.box import Box
from tests.lab.conftest import start
from tests.lab.deploying import Operator, interrupt, unit_state

NAMES = ("lab-01", "lab-02", "lab-03")


@pytest.fixture(scope="module")
def boxes(lab_name: str) -> Iterator[list[Box]]:
    """Three hosts for the tests of this file."""
    found = [start(f"fleet-{n}=replay") for n in (1, 2, 3)]
    yield found
    for box in found:
        bed.drop(box.lab_name, box.name)


@pytest.fixture
def ops(tmp_path: Path, boxes: list[Box]) -> Operator:
    """An operator of the three, which are clean."""
    operator = Operator(tmp_path)
    for name, box in zip(NAMES, boxes, strict=True):
        box.heal()
        box.clean()
        box.scenario("founding", speed=100)
        operator.add(box, name, groups=["fleet"])
    return operator


def log_of(ops: Operator) -> tuple[str, str, Path]:
    """Two hooks that write down when they ran and how the server was then."""
    log = ops.folder / "router.log"
    return f'echo "drain $HOST" >> {log}', f'echo "undrain $HOST $STATE" >> {log}', log


def roll(ops: Operator, profile: str, *more: str) -> tuple[str, ...]:
    return ("deploy", "@fleet", "-p", profile, "--batch", "1", "--yes", "--json", *more)


def test_one_after_the_other_each_drained_and_ready_before_the_next(
    ops: Operator, boxes: list[Box]
) -> None:
    assert ops.run("deploy", "@fleet", "-p", "tp8", "--yes", "--json").rc == 0
    drain, undrain, log = log_of(ops)
    words = roll(ops, "ep8", "--drain-cmd", drain, "--undrain-cmd", undrain, "--soak", "3")
    done = ops.run(*words)
    assert done.rc == 0, done.out[-3000:] + done.err
    assert log.read_text().splitlines() == [
        line for n in NAMES for line in (f"drain {n}", f"undrain {n} ready")
    ]
    order = [(e["event"], e["host"]) for e in done.events
             if e["event"] in ("ready", "result")
             or (e["event"] == "step" and e["do"] == "restart-unit" and e["state"] == "issued")]  # fmt: skip
    assert [name for _, name in order] == [n for n in NAMES for _ in range(3)]
    (report,) = done.named("rollout")
    assert (report["state"], report["ready"]) == ("done", [f"{n}/main" for n in NAMES])
    again = ops.run(*roll(ops, "ep8"))
    (report,) = again.named("rollout")
    assert (again.rc, len(report["unchanged"])) == (0, 3)


def test_a_canary_that_fails_stops_it_and_goes_back(ops: Operator, boxes: list[Box]) -> None:
    assert ops.run("deploy", "@fleet", "-p", "tp8", "--yes", "--json").rc == 0
    before = [unit_state(box)["InvocationID"] for box in boxes]
    drain, undrain, log = log_of(ops)
    words = roll(
        ops, "ep8-nvls", "--rollback-on-failure", "--drain-cmd", drain, "--undrain-cmd", undrain
    )
    done = ops.run(*words)
    assert done.rc == 1, done.out + done.err
    assert log.read_text().splitlines() == ["drain lab-01", "undrain lab-01 rolled-back"]
    (report,) = done.named("rollout")
    assert report["state"] == "stopped"
    assert report["why"] == "the canary lab-01/main failed"
    assert report["untouched"] == ["lab-02/main", "lab-03/main"]
    assert report["rolled_back"] == {"lab-01/main": 1}
    assert [unit_state(box)["InvocationID"] for box in boxes[1:]] == before[1:]
    status = ops.run("status", "@fleet", "--json")
    assert status.rc == 0, status.out
    assert {json.loads(x)["launch"]["profile"] for x in status.out.splitlines()} == {"tp8"}


def test_a_dead_host_is_known_before_anything_stops(ops: Operator, boxes: list[Box]) -> None:
    assert ops.run("deploy", "@fleet", "-p", "tp8", "--yes", "--json").rc == 0
    before = [unit_state(box)["InvocationID"] for box in boxes]
    ops.hosts["lab-02"]["port"] = 9  # nobody listens there
    ops.add(boxes[2], "lab-03", groups=["fleet"])
    stopped = ops.run(*roll(ops, "ep8"))
    (report,) = stopped.named("rollout")
    assert (report["state"], report["failed"]) == ("stopped", ["lab-02/main"])
    assert [unit_state(box)["InvocationID"] for box in boxes] == before
    done = ops.run(*roll(ops, "ep8", "--max-fail", "1"))
    (report,) = done.named("rollout")
    assert (done.rc, report["ready"]) == (1, ["lab-01/main", "lab-03/main"]), done.out
    states = {e["host"]: e["state"] for e in done.named("result")}
    assert states == {"lab-01": "ready", "lab-02": "unreachable", "lab-03": "ready"}


def test_a_failed_drain_restarts_nothing(ops: Operator, boxes: list[Box]) -> None:
    assert ops.run("deploy", "@fleet", "-p", "tp8", "--yes", "--json").rc == 0
    before = [unit_state(box)["InvocationID"] for box in boxes]
    done = ops.run(*roll(ops, "ep8", "--drain-cmd", "echo router is down >&2; exit 3"))
    assert (done.rc, done.result["error"]) == (7, "drain-failed"), done.out
    assert [unit_state(box)["InvocationID"] for box in boxes] == before


def test_ctrl_c_says_what_is_done_and_resume_goes_on(ops: Operator, boxes: list[Box]) -> None:
    words = roll(ops, "tp8", "--pause", "60")
    done = ops.until(words, lambda e: e.get("do") == "pause", interrupt)
    (report,) = done.named("rollout")
    assert (done.rc, report["state"]) == (130, "interrupted")
    assert report["ready"] == ["lab-01/main"]
    assert report["untouched"] == ["lab-02/main", "lab-03/main"]
    more = ops.run(*roll(ops, "tp8", "--resume", "--soak", "30"))
    (report,) = more.named("rollout")
    assert (more.rc, report["unchanged"]) == (0, ["lab-01/main"]), more.out
    assert not [e for e in more.named("rolling") if e["do"] == "soak"]


def test_a_canary_that_dies_in_its_soak_stops_it(ops: Operator, boxes: list[Box]) -> None:
    words = roll(ops, "tp8", "--soak", "60")

    def die(_: object) -> None:
        boxes[0].console("systemctl kill -s KILL sglang-main.service")

    done = ops.until(words, lambda e: e.get("do") == "soak", die)
    (report,) = done.named("rollout")
    assert done.rc == 1
    assert "did not stay ready" in report["why"]
    assert report["untouched"] == ["lab-02/main", "lab-03/main"]
