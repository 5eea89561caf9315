"""Deploy on real systemd and sshd: ready, unchanged, crash, stop, and the records of each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetctl.lab.box import Box
from tests.lab.deploying import Operator, leftovers, unit_state

ENOUGH = 120.0


def test_a_good_profile_becomes_ready_and_a_second_run_changes_nothing(
    ops: Operator, replay_host: Box
) -> None:
    first = ops.deploy("lab-01", "tp8")
    assert first.rc == 0, first.err + first.out
    result = first.result
    assert (result["state"], result["error"]) == ("ready", None)
    assert result["invocation_id"] == unit_state(replay_host)["InvocationID"]
    assert [e["phase"] for e in first.named("phase") if "life" not in e][:3] == [
        "import", "dist-init", "weight-load",
    ]  # fmt: skip
    again = ops.deploy("lab-01", "tp8")
    assert (again.rc, again.result["state"]) == (0, "unchanged")
    assert again.result["invocation_id"] == result["invocation_id"]
    assert leftovers(replay_host) == ""


def test_a_dead_service_is_started_though_nothing_changed(ops: Operator, replay_host: Box) -> None:
    ops.deploy("lab-01", "tp8")
    assert ops.run("stop", "lab-01", "--yes").rc == 0
    assert unit_state(replay_host)["ActiveState"] == "inactive"
    again = ops.deploy("lab-01", "tp8")
    assert (again.rc, again.result["state"]) == (0, "ready")


def test_the_founding_crash_is_named_with_what_changed(ops: Operator, replay_host: Box) -> None:
    ops.deploy("lab-01", "tp8")
    done = ops.deploy("lab-01", "ep8-nvls")
    assert done.rc == 1
    crash = done.named("crash")[0]
    assert crash["provisional"] is True
    assert "CUBLAS_STATUS" in crash["message"]
    result = done.result
    assert (result["state"], result["error"]) == ("failed-start", "crashed")
    assert result["triage"]["label"] == "cublas-capture"
    assert len(result["changed_since_ready"]) == 4
    bundle = Path(result["bundle"])
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert manifest["invocation_id"] == result["invocation_id"]
    assert manifest["schema"] == "fleetctl.bundle/1"
    kept = replay_host.console(f"ls /var/lib/fleetctl/spool/main/{result['invocation_id']}")
    assert "manifest.json" in kept, "the unit's own collector kept it too"

    mistake = ops.deploy(
        "lab-01", "ep8-nvls", "--unset", "enable-nccl-nvls", "--set", "max-running-requests=128"
    )
    other = mistake.result
    assert len(other["changed_since_ready"]) == 2
    assert other["triage"]["fingerprint"] != result["triage"]["fingerprint"]
    rows = [json.loads(x) for x in ops.run("incidents", "list", "--json").out.splitlines()]
    assert {r["id"] for r in rows} == {result["incident"], other["incident"]}
    assert {r["invocation_id"] for r in rows} == {result["invocation_id"], other["invocation_id"]}


def test_the_verdict_for_a_person_holds_what_a_tired_one_needs(ops: Operator) -> None:
    ops.deploy("lab-01", "tp8")
    done = ops.run("deploy", "lab-01", "-p", "ep8-nvls", "--yes")
    for part in (
        "CRASHED in graph-capture", "cublas-capture", "CUBLAS_STATUS", "TP3", ".py:",
        "4 atoms since the last ready launch", "fleetctl bisect-flags lab-01",
        "bundle", "incident", "fleetctl logs lab-01/main --invocation",
    ):  # fmt: skip
        assert part in done.out, done.out
    assert "CRASH (first look)" in done.err
    assert "\x1b" not in done.out + done.err, "no terminal, no escapes"


def test_a_stop_that_was_asked_for_is_no_crash(ops: Operator, replay_host: Box) -> None:
    ops.deploy("lab-01", "tp8")
    invocation = unit_state(replay_host)["InvocationID"]
    assert ops.run("stop", "lab-01", "--yes", "--reason", "test").rc == 0
    state = unit_state(replay_host)
    assert (state["ActiveState"], state["Result"]) == ("inactive", "success")
    assert invocation not in ops.run("collect", "lab-01", "--since", "1h", "--json").out
    spool = replay_host.console("ls /var/lib/fleetctl/spool/main 2>/dev/null; true")
    assert invocation not in spool
    launches = replay_host.console("cat /var/lib/fleetctl/launches/main/*.json")
    assert '"outcome": "stopped"' in launches
    again = ops.run("stop", "lab-01", "--yes", "--json")
    assert (again.rc, again.result["state"]) == (0, "unchanged")


def test_a_redeploy_over_a_serving_one_asks_first(ops: Operator, replay_host: Box) -> None:
    ops.deploy("lab-01", "tp8")
    before = unit_state(replay_host)["InvocationID"]
    done = ops.run("deploy", "lab-01", "-p", "ep8", "--json")
    assert (done.rc, done.result["error"]) == (7, "not-confirmed")
    assert unit_state(replay_host)["InvocationID"] == before


def test_a_dry_run_shows_the_plan_and_changes_nothing(ops: Operator, replay_host: Box) -> None:
    before = replay_host.console(
        "find /etc/systemd/system /etc/fleetctl /var/lib/fleetctl 2>/dev/null; true"
    )
    done = ops.run("deploy", "lab-01", "-p", "tp8", "--dry-run", "--diff")
    assert done.rc == 0
    assert "systemctl daemon-reload" in done.out
    assert "+ExecStart=" in done.out
    after = replay_host.console(
        "find /etc/systemd/system /etc/fleetctl /var/lib/fleetctl 2>/dev/null; true"
    )
    assert after == before


@pytest.mark.parametrize(
    ("change", "token", "kind"),
    [
        (["--set", "tp-size=1"], 999999, "IndexError"),
        # A remark in the profile lets its tp-size through the lint.
        (["--patch", "kernel-api-log"], 511, "AttributeError"),
    ],
)
def test_a_poison_request_is_watched_and_can_be_reproduced(
    ops: Operator, replay_host: Box, tmp_path: Path, change: list[str], token: int, kind: str
) -> None:
    poison = tmp_path / "poison.json"
    poison.write_text(json.dumps({"input_ids": [token], "sampling_params": {"max_new_tokens": 1}}))
    done = ops.deploy("lab-01", "tp8", *change, "--request", str(poison))
    assert done.rc == 1, done.out
    result = done.result
    assert (result["state"], result["phase"]) == ("failed-start", "serving")
    assert result["ready_seconds"] > 0
    assert done.named("ready")
    assert result["triage"]["root"]["exception_type"] == kind
    had = [words for words in change if words == "kernel-api-log"]
    assert ops.run("patch", "revert", "lab-01", "--json").rc == 0
    again = ops.run("reproduce", result["incident"], "-n", "2", "--yes", "--json")
    tally = again.events[-1]
    assert (again.rc, tally["tries"], tally["same"]) == (0, 2, 2)
    pushed = [e["target"] for e in again.named("step") if e["do"] == "push-patch"]
    assert pushed == tally["patches"] == had, "once: it is there for the second try"


def test_status_wait_and_logs_tell_the_same_story(ops: Operator, replay_host: Box) -> None:
    assert ops.run("status", "lab-01", "--json").rc == 1
    assert ops.deploy("lab-01", "tp8", "--no-wait").result["state"] == "started"
    assert ops.run("wait", "lab-01", "--json").result["state"] == "ready"
    status = json.loads(ops.run("status", "lab-01", "--json").out)
    assert (status["state"], status["launch"]["profile"]) == ("ready", "tp8")
    log = ops.run("logs", "lab-01", "-n", "500")
    assert "fired up and ready to roll" in log.out
    other = ops.run("logs", "lab-01", "--invocation", "f" * 32)
    assert (other.rc, "error[unknown-invocation]" in other.err) == (2, True)


def test_several_hosts_each_get_a_result_and_the_common_code(
    ops: Operator, replay_host: Box
) -> None:
    ops.add(replay_host, "gone", address="10.255.255.1")
    done = ops.run("deploy", "lab-01", "gone", "-p", "tp8", "--json", "--yes")
    states = {e["host"]: e["state"] for e in done.named("result")}
    assert states == {"lab-01": "ready", "gone": "unreachable"}
    assert done.rc == 1


def test_a_secret_reaches_its_file_and_nothing_else(
    ops: Operator, replay_host: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_KEY", "sentinel-4711-secret")
    ops.profile("keyed", "name: keyed\nextends: tp8\nsecrets: {flags: {api-key: {env: LAB_KEY}}}\n")
    done = ops.deploy("lab-01", "keyed")
    assert done.result["state"] == "ready", done.out[-2000:]
    assert "sentinel-4711" not in done.out + done.err
    found = replay_host.console("grep -rl sentinel-4711 /etc /var/lib/fleetctl /run/fleetctl; true")
    assert found.split() == ["/etc/fleetctl/main/secrets.yaml"]
    modes = replay_host.console("stat -c '%a %U' " + " ".join(found.split()))
    assert set(modes.splitlines()) == {"600 root"}
    local = [p for p in ops.folder.rglob("*") if p.is_file() and b"sentinel-4711" in p.read_bytes()]
    assert local == []
    assert "sentinel-4711" not in replay_host.console("cat /proc/*/cmdline | tr '\\0' ' '")
    same = ops.run("deploy", "lab-01", "-p", "keyed", "--dry-run", "--json")
    assert same.named("plan")[0]["steps"] == []
    monkeypatch.setenv("LAB_KEY", "sentinel-4712-secret")
    new = ops.run("deploy", "lab-01", "-p", "keyed", "--dry-run", "--diff", "--json")
    written = [s["path"] for s in new.named("plan")[0]["steps"] if s["do"] == "write-file"]
    assert written == ["/etc/fleetctl/main/secrets.yaml"], "by its hash: the value stays here"
    assert "sentinel-47" not in new.out + new.err
