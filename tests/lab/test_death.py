"""An agent, a client or a whole host dies in mid-deploy: old or new, never between, and told as what it was."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.lab import bed
from fleetctl.lab.box import Box
from tests.lab import doors
from tests.lab.conftest import start
from tests.lab.deploying import Done, Operator, kill, leftovers, unit_state
from tests.lab.launches import NEXT, look

# In front of the second of two renames: the environment is the new one, the unit still the old one.
BETWEEN = r"^rename /etc/systemd/system/sglang-main\.service"


@pytest.fixture(scope="module")
def box(lab_name: str) -> Iterator[Box]:
    """A host of this file's own, for it is rebooted, with doors."""
    made = start("mortal=replay")
    yield made
    bed.drop(lab_name, made.name)


@pytest.fixture
def ops(box: Box, tmp_path: Path) -> Operator:
    """An operator who sees the old launch there, ready."""
    doors.build(box)
    ops = Operator(tmp_path)
    ops.add(box, "lab-01", python=doors.PYTHON)
    ops.profile("old", "name: old\nextends: tp8\nflags: {tp-size: 1}\n")
    ops.profile("next", NEXT.replace("extends: tp8", "extends: old"))
    box.scenario("serves", speed=100)
    assert ops.deploy("lab-01", "old").rc == 0
    assert look(box, "main").word == "old"
    return ops


def between(ops: Operator, box: Box, strike: Any) -> Done:
    """Deploy, and strike while the agent stands between two renames; ``strike`` gets its process id."""
    door = doors.Door(box, "between", BETWEEN)
    mixed: list[str] = []

    def work() -> None:
        agent = door.wait()
        mixed.append(look(box, "main").word)
        strike(agent)
        door.open()  # for the next agent, which puts that file back

    striking = threading.Thread(target=work)
    striking.start()
    done = ops.deploy("lab-01", "next")
    striking.join()
    assert mixed[0] not in ("old", "new"), "the fault came too early or too late"
    return done


def test_an_agent_that_is_killed_between_two_files(ops: Operator, box: Box) -> None:
    before = look(box, "main")
    done = between(ops, box, lambda agent: box.console(f"kill -9 {agent}"))
    assert (done.rc, done.result["error"]) == (6, "agent-died"), done.out
    assert "the host has its old launch" in done.result["message"]
    assert look(box, "main") == before
    assert leftovers(box) == ""


def test_client_and_agent_that_are_killed_are_mended_by_the_next_deploy(
    ops: Operator, box: Box
) -> None:
    door = doors.Door(box, "between", BETWEEN)
    process = ops.popen("deploy", "lab-01", "-p", "next", "--yes", "--json")
    agent = door.wait()
    kill(process)
    process.communicate()
    box.console(f"kill -9 {agent}")
    door.open()
    again = ops.deploy("lab-01", "next")
    assert (again.rc, again.result["state"]) == (0, "ready"), again.out + again.err
    assert look(box, "main").word == "new"
    assert leftovers(box) == ""


def test_a_host_without_power_between_two_files(ops: Operator, box: Box) -> None:
    def power(_: int) -> None:
        box.fault("kill")
        box.heal()

    done = between(ops, box, power)
    assert (done.rc, done.result["error"]) == (4, "connection-lost"), done.out
    assert "the host has its old launch" in done.result["message"]
    assert look(box, "main").word == "old"
    assert leftovers(box) == ""


def test_a_service_that_starts_at_boot_starts_the_old_launch_after_that(
    ops: Operator, box: Box
) -> None:
    box.console("systemctl enable sglang-main")
    door = doors.Door(box, "between", BETWEEN)
    process = ops.popen("deploy", "lab-01", "-p", "next", "--yes", "--json")
    door.wait()
    kill(process)
    process.communicate()
    assert look(box, "main").word not in ("old", "new")
    box.fault("kill")
    box.heal()
    doors.until(lambda: unit_state(box)["ActiveState"] == "active", "it starts by itself")
    assert look(box, "main").word == "old"
    assert leftovers(box) == ""
    assert "fleetctl-undo" not in box.console("find /etc/systemd/system")
    box.console("systemctl disable sglang-main")


def test_a_host_that_reboots_while_the_server_starts(ops: Operator, box: Box) -> None:
    box.scenario("serves", speed=4)
    done = ops.until(
        ("deploy", "lab-01", "-p", "next", "--yes", "--json"),
        lambda e: e["event"] == "phase",
        lambda _: box.fault("reboot"),
    )
    result = done.result
    assert (done.rc, result["error"], result["triage"]["label"]) == (
        1,
        "host-rebooted",
        "host-down",
    )
    assert look(box, "main").unit_file
    (mine,) = collected(ops, result["invocation_id"])
    assert (mine["incident"], mine["new"]) == (result["incident"], False)
    (row,) = [r for r in history(ops) if r["launch_id"] == result["launch_id"]]
    assert row["result"]["outcome"] == "host-down"


def test_a_host_without_power_while_it_serves(ops: Operator, box: Box) -> None:
    serving = look(box, "main").invocation
    box.fault("kill")
    box.heal()
    (mine,) = collected(ops, serving)
    assert (mine["label"], mine["new"]) == ("host-down", True), mine
    assert collected(ops, serving)[0]["new"] is False
    assert history(ops)[0]["result"]["outcome"] == "host-down"


def collected(ops: Operator, invocation: str) -> list[dict[str, Any]]:
    """What ``collect`` says of an invocation."""
    lines = ops.run("collect", "lab-01", "--json").out.splitlines()
    return [c for c in map(json.loads, lines) if c["invocation_id"] == invocation]


def history(ops: Operator) -> list[dict[str, Any]]:
    """The revisions of the host, the newest first."""
    return [json.loads(line) for line in ops.run("history", "lab-01", "--json").out.splitlines()]
