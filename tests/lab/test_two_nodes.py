"""The real SGLang over two hosts, tensor parallel over gloo: it serves, and a rank that is killed is found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.lab import bed
from fleetctl.lab.box import Box
from tests.lab.conftest import start
from tests.lab.deploying import Operator, unit_state

pytestmark = pytest.mark.sglang
KILL = "kill -9 $(pgrep -f '^sglang::scheduler')"
ENDED = "while systemctl is-active -q sglang-main; do sleep 0.2; done"


@pytest.fixture
def second(lab_name: str) -> Iterator[Box]:
    box = start("sglang-2=sglang:0.5.12.post1")
    yield box
    bed.drop(box.lab_name, box.name)


def test_a_real_server_over_two_hosts_is_deployed_waited_for_and_explained(
    tmp_path: Path, sglang_host: Box, second: Box
) -> None:
    ops = Operator(tmp_path)
    boxes = (sglang_host, second)
    sglang_host.clean()
    for number, box in enumerate(boxes, 1):
        ops.add(box, f"lab-0{number}", groups=["pair"])
    done = ops.run("deploy", "@pair", "-p", "cpu-pair", "--set=unit.restart=no", "--yes", "--json")
    assert [(r["state"], r["node_rank"]) for r in done.named("result")] == [
        ("ready", 0), ("ready", 1),
    ], done.out[-4000:] + done.err  # fmt: skip
    body = json.dumps({"text": "hello", "sampling_params": {"max_new_tokens": 4}})
    assert sglang_host.post("/generate", body)[0] == 200
    assert ops.run("wait", "@pair").rc == 0
    second.console(KILL)
    for box in boxes:
        box.console(ENDED)
    lines = [json.loads(x) for x in ops.run("collect", "@pair", "--json").out.splitlines()]
    mine = {unit_state(box)["InvocationID"] for box in boxes}
    told = {x["host"]: x["label"] for x in lines if x["invocation_id"] in mine}
    assert told == {"lab-01": "peer-lost", "lab-02": "external-kill"}
    sglang_host.clean()
