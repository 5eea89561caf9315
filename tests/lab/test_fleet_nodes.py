"""One server over two real hosts, and two servers on one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.lab import bed
from fleetctl.lab.box import Box
from tests.lab.conftest import start
from tests.lab.deploying import Operator, unit_state


@pytest.fixture(scope="module")
def boxes(lab_name: str) -> Iterator[list[Box]]:
    found = [start(f"node-{n}=replay") for n in (1, 2)]
    yield found
    for box in found:
        bed.drop(box.lab_name, box.name)


@pytest.fixture
def ops(tmp_path: Path, boxes: list[Box]) -> Operator:
    operator = Operator(tmp_path)
    for number, box in enumerate(boxes, 1):
        box.heal()
        box.clean()
        box.scenario("founding", speed=50)
        operator.add(box, f"lab-0{number}", groups=["pair"])
    operator.profile("two", "name: two\nextends: tp8\nnodes: 2\n")
    operator.profile("two-nvls", "name: two-nvls\nextends: ep8-nvls\nnodes: 2\n")
    return operator


def words(profile: str) -> tuple[str, ...]:
    return ("deploy", "@pair", "-p", profile, "--json", "--yes")


def test_two_hosts_start_as_one_server_and_rank_0_says_when_it_is_ready(
    ops: Operator, boxes: list[Box]
) -> None:
    done = ops.run(*words("two"))
    assert done.rc == 0, done.out[-3000:] + done.err
    results = done.named("result")
    assert [(r["host"], r["state"], r["node_rank"]) for r in results] == [
        ("lab-01", "ready", 0), ("lab-02", "ready", 1),
    ]  # fmt: skip
    commands = [box.console("systemctl show -p ExecStart sglang-main.service") for box in boxes]
    assert all("--nnodes 2" in c for c in commands)
    assert ["--node-rank 0" in commands[0], "--node-rank 1" in commands[1]] == [True, True]
    assert {e["host"] for e in done.named("ready")} == {"lab-01"}
    waited = ops.run("wait", "@pair", "--json")
    assert waited.rc == 0, waited.out[-3000:] + waited.err
    assert [(r["host"], r["state"], r["node_rank"]) for r in waited.named("result")] == [
        ("lab-01", "ready", 0), ("lab-02", "ready", 1),
    ]  # fmt: skip
    half = ops.run("wait", "lab-02", "--json")
    assert (half.rc, half.result["error"]) == (7, "rank-0-not-named"), half.out
    batch = ops.run(*words("two"), "--batch", "1")
    assert (batch.rc, "nodes-together" in batch.err) == (2, True)
    again = ops.run(*words("two"))
    assert {r["state"] for r in again.named("result")} == {"unchanged"}
    before = [unit_state(box)["InvocationID"] for box in boxes]
    boxes[1].console("systemctl stop sglang-main.service")
    both = ops.run(*words("two"))
    assert both.rc == 0, both.out[-3000:]
    after = [unit_state(box)["InvocationID"] for box in boxes]
    assert all(a != b for a, b in zip(before, after, strict=True)), "none comes back alone"


def test_a_failure_is_one_incident_with_the_logs_of_both_and_the_root_of_one(
    ops: Operator,
) -> None:
    done = ops.run(*words("two-nvls"))
    assert done.rc == 1, done.out[-3000:] + done.err
    results = done.named("result")
    assert {r["state"] for r in results} <= {"failed-start", "crash-loop"}
    assert len({r["incident"] for r in results}) == 1
    triage = results[0]["triage"]
    assert triage["label"] == "cublas-capture"
    assert [n["host"] for n in triage["nodes"]] == ["lab-01", "lab-02"]
    assert all(Path(n["bundle"]).is_dir() for n in triage["nodes"])
    assert all(abs(n["clock_offset"]) < 5 for n in triage["nodes"])
    rows = ops.run("incidents", "list", "--json").out.splitlines()
    assert len(rows) == 1
    again = ops.run("reproduce", results[0]["incident"], "-n", "1", "--yes", "--json")
    assert again.rc == 0, again.out[-3000:] + again.err
    tally = again.named("reproduced")[0]
    assert (tally["tries"], tally["same"]) == (1, 1)
    assert {r["host"] for r in again.named("result")} == {"lab-01", "lab-02"}


def test_nodes_go_together_or_not_at_all(ops: Operator, boxes: list[Box]) -> None:
    one = ops.run("deploy", "lab-01", "-p", "two", "--json", "--yes")
    assert one.rc == 2
    assert "node-count" in one.err
    ops.hosts["lab-02"]["port"] = 9  # nobody listens there
    ops.add(boxes[0], "lab-01", groups=["pair"])
    done = ops.run(*words("two"))
    states = {r["host"]: (r["state"], r["error"]) for r in done.named("result")}
    assert states["lab-01"] == ("refused", "peer-not-ready")
    assert states["lab-02"][0] == "unreachable"
    assert unit_state(boxes[0])["ActiveState"] == "inactive"


def test_two_services_on_one_host_are_deployed_watched_locked_and_judged_apart(
    ops: Operator, boxes: list[Box]
) -> None:
    ops.hosts.clear()
    services = {
        "main": {"gpus": [0, 1, 2, 3], "port": 30000},
        "draft": {"gpus": [4, 5, 6, 7], "port": 30010},
    }
    ops.add(boxes[0], "lab-01", services=services)
    ops.profile("tp4", "name: tp4\nextends: tp8\nflags: {tp-size: 4}\n")
    both = ops.run("deploy", "lab-01/*", "-p", "tp4", "--json", "--yes")
    assert both.rc == 0, both.out[-3000:] + both.err
    assert {(r["service"], r["state"]) for r in both.named("result")} == {
        ("main", "ready"), ("draft", "ready"),
    }  # fmt: skip
    main = unit_state(boxes[0])["InvocationID"]
    boxes[0].console(
        "mkdir -p /run/fleetctl/lock.d/main; touch /run/fleetctl/lock.d/main/beat;"
        ' echo \'{"who": "ann", "since": "now", "why": "", "token": "t"}\''
        " > /run/fleetctl/lock.d/main/holder.json"
    )
    bad = ops.deploy("lab-01/draft", "ep8-nvls", "--no-lint", "gpus-exceeded")
    assert (bad.rc, bad.result["state"]) == (1, "failed-start"), bad.out[-2000:]
    assert ops.deploy("lab-01/main", "tp4", "--restart").result["state"] == "locked"
    boxes[0].console("rm -r /run/fleetctl/lock.d/main")
    assert unit_state(boxes[0])["InvocationID"] == main, "the other one was left alone"
    states = [json.loads(x) for x in ops.run("status", "lab-01/*", "--json").out.splitlines()]
    assert {s["service"]: s["launch"]["profile"] for s in states} == {
        "main": "tp4", "draft": "ep8-nvls",
    }  # fmt: skip
    back = ops.run("rollback", "lab-01/draft", "--yes", "--json")
    assert back.result["state"] == "ready"
    ops.run("stop", "lab-01/*", "--yes")
    boxes[0].clean()
