"""Flags of what a host has installed, release or fork; their effect; and adopting what runs there."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from fleetctl.lab.box import Box
from tests.lab.deploying import Operator

pytestmark = pytest.mark.sglang

PACKAGES = "/opt/sglang/.venv/lib/python3.11/site-packages"
SERVER_ARGS = f"{PACKAGES}/sglang/srt/server_args.py"
FORK = (
    f'sed -i \'0,/        parser.add_argument(/s//        parser.add_argument("--ddtree-budget", type=int, '
    f'default=64, help="Nodes of the draft tree.")\\n        parser.add_argument(/\' {SERVER_ARGS}'
)
UNIT = """[Unit]
Description=by hand
[Service]
EnvironmentFile=/etc/default/kimi
ExecStart=/bin/bash -c 'source /opt/sglang/.venv/bin/activate; exec python -m sglang.launch_server --model /models/tiny-llama --tp 1 --device cpu --port ${PORT} $EXTRA --api-key ${API_KEY}'
Restart=no
"""
VARIABLES = "PORT=30055\nEXTRA=--attention-backend torch_native --max-total-tokens 4096\nAPI_KEY=sentinel4711\nSGLANG_USE_CPU_ENGINE=1\nOMP_NUM_THREADS=1\n"


@pytest.fixture(scope="module")
def box(lab_name: str) -> Box:
    from tests.lab.conftest import start

    return start("flags=sglang:0.5.12.post1")


@pytest.fixture
def ops(tmp_path: Path, box: Box, monkeypatch: pytest.MonkeyPatch) -> Operator:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    operator = Operator(tmp_path)
    operator.add(box, "lab-01")
    operator.profile(
        "cpu", "model: /models/tiny-llama\nflags: {device: cpu, attention-backend: torch_native}\n"
        "env: {SGLANG_USE_CPU_ENGINE: 1}\nsglang: {schema: installed}\n",
    )  # fmt: skip
    return operator


def test_a_release_is_recognised_and_its_shipped_schema_taken(ops: Operator) -> None:
    done = ops.run("flags", "lab-01", "--json")
    assert done.rc == 0, done.err
    body = json.loads(done.out)
    assert (body["version"], body["origin"], len(body["flags"])) == ("0.5.12.post1", "shipped", 387)
    assert "the release as published" in done.err


def test_a_fork_is_read_from_the_host_and_kept_by_its_hash(ops: Operator, box: Box, tmp_path: Path) -> None:  # fmt: skip
    box.console(f"cp {SERVER_ARGS} /root/kept; {FORK}")
    try:
        first = json.loads(ops.run("flags", "lab-01", "ddtree", "--json").out)
        assert [f["names"] for f in first["flags"]] == [["--ddtree-budget"]]
        assert (first["origin"], first["flags"][0]["default"]) == ("host", 64)
        kept = list((tmp_path / "cache" / "fleetctl" / "flags").glob("*.json.gz"))
        assert [p.name for p in kept] == [f"{first['digest']}.json.gz"]
        assert json.loads(ops.run("flags", "lab-01", "ddtree", "--json").out) == first
        ops.profile("tree", "extends: cpu\nflags: {ddtree-budget: 8, ddtree-topk: 4}\n")
        lint = json.loads(ops.run("lint", "tree", "--host", "lab-01", "--json").out)
        assert [
            (f["flag"], f["severity"]) for f in lint["findings"] if f["id"] == "unknown-flag"
        ] == [("--ddtree-topk", "warning")]
        assert lint["ok"] is True
    finally:
        box.console(f"mv /root/kept {SERVER_ARGS}")


def test_the_effect_of_a_flag_is_what_sglang_says_itself(ops: Operator) -> None:
    done = ops.run(
        "flags", "effect", "lab-01", "enable-nccl-nvls", "ep-size=1", "-p", "cpu", "--json"
    )
    assert done.rc == 0, done.err
    body = json.loads(done.out)
    assert body["asked"] == {"enable_nccl_nvls": [False, True]}
    assert body["env"] == {"NCCL_NVLS_ENABLE": ["0", "1"]}
    assert body["follows"] == {}
    assert (body["error"], body["against"], body["sglang"]) == (None, "profile cpu", "0.5.12.post1")


def test_what_follows_from_a_flag_and_what_is_refused(ops: Operator) -> None:
    words = ("tp-size=8", "dp-size=8", "enable-dp-attention", "-p", "cpu", "--json")
    body = json.loads(ops.run("flags", "effect", "lab-01", *words).out)
    assert {"enable_dp_attention", "tensor_parallel_size", "tp_size", "dp_size"} & set(
        body["asked"]
    )
    assert "chunked_prefill_size" in body["follows"]
    pair = ("enable-hierarchical-cache", "disable-radix-cache", "-p", "cpu")
    done = ops.run("flags", "effect", "lab-01", *pair)
    assert done.rc == 1
    assert "mutually exclusive" in done.out


def test_what_runs_is_adopted_without_its_secret_and_renders_the_same(ops: Operator, box: Box, tmp_path: Path) -> None:  # fmt: skip
    for path, text in (
        ("/etc/systemd/system/kimi.service", UNIT),
        ("/etc/default/kimi", VARIABLES),
    ):
        box.console('printf %s "$1" > "$2"', text, path)
    venv = "/opt/sglang/.venv/bin"
    box.console(f"echo 'PATH={venv}:$PATH' > {venv}/activate; touch /run/marker; sleep 0.1")
    stopped = ops.run("adopt", "lab-01", "--unit", "kimi", "--json")
    assert stopped.rc in (0, 1), stopped.err
    assert json.loads(stopped.out)["source"] == "unit"
    box.console("systemctl daemon-reload; systemctl start kimi")
    time.sleep(2)
    try:
        done = ops.run("adopt", "lab-01", "--unit", "kimi", "--json", "--write")
        pid = box.console("systemctl show -p MainPID --value kimi").strip()
        by_pid = json.loads(ops.run("adopt", "lab-01", "--pid", pid, "--json").out)
    finally:
        box.console("systemctl kill -s KILL kimi; systemctl reset-failed kimi")
    assert done.rc == 0, done.out + done.err
    body = json.loads(done.out)
    assert (body["source"], body["equal"], body["service"]) == (
        "running", True, {"name": "main", "port": 30055, "gpus": None},
    )  # fmt: skip
    assert "sentinel4711" not in done.out + done.err + stopped.out
    assert "api-key: {env: API_KEY}" in body["profile_text"]
    assert by_pid["equal"]
    assert by_pid["service"]["port"] == 30055
    written = tmp_path / "site" / "profiles" / "kimi.yaml"
    assert written.read_text() == body["profile_text"]
    assert ops.run("lint", "kimi", "--sglang", "0.5.12.post1").rc == 0
    changed = box.console(
        "find /etc /var/lib/fleetctl -newer /run/marker -type f 2>/dev/null; true"
    )
    assert changed.strip() == ""
    box.console("rm /etc/systemd/system/kimi.service /etc/default/kimi; systemctl daemon-reload")


def test_hosts_that_should_be_alike_are_compared(ops: Operator, box: Box) -> None:
    ops.add(box, "lab-02")
    assert ops.run("diff-hosts", "--all").rc == 0
    assert ops.run("diff-hosts", "lab-01").rc == 2
