"""Waiting for what systemd starts again, for what it has given up, and for what was stopped on purpose."""

from __future__ import annotations

import json

import pytest

from fleetctl.lab.box import Box
from tests.lab.deploying import Done, Operator, unit_state

POISON = json.dumps({"input_ids": [999999], "sampling_params": {"max_new_tokens": 1}})


@pytest.fixture
def ops(ops: Operator, replay_host: Box) -> Operator:
    replay_host.scenario("serves", speed=100)
    unit = "{restart_sec: 4, start_limit_burst: 2}"
    ops.profile("twice", f"name: twice\nextends: tp8\nflags: {{tp-size: 1}}\nunit: {unit}\n")
    return ops


def crash_and_wait(ops: Operator, box: Box, invocation: str) -> Done:
    """Let a request kill the server, and wait for what comes next once systemd has seen it die."""
    box.post("/generate", POISON)
    box.console(
        "now() { systemctl show -P SubState sglang-main; systemctl show -P InvocationID sglang-main; };"
        f" while [ \"$(now | xargs)\" = 'running {invocation}' ]; do sleep 0.1; done"
    )
    return ops.run("wait", "lab-01", "--json")


def test_after_a_crash_the_next_start_is_followed_until_systemd_gives_up(
    ops: Operator, replay_host: Box
) -> None:
    first = ops.deploy("lab-01", "twice").result
    assert first["state"] == "ready"
    second = crash_and_wait(ops, replay_host, first["invocation_id"])
    assert (second.rc, second.result["state"]) == (0, "ready"), second.out + second.err
    assert second.result["invocation_id"] == unit_state(replay_host)["InvocationID"]
    assert second.result["invocation_id"] != first["invocation_id"]
    last = crash_and_wait(ops, replay_host, second.result["invocation_id"])
    assert (last.rc, last.result["state"]) == (1, "crash-loop"), last.out + last.err
    assert last.result["triage"]["root"]["exception_type"] == "IndexError", last.result["triage"]
    assert "given up" in last.result["message"]


def test_a_service_that_was_stopped_on_purpose_is_said_to_be_so_and_by_whom(
    ops: Operator, replay_host: Box
) -> None:
    ops.deploy("lab-01", "twice")
    ops.run("stop", "lab-01", "--yes", "--reason", "new cables")
    waited = ops.run("wait", "lab-01", "--json")
    assert (waited.rc, waited.result["error"]) == (1, "not-running")
    for part in ("stopped on purpose", "new cables", "@", "fleetctl deploy lab-01/main -p twice"):
        assert part in waited.err, waited.err
    ops.deploy("lab-01", "twice")
    replay_host.console("systemctl stop sglang-main")
    other = ops.run("wait", "lab-01", "--json")
    assert "not by fleetctl" in other.err, other.err
    assert json.loads(ops.run("status", "lab-01", "--json").out)["state"] == "stopped"
