"""Bisects on real hosts: the founding story, interruptions of every kind, refusals that change nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.lab import scenarios
from fleetctl.lab.box import Box

FAST = 80.0
EIGHT = """\
name: eight
extends: tp8
flags:
  ep-size: 8
  enable-nccl-nvls: true
  max-running-requests: 256
  enable-flashinfer-allreduce-fusion: true
  decode-log-interval: 20
  schedule-conservativeness: 0.9
  watchdog-timeout: 600
  allow-auto-truncate: true
"""
NVLS = """\
name: nvls
extends: few
flags: {enable-nccl-nvls: true, watchdog-timeout: 600}
"""
FEW = """\
name: few
extends: tp8
flags: {ep-size: 8, max-running-requests: 256}
"""
SPEC = """\
name: spec
extends: tp8
flags:
  speculative-algorithm: EAGLE
  speculative-num-steps: 3
  speculative-eagle-topk: 4
  watchdog-timeout: 600
"""
SPEC_SCENARIO = """\
[[outcome]]
when = {"speculative-algorithm" = "EAGLE", "speculative-eagle-topk" = 4}
phase = "graph-capture"
log = "recordings/cublas-capture-0.5.12.post1.txt"
"""
LOGGING = """\
name: logging
extends: few
flags: {enable-nccl-nvls: true}
patches: [kernel-api-log]
"""
PATCH = """\
name = "why-it-ends"
summary = "Says in which phase the stand-in comes to its end"
sglang = ">=0.5"
rung = "overlay"
expire = "1h"
[[target]]
symbol = "sglang._replay.server:Server.come_to"
block = "say.py.j2"
"""
SAYS = """\
{{ emit("end", '{"message": "ends in %s" % outcome.phase, "phase": outcome.phase}') }}
"""
REQUEST_SCENARIO = """\
[[outcome]]
when = {"enable-nccl-nvls" = true}
request = {token = 511}
log = "recordings/none-dtype-replay-0.5.12.post1.txt"
"""
SAME_AGAIN = "name: again\nextends: tp8\nflags: {mem-fraction-static: 0.850}\n"
HARMLESS = "name: harmless\nextends: tp8\nflags: {watchdog-timeout: 600}\n"


class Bench:
    """The command line against one host, with a state folder of its own."""

    def __init__(self, box: Box, folder: Path) -> None:
        self.box = box
        self.home = folder / "home"
        self.env = os.environ | {
            "FLEETCTL_HOME": str(self.home),
            "FLEETCTL_SITE": str(box.lab.site),
        }
        self.files: list[Path] = []
        for text in (EIGHT, FEW, NVLS, SPEC, LOGGING, SAME_AGAIN, HARMLESS):
            name = text.split("\n")[0].removeprefix("name: ")
            self.files.append(box.lab.site / "profiles" / f"{name}.yaml")
            self.files[-1].write_text(text)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "fleetctl", *words], env=self.env, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *words: str, timeout: float = 400) -> tuple[int, list[dict[str, Any]], str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=timeout)
        lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        return process.returncode, lines, err

    def bisect(self, good: str, bad: str, *more: str) -> tuple[int, list[dict[str, Any]], str]:
        return self.run(
            "bisect-flags", self.box.name, "--good", good, "--bad", bad, "--yes", "--json", *more
        )

    def ready(self, profile: str) -> None:
        code, _, err = self.run("deploy", self.box.name, "-p", profile, "--yes", "--json")
        assert code == 0, err

    def console(self, command: str) -> str:
        return self.box.console(command)

    def untouched(self) -> bool:
        """No unit, no folder and no lock of trials is there."""
        seen = self.console(
            "ls -d /etc/systemd/system/*-trial* /etc/fleetctl/*-trial /run/fleetctl/lock.d/* 2>/dev/null;"
            " systemctl list-units --all --plain --no-legend '*-trial*'"
        )
        return seen.strip() == ""


@pytest.fixture
def bench(replay_host: Box, tmp_path: Path) -> Iterator[Bench]:
    replay_host.scenario("founding", FAST)
    found = Bench(replay_host, tmp_path)
    yield found
    for path in found.files:
        path.unlink(missing_ok=True)


def wait_for_trial(process: subprocess.Popen[str], number: int) -> str:
    """Read events until a trial of that number is on its way; return the bisect's id."""
    assert process.stdout is not None
    bisect: str = ""
    for line in process.stdout:
        event = json.loads(line)
        bisect = str(event.get("id", bisect))
        if event["event"] == "trial-start" and event["number"] >= number:
            return bisect
    raise AssertionError(process.communicate()[1])


def verdict(lines: list[dict[str, Any]]) -> dict[str, Any]:
    assert lines[-1]["event"] == "verdict"
    return lines[-1]


def test_the_founding_story_names_two_flags_and_leaves_the_masked_one_open(bench: Bench) -> None:
    code, lines, err = bench.bisect("tp8", "eight")
    said = verdict(lines)
    assert (code, said["status"]) == (0, "found"), err
    (cause,) = said["causes"]
    assert sorted(cause["flags"]) == ["enable-nccl-nvls", "ep-size"]
    assert cause["undetermined"] == ["max-running-requests"]
    assert "none-into-grouped-copy" in cause["masked_by"]
    assert cause["confirmed"]
    assert "CUBLAS_STATUS_EXECUTION_FAILED" in cause["signature"]
    assert said["innocent"] == [
        "allow-auto-truncate", "decode-log-interval", "enable-flashinfer-allreduce-fusion",
        "schedule-conservativeness", "watchdog-timeout",
    ]  # fmt: skip
    assert [o["earlier"] for o in said["others"]] == [True]
    assert said["trials"] <= 22
    assert bench.untouched()
    page = Path(said["report"]).read_text()
    assert "max-running-requests" in page
    assert "<script" not in page


def test_once_the_masking_failure_is_gone_a_second_run_settles_the_open_flag(
    bench: Bench, tmp_path: Path
) -> None:
    text = scenarios.shipped()["founding"].read_text()
    kept = [
        part for part in text.split("[[outcome]]") if '"max-running-requests" = 128' not in part
    ]
    (tmp_path / "settled.toml").write_text("[[outcome]]".join(kept))
    bench.box.scenario(str(tmp_path / "settled.toml"), FAST)
    code, lines, err = bench.bisect("tp8", "eight")
    (cause,) = verdict(lines)["causes"]
    assert code == 0, err
    assert sorted(cause["flags"]) == ["enable-nccl-nvls", "ep-size", "max-running-requests"]
    assert cause["undetermined"] == []
    assert cause["confirmed"]


def test_a_client_that_was_killed_in_mid_trial_is_resumed_from_another_machine(
    bench: Bench, tmp_path: Path
) -> None:
    bench.ready("tp8")
    hooks = tmp_path / "hooks"
    process = bench.start(
        "bisect-flags", bench.box.name, "--good", "few", "--bad", "nvls", "--yes", "--json",
        "--take-down", "main", "--port", "30111", "--undrain-cmd", f"echo $STATE >> {hooks}",
    )  # fmt: skip
    bisect = wait_for_trial(process, 3)
    time.sleep(1.0)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    known = json.loads((bench.home / "bisect" / f"{bisect}.json").read_text())["trials"]
    assert len(known) == 2
    bench.env["FLEETCTL_HOME"] = str(bench.home.parent / "another-laptop")
    code, (plan, *_), err = bench.bisect("few", "nvls", "--dry-run")
    (left,) = (n for n in plan["notes"] if "is down since" in n)
    assert f"{bench.box.name}/main is down since 2" in left
    assert f"`fleetctl bisect show {bisect} --on {bench.box.name}`" in left
    code, lines, err = bench.run(
        "bisect-flags", bench.box.name, "--resume", bisect, "--yes", "--json"
    )
    said = verdict(lines)
    assert code == 0, err
    assert [c["flags"] for c in said["causes"]] == [["enable-nccl-nvls"]]
    assert [e["state"] for e in lines if e["event"] == "brought-back"] == ["ready"]
    assert hooks.read_text() == "ready\n"
    assert bench.untouched()
    code, shown, _ = bench.run("bisect", "show", bisect, "--on", bench.box.name, "--json")
    assert [t["number"] for t in shown[0]["trials"]] == list(range(1, len(shown[0]["trials"]) + 1))
    assert shown[0]["trials"][:2] == known
    assert (shown[0]["status"], shown[0]["taken_down"]) == ("found", [])
    assert all("--port 30111" in t["command"] for t in shown[0]["trials"])


def test_a_host_that_is_silent_or_reboots_in_mid_trial_spoils_that_trial_only(bench: Bench) -> None:
    words = ("bisect-flags", bench.box.name, "--good", "few", "--bad", "nvls", "--yes", "--json")
    lines: list[dict[str, Any]] = []
    spoiled: list[str] = []
    with bench.start(*words) as process:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            lines.append(event)
            if event["event"] == "trial" and event["outcome"] == "infra":
                bench.box.fault("thaw")
                spoiled.append(event["note"].split(":")[0])
            elif event["event"] == "trial" and event["number"] == 1:
                bench.box.fault("freeze")
            elif event["event"] == "trial-start" and spoiled and set(spoiled) == {"systemd-silent"}:
                time.sleep(0.5)
                bench.box.fault("kill")
                bench.box.heal()
        assert process.stderr is not None
        err = process.stderr.read()
    assert len(spoiled) == 2, err
    assert spoiled[0] == "systemd-silent"
    assert verdict(lines)["outcomes"]["infra"] == 2
    assert [c["flags"] for c in verdict(lines)["causes"]] == [["enable-nccl-nvls"]]
    assert process.returncode == 0
    assert bench.untouched()


def test_ctrl_c_leaves_the_host_clean_and_brings_back_what_was_taken_down(bench: Bench) -> None:
    bench.ready("tp8")
    before = bench.console(
        "systemctl show sglang-main -p FragmentPath --value; cat /etc/fleetctl/main/environment"
    )
    code, _, err = bench.bisect("few", "nvls")
    assert code == 7
    assert "serving" in err
    assert "--take-down main" in err
    process = bench.start(
        "bisect-flags", bench.box.name, "--good", "few", "--bad", "nvls", "--take-down", "main",
        "--yes", "--json",
    )  # fmt: skip
    bisect = wait_for_trial(process, 1)
    assert bench.console("systemctl is-active sglang-main; true").strip() != "active"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 130
    assert "--resume" in err
    assert '"event":"brought-back"' in out
    assert bench.console("systemctl is-active sglang-main").strip() == "active"
    after = bench.console(
        "systemctl show sglang-main -p FragmentPath --value; cat /etc/fleetctl/main/environment"
    )
    assert after == before
    assert bench.untouched()
    code, shown, _ = bench.run("bisect", "show", bisect, "--json")
    assert shown[0]["status"] == "stopped"
    assert shown[0]["taken_down"] == []


def test_a_bisect_in_the_background_is_attached_to_and_corrected_afterwards(bench: Bench) -> None:
    code, lines, err = bench.bisect("few", "nvls", "--detach")
    assert code == 0, err
    bisect = lines[-1]["id"]
    code, lines, err = bench.run("bisect", "attach", bisect, "--json")
    assert code == 0, err
    assert [c["flags"] for c in verdict(lines)["causes"]] == [["enable-nccl-nvls"]]
    # Nobody has to say yes to it: nothing is left to launch.
    code, lines, err = bench.run("bisect-flags", "--resume", bisect, "--json")
    assert (code, [e["event"] for e in lines]) == (0, ["plan", "verdict"]), err
    code, marked, _ = bench.run("bisect", "mark", bisect, "1", "good", "--json")
    assert (marked[0]["outcome"], marked[0]["was"]) == ("pass", "same")
    code, undone, _ = bench.run("bisect", "undo", bisect, "--json")
    assert undone[0]["event"] == "undone"
    code, rows, _ = bench.run("bisect", "list", "--json")
    assert [(r["id"], r["status"]) for r in rows] == [(bisect, "stopped")]


def refused(bench: Bench, *words: str) -> tuple[int, str]:
    code, lines, err = bench.run(*words)
    assert not [e for e in lines if e["event"] == "trial-start"]
    assert bench.untouched()
    return code, json.loads(err.splitlines()[-1])["error"]


def test_bad_input_is_refused_before_anything_is_launched(bench: Bench) -> None:
    host = bench.box.name
    words = ("bisect-flags", host, "--yes", "--json")
    assert refused(bench, *words, "--good", "tp8", "--bad", "again") == (2, "equal-profiles")
    assert refused(bench, *words, "--good", "tp8", "--bad", "nothing") == (2, "unknown-profile")
    assert refused(bench, *words, "--good", "tp8") == (2, "no-bad")
    assert refused(bench, *words, "--good-last-ready", "--bad", "eight") == (2, "never-ready")
    few = ("--good", "tp8", "--bad", "eight", "--max-trials", "5")
    assert refused(bench, *words, *few) == (2, "budget-too-small")
    code, _, err = bench.run(*words, "--good", "tp8", "--bad", "eight", "--dry-run")
    assert code == 0, err
    assert refused(bench, *words, "--resume", "b0") == (2, "unknown-bisect")


def test_ends_that_do_not_fit_the_question_get_their_own_answer(bench: Bench) -> None:
    code, lines, _ = bench.bisect("tp8", "harmless", "--bad-runs", "1")
    assert (code, verdict(lines)["status"]) == (1, "does-not-reproduce")
    code, lines, _ = bench.bisect("nvls", "eight")
    assert (code, verdict(lines)["status"]) == (1, "not-flags")
    assert bench.untouched()


def test_launches_that_were_there_before_are_not_made_again(bench: Bench) -> None:
    bench.ready("few")
    code, _, _ = bench.run("deploy", bench.box.name, "-p", "nvls", "--yes", "--json")
    assert code == 1
    code, lines, err = bench.run(
        "bisect-flags", bench.box.name, "--good-last-ready", "--bad", "nvls", "--yes", "--json",
        "--take-down", "main",
    )  # fmt: skip
    assert code == 0, err
    assert not [e for e in lines if e["event"] == "brought-back"]  # it was in a crash loop
    plan = lines[0]
    assert [(p["on"], p["outcome"]) for p in plan["paid"]] == [
        ([], "pass"), (["enable-nccl-nvls", "watchdog-timeout"], "same"),
    ]  # fmt: skip
    assert not [e for e in lines if e["event"] == "trial" and e["purpose"] == "calibrate"]
    assert [c["flags"] for c in verdict(lines)["causes"]] == [["enable-nccl-nvls"]]


def test_a_state_of_another_host_or_version_is_not_gone_on_with(
    bench: Bench, private_host: Callable[[str], Box]
) -> None:
    process = bench.start(
        "bisect-flags", bench.box.name, "--good", "few", "--bad", "nvls", "--yes", "--json"
    )
    bisect = wait_for_trial(process, 2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=100)
    other = private_host("replay:0.5.15")
    words = ("bisect-flags", other.name, "--resume", bisect, "--yes", "--json")
    assert refused(bench, *words) == (7, "other-host")
    path = bench.home / "bisect" / f"{bisect}.json"
    state = json.loads(path.read_text())
    path.write_text(json.dumps(state | {"sglang": "0.5.10", "version": 10**6}))
    words = ("bisect-flags", bench.box.name, "--resume", bisect, "--yes", "--json")
    assert refused(bench, *words) == (7, "other-version")
    code, _, err = bench.run("bisect", "abandon", bisect, "--yes")
    assert code == 0, err


def test_two_hosts_launch_at_the_same_time_and_end_sooner(
    bench: Bench, private_host: Callable[[str], Box]
) -> None:
    other = private_host("replay")
    other.scenario("founding", FAST)
    code, lines, err = bench.bisect("few", "nvls", "--hosts", other.name)
    assert code == 0, err
    assert [c["flags"] for c in verdict(lines)["causes"]] == [["enable-nccl-nvls"]]
    assert {e["host"] for e in lines if e["event"] == "trial"} == {bench.box.name, other.name}
    numbers = [e["number"] for e in lines if e["event"] == "trial-start"]
    assert len(set(numbers)) == len(numbers)
    rounds = [e for e in lines if e["event"] == "remaining"]
    assert len(rounds) < verdict(lines)["trials"]


def test_a_check_judges_what_serves_and_125_skips(bench: Bench, tmp_path: Path) -> None:
    check = tmp_path / "check.sh"
    check.write_text(
        "python3 - <<END\nimport json, os, sys, urllib.request\n"
        'seen = json.load(urllib.request.urlopen(os.environ["URL"] + "/server_info"))\n'
        'sys.exit("too slow" if float(seen.get("watchdog_timeout", 300)) == 600 else 0)\nEND\n'
    )
    code, lines, err = bench.bisect("tp8", "harmless", "--check", f"sh {check}")
    said = verdict(lines)
    assert code == 0, err
    assert [(c["flags"], c["label"]) for c in said["causes"]] == [(["watchdog-timeout"], "check")]
    code, lines, err = bench.bisect("tp8", "harmless", "--check", "exit 125")
    assert (code, verdict(lines)["status"]) == (1, "inconclusive")


def test_a_crash_that_needs_a_request_is_hunted_with_it_and_other_launches_do_not_count(
    bench: Bench, tmp_path: Path
) -> None:
    bench.ready("few")
    bench.run("stop", bench.box.name, "--yes")
    (tmp_path / "asked.toml").write_text(REQUEST_SCENARIO)
    (tmp_path / "request.json").write_text('{"input_ids": [1, 511]}')
    bench.box.scenario(str(tmp_path / "asked.toml"), FAST)
    code, lines, err = bench.bisect("few", "nvls", "--request", str(tmp_path / "request.json"))
    assert code == 0, err
    assert lines[0]["paid"] == []
    (cause,) = verdict(lines)["causes"]
    assert cause["flags"] == ["enable-nccl-nvls"]
    assert "none-into-grouped-copy" in cause["signature"]


def test_a_guilty_group_is_taken_apart_and_dummy_weights_serve_the_search_only(
    bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "spec.toml").write_text(SPEC_SCENARIO)
    bench.box.scenario(str(tmp_path / "spec.toml"), FAST)
    code, lines, err = bench.bisect("tp8", "spec", "--fast-load", "--fast-layers", "2")
    said = verdict(lines)
    assert code == 0, err
    (cause,) = said["causes"]
    assert sorted(cause["flags"]) == ["speculative-algorithm", "speculative-eagle-topk"]
    assert said["innocent"] == ["speculative-num-steps", "watchdog-timeout"]
    (split,) = [e for e in lines if e["event"] == "split"]
    assert len(split["flags"]) == 3
    _, shown, _ = bench.run("bisect", "show", said["id"], "--json")
    launched = [t for t in shown[0]["trials"] if not t["cached"]]
    assert [t["note"] for t in launched].count("dummy weights") == 1
    layers = bench.console(
        "grep -l 'num_hidden_layers.*: 2' /var/lib/fleetctl/launches/main-trial/*.json | wc -l"
    )
    assert int(layers) == 1 + sum(1 for t in launched if t["purpose"] == "search")
    assert {t["full"] for t in launched if t["purpose"] == "search"} == {False}
    assert {t["full"] for t in launched if t["purpose"] == "confirm"} == {True}


CPU_BROKEN = """\
name: cpu-broken
extends: cpu
flags: {max-total-tokens: 2, decode-log-interval: 20, schedule-conservativeness: 0.9, watchdog-timeout: 600}
"""


@pytest.mark.sglang
def test_on_the_real_sglang_the_flag_that_breaks_it_is_named_among_innocent_ones(
    sglang_host: Box, tmp_path: Path
) -> None:
    sglang_host.clean()
    bench = Bench(sglang_host, tmp_path)
    bench.files.append(sglang_host.lab.site / "profiles" / "cpu-broken.yaml")
    bench.files[-1].write_text(CPU_BROKEN)
    try:
        code, lines, err = bench.bisect("cpu", "cpu-broken")
        said = verdict(lines)
        assert code == 0, err
        assert lines[0]["notes"] == []  # SGLang's own resolver was asked
        assert [c["flags"] for c in said["causes"]] == [["max-total-tokens"]]
        assert "Memory pool size is too small" in said["causes"][0]["signature"]
        assert said["innocent"] == [
            "decode-log-interval", "schedule-conservativeness", "watchdog-timeout",
        ]  # fmt: skip
        bench.files[-1].write_text(
            CPU_BROKEN.replace("max-total-tokens: 2", "attention-backend: flashinfer")
        )
        words = (
            "bisect-flags",
            sglang_host.name,
            "--good",
            "cpu",
            "--bad",
            "cpu-broken",
            "--yes",
            "--json",
        )
        assert refused(bench, *words) == (2, "bad-invalid")
    finally:
        for path in bench.files:
            path.unlink(missing_ok=True)
        sglang_host.clean()


@pytest.fixture
def why_it_ends(bench: Bench) -> Iterator[str]:
    folder = bench.box.lab.site / "patches" / "why-it-ends"
    folder.mkdir(parents=True)
    (folder / "patch.toml").write_text(PATCH)
    (folder / "say.py.j2").write_text(SAYS)
    yield folder.name
    shutil.rmtree(folder)


def test_every_trial_runs_with_the_patch_and_one_that_differs_is_a_switch(
    bench: Bench, why_it_ends: str
) -> None:
    code, lines, err = bench.bisect("few", "logging", "--patch", why_it_ends)
    said = verdict(lines)
    assert code == 0, err
    assert [c["flags"] for c in said["causes"]] == [["enable-nccl-nvls"]]
    assert said["innocent"] == ["patch kernel-api-log"]
    assert list(lines[0]["patches"]) == [why_it_ends]
    trials = [e for e in lines if e["event"] == "trial"]
    with_log = [{p["name"] for p in t["patches"]} - {why_it_ends} for t in trials]
    assert with_log == [
        {"kernel-api-log"} if "patch kernel-api-log" in t["on"] else set() for t in trials
    ]
    for trial in trials:
        (mine,) = (p for p in trial["patches"] if p["name"] == why_it_ends)
        phase = "graph-capture" if trial["outcome"] == "same" else None
        assert (mine["capture"] or {}).get("phase") == phase
    crashed = [t["number"] for t in trials if t["outcome"] == "same"]
    assert said["captures"] == [
        {"patch": why_it_ends, "result": "ends in graph-capture", "trials": crashed}
    ]
    code, shown, _ = bench.run("bisect", "show", said["id"], "--json")
    assert list(shown[0]["options"]["patches"]) == [why_it_ends]
    code, shown, _ = bench.run("incidents", "show", trials[0]["incident"], "--json")
    assert "ends in graph-capture" in json.dumps(shown)
    assert bench.untouched()
    assert bench.console("ls /var/lib/fleetctl/patches").strip() == ""
    words = ("bisect-flags", bench.box.name, "--resume", said["id"], "--patch", "rank-beacon")
    assert refused(bench, *words, "--yes", "--json") == (2, "other-patches")
