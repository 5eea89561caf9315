"""What fails while nobody watches is kept on the host and found later; the real SGLang among it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from fleetctl.lab.box import Box
from fleetctl.transport.payload import source_of
from tests.lab.deploying import Operator, unit_state

POISON = json.dumps({"input_ids": [999999], "sampling_params": {"max_new_tokens": 1}})


def until_dead(box: Box, invocation: str, seconds: float = 90.0) -> None:
    """Return once another invocation runs, or none."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        state = unit_state(box)
        if state["InvocationID"] != invocation or state["SubState"] in ("auto-restart", "failed"):
            return
        time.sleep(0.3)
    raise AssertionError(f"still the same after {seconds} s: {state}")


def collected(ops: Operator, *words: str) -> list[dict[str, object]]:
    done = ops.run("collect", "lab-01", "--json", *words)
    return [json.loads(line) for line in done.out.splitlines()]


def test_a_crash_that_nobody_saw_is_collected_once_and_its_restart_loses_nothing(
    tmp_path: Path, replay_host: Box
) -> None:
    ops = Operator(tmp_path)
    ops.add(replay_host, "lab-01")
    replay_host.scenario("serves", speed=100)
    ops.profile("again", "name: again\nextends: tp8\nflags: {tp-size: 1}\nunit: {restart_sec: 1}\n")
    first = ops.deploy("lab-01", "again").result
    assert first["state"] == "ready"
    replay_host.post("/generate", POISON)
    until_dead(replay_host, first["invocation_id"])
    end = time.monotonic() + 60
    while unit_state(replay_host)["ActiveState"] != "active" and time.monotonic() < end:
        time.sleep(0.3)
    mine = [c for c in collected(ops) if c["invocation_id"] == first["invocation_id"]]
    assert len(mine) == 1
    assert (mine[0]["new"], mine[0]["state"]) == (True, "crashed")
    bundle = Path(str(mine[0]["bundle"]))
    names = {p.name for p in bundle.iterdir()}
    assert names >= {"manifest.json", "journal.jsonl", "unit.txt", "launch.json", "versions.json"}
    assert "IndexError" in (bundle / "journal.jsonl").read_text()
    launch = json.loads((bundle / "launch.json").read_text())
    assert (launch["id"], launch["outcome"]) == (first["launch_id"], "crashed")
    again = [c for c in collected(ops) if c["invocation_id"] == first["invocation_id"]]
    assert (again[0]["incident"], again[0]["new"]) == (mine[0]["incident"], False)
    other = ops.run("collect", "lab-01", "--invocation", "f" * 32)
    assert (other.rc, "error[unknown-invocation]" in other.err) == (2, True)
    rows = [json.loads(x) for x in ops.run("incidents", "list", "--json").out.splitlines()]
    assert [r["id"] for r in rows].count(mine[0]["incident"]) == 1


def test_a_failure_without_a_collector_is_found_in_the_journal(
    tmp_path: Path, replay_host: Box
) -> None:
    ops = Operator(tmp_path)
    ops.add(replay_host, "lab-01")
    replay_host.console(
        "printf '[Service]\\nExecStart=/bin/sh -c \"echo ValueError: by hand; exit 3\"\\n'"
        " > /etc/systemd/system/sglang-main.service;"
        " systemctl daemon-reload; systemctl start sglang-main; sleep 1"
    )
    invocation = unit_state(replay_host)["InvocationID"]
    mine = [c for c in collected(ops, "--since", "1h") if c["invocation_id"] == invocation]
    assert len(mine) == 1
    assert "by hand" in (Path(str(mine[0]["bundle"])) / "journal.jsonl").read_text()


SAME = """
import json, subprocess, sys
for unit in sys.argv[1:]:
    words = ["systemctl", "show", "-p", ",".join(UNIT | SERVICE), "--", unit]
    lines = subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()
    told = dict(line.split("=", 1) for line in lines)
    assert show(unit, UNIT | SERVICE, 10.0) == told, (unit, show(unit, UNIT | SERVICE, 10.0), told)
print(version().partition(".")[0], json.dumps(reset_failed(sys.argv[1])))
"""


def test_pid_1_says_over_its_socket_what_systemctl_says(replay_host: Box) -> None:
    """Of units that run, ended, are masked, come from a template, or do not exist."""
    units = (
        "ssh.service",
        "lab-net.service",
        "e2scrub_reap.service",
        "modprobe@x.service",
        "no.service",
    )
    said = replay_host.console('python3 -c "$@"', source_of("bus") + SAME, *units)
    assert said.split() == ["252", "true"]


def test_the_spool_never_takes_the_last_of_the_disk(tmp_path: Path, replay_host: Box) -> None:
    ops = Operator(tmp_path)
    ops.add(replay_host, "lab-01")
    replay_host.scenario("serves", speed=100)
    first = ops.deploy("lab-01", "tp8", "--set", "tp-size=1").result
    replay_host.fault("disk-full", path="/var/lib/fleetctl", size=2 << 20)
    before = replay_host.console("df --output=avail /var/lib/fleetctl | tail -1")
    replay_host.post("/generate", POISON)
    until_dead(replay_host, first["invocation_id"])
    time.sleep(1.0)
    after = replay_host.console("df --output=avail /var/lib/fleetctl | tail -1")
    assert int(before) - int(after) < 64, "no bundle was written"
    log = replay_host.console(f"journalctl -o cat _SYSTEMD_INVOCATION_ID={first['invocation_id']}")
    assert "no evidence kept" in log
    replay_host.heal()


@pytest.mark.sglang
def test_the_real_sglang_becomes_ready_and_a_poison_request_kills_it_unseen(
    tmp_path: Path, sglang_host: Box
) -> None:
    ops = Operator(tmp_path)
    ops.add(sglang_host, "lab-01")
    sglang_host.clean()
    done = ops.deploy("lab-01", "cpu", "--timeout", "400", timeout=480)
    result = done.result
    assert (done.rc, result["state"]) == (0, "ready"), done.out[-2000:] + done.err
    phases = [e["phase"] for e in done.named("phase") if "life" not in e]
    assert phases == ["import", "dist-init", "weight-load", "kv-alloc", "warmup", "serving"]
    sglang_host.post("/generate", POISON)
    until_dead(sglang_host, result["invocation_id"])
    mine = [c for c in collected(ops) if c["invocation_id"] == result["invocation_id"]]
    assert len(mine) == 1
    bundle = Path(str(mine[0]["bundle"]))
    assert "index out of range" in (bundle / "journal.jsonl").read_text()
    assert mine[0]["state"] == "crashed"
    assert ops.run("stop", "lab-01", "--yes", timeout=120).rc == 0
    assert unit_state(sglang_host)["ActiveState"] == "inactive"
