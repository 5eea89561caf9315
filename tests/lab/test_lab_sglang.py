"""The real SGLang runs in a lab host: ready, answers, crashes as recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from fleetctl.lab.box import Box

pytestmark = pytest.mark.sglang

LAUNCH = (
    "systemd-run --quiet --unit=sglang-main --property=KillMode=mixed "
    "--setenv=SGLANG_USE_CPU_ENGINE=1 --setenv=HF_HUB_OFFLINE=1 --setenv=OMP_NUM_THREADS=1 "
    "/opt/sglang/.venv/bin/python -m sglang.launch_server --model-path /models/tiny-llama "
    "--load-format dummy --device cpu --attention-backend torch_native --max-total-tokens 4096 "
    "--disable-overlap-schedule --sleep-on-idle --host 0.0.0.0"
)


@pytest.fixture
def served(sglang_host: Box) -> Iterator[Box]:
    sglang_host.clean()
    sglang_host.console(LAUNCH)
    sglang_host.wait_until_healthy()
    yield sglang_host
    sglang_host.clean()


def test_a_real_server_answers_and_a_token_beyond_the_vocabulary_crashes_it(served: Box) -> None:
    status, body = served.post(
        "/generate", json.dumps({"text": "hello", "sampling_params": {"max_new_tokens": 4}})
    )
    assert status == 200
    assert len(json.loads(body)["output_ids"]) == 4
    assert json.loads(served.get("/server_info")[1])["version"] == "0.5.12.post1"

    served.post("/generate", json.dumps({"input_ids": [999999]}))
    show = "systemctl show sglang-main -p Result,ExecMainCode,ExecMainStatus"
    served.console("while systemctl is-active -q sglang-main; do sleep 0.2; done")
    assert set(served.console(show).split()) == {
        "Result=signal",
        "ExecMainCode=2",
        "ExecMainStatus=9",
    }
    log = served.console("journalctl -u sglang-main -o cat")
    assert "IndexError: index out of range in self" in log
    assert "SIGQUIT received." in log
