"""History, rollback, locks and audit on real hosts."""

from __future__ import annotations

import json

import pytest

from fleetctl.lab.box import Box
from tests.lab.deploying import Done, Operator, kill, leftovers, unit_state

UNIT = "/etc/systemd/system/sglang-main.service"


def history(ops: Operator) -> list[dict[str, object]]:
    """The revisions of the host, the newest first."""
    done = ops.run("history", "lab-01", "--json")
    assert done.rc == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_a_rollback_is_a_new_revision_with_the_old_bytes(ops: Operator, replay_host: Box) -> None:
    assert ops.deploy("lab-01", "tp8").rc == 0
    good = replay_host.console(f"cat {UNIT} /etc/fleetctl/main/environment")
    bad = ops.deploy("lab-01", "ep8-nvls")
    assert bad.result["state"] == "failed-start"
    assert [(r["number"], r["profile"], r["ready"]) for r in history(ops)] == [
        (2, "ep8-nvls", False), (1, "tp8", True),
    ]  # fmt: skip
    (ops.folder / "site/profiles/tp8.yaml").write_text("name: tp8\nmodel: /elsewhere\n")
    back = ops.run("rollback", "lab-01", "--yes", "--json")
    assert (back.rc, back.result["state"]) == (0, "ready"), back.out + back.err
    assert replay_host.console(f"cat {UNIT} /etc/fleetctl/main/environment") == good
    newest = history(ops)[0]
    assert (newest["number"], newest["restores"], newest["ready"]) == (3, 1, True)
    again = ops.run("rollback", "lab-01", "--to", "1", "--yes", "--json")
    assert (again.rc, again.result["state"]) == (0, "unchanged")
    for words, text in (
        (("history", "lab-01"), "brings back 1"),
        (("audit", "lab-01"), "rollback to revision 1"),
    ):
        assert text in ops.run(*words).out
    gone = ops.run("rollback", "lab-01", "--to", "99", "--json")
    assert gone.rc == 7
    assert "no-revision" in gone.err
    assert leftovers(replay_host) == ""


def test_a_rollback_resolves_its_secret_again_or_is_refused_before_anything_stops(
    ops: Operator, replay_host: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_KEY", "sentinel-0815-secret")
    ops.profile("keyed", "name: keyed\nextends: tp8\nsecrets: {flags: {api-key: {env: LAB_KEY}}}\n")
    assert ops.deploy("lab-01", "keyed").result["state"] == "ready"
    kept = replay_host.console("grep -rl sentinel-0815 /var/lib/fleetctl; true")
    assert kept == ""
    assert ops.deploy("lab-01", "tp8").rc == 0
    before = unit_state(replay_host)["InvocationID"]
    monkeypatch.delenv("LAB_KEY")
    refused = ops.run("rollback", "lab-01", "--yes", "--json")
    assert refused.rc == 7
    assert "secret-gone" in refused.err
    assert unit_state(replay_host)["InvocationID"] == before
    monkeypatch.setenv("LAB_KEY", "sentinel-0815-secret")
    assert ops.run("rollback", "lab-01", "--yes", "--json").result["state"] == "ready"
    assert "sentinel-0815" in replay_host.console("cat /etc/fleetctl/main/secrets.yaml")


def test_what_was_edited_by_hand_is_drift_and_the_next_deploy_mends_it(
    ops: Operator, replay_host: Box
) -> None:
    assert ops.deploy("lab-01", "tp8").rc == 0
    assert ops.run("diff", "lab-01", "-p", "tp8").rc == 0
    replay_host.console("echo MALLOC_ARENA_MAX=1 >> /etc/fleetctl/main/environment")
    status = json.loads(ops.run("status", "lab-01", "--json").out)
    assert [d["path"] for d in status["drift"]] == ["/etc/fleetctl/main/environment"]
    assert status["revision"] == 1
    assert "edited by hand" in ops.run("status", "lab-01").out
    done = ops.run("diff", "lab-01")
    assert done.rc == 1
    assert "-MALLOC_ARENA_MAX=1" in ops.run("diff", "lab-01", "-p", "tp8").out
    assert ops.deploy("lab-01", "tp8").result["state"] == "ready"
    assert ops.run("diff", "lab-01").rc == 0


def test_of_two_deployers_one_waits_or_is_refused_and_none_interleaves(
    ops: Operator, replay_host: Box
) -> None:
    assert ops.deploy("lab-01", "tp8").rc == 0
    replay_host.scenario("founding", speed=4)
    others: list[Done] = []

    def meanwhile(_: object) -> None:
        others.append(ops.deploy("lab-01", "ep8"))
        replay_host.scenario("founding", speed=100)
        others.append(ops.deploy("lab-01", "ep8", "--lock-wait", "120"))

    words = ("deploy", "lab-01", "-p", "tp8", "--restart", "--yes", "--json")
    first = ops.until(words, lambda e: e.get("do") == "restart-unit", meanwhile)
    refused, waited = others
    assert (refused.rc, refused.result["state"]) == (5, "locked"), refused.out
    assert first.rc == 0, first.out
    assert (waited.rc, waited.result["state"]) == (0, "ready"), waited.out + waited.err
    assert waited.named("waiting")
    assert all(r["ready"] for r in history(ops)), "each came to its end before the next began"


def test_a_client_that_is_killed_leaves_old_or_new_and_the_next_deploy_repairs(
    ops: Operator, replay_host: Box
) -> None:
    assert ops.deploy("lab-01", "tp8").rc == 0
    words = ("deploy", "lab-01", "-p", "ep8", "--yes", "--json")
    ops.until(words, lambda e: e.get("do") == "restart-unit", kill)
    after = ops.deploy("lab-01", "ep8", "--lock-wait", "90")
    assert (after.rc, after.result["state"] in ("ready", "unchanged")) == (0, True), after.out
    assert leftovers(replay_host) == ""


def test_a_lock_is_broken_with_a_reason_that_both_ends_keep(
    ops: Operator, replay_host: Box
) -> None:
    replay_host.console(
        "mkdir -p /run/fleetctl/lock.d/main; touch /run/fleetctl/lock.d/main/beat;"
        ' echo \'{"who": "ann@desk", "since": "then", "why": "lunch", "token": "t"}\''
        " > /run/fleetctl/lock.d/main/holder.json"
    )
    assert "held by ann@desk" in ops.run("lock", "status", "lab-01").out
    assert ops.run("lock", "break", "lab-01").rc == 2, "a reason is asked for"
    done = ops.run("lock", "break", "lab-01", "--reason", "ann is away", "--json")
    assert json.loads(done.out)["broken"] is True
    assert "free" in ops.run("lock", "status", "lab-01").out
    lines = [json.loads(x) for x in ops.run("audit", "lab-01", "--json").out.splitlines()]
    broken = {x["source"] for x in lines if x["do"] == "break-lock"}
    assert broken == {"host", "here"}
