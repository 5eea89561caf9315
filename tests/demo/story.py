"""The founding story: two crashes, two changed flags, and one crash that nobody watched."""

from __future__ import annotations

import json
import shutil
import time
import urllib.error
import urllib.request

from tests.demo.stage import ROOT, Stage, must, say, until

LAB = "demo"
POISON = {"input_ids": [999999], "sampling_params": {"max_new_tokens": 4}}


def play() -> None:
    """Tell it. Leaves the incident log in .demo/ and takes the hosts down."""
    home = ROOT / ".demo"
    shutil.rmtree(home, ignore_errors=True)
    stage = Stage(home=home, site=home)
    try:
        _tell(stage)
    finally:
        say("")
        stage.run("lab", "down", "--name", LAB)
    say(
        f"\ndemo: told in {time.monotonic() - stage.started:.0f} s; the incident log stays in .demo/"
    )


def _tell(stage: Stage) -> None:
    stage.scene(
        "Two hosts boot: the real SGLang on one, a replay of recorded start-ups on the other"
    )
    hosts = ("--host", "lab-01=sglang:0.5.12.post1", "--host", "lab-02=replay:0.5.12.post1")
    stage.run("lab", "up", "--name", LAB, *hosts)
    (lab,) = stage.rows("lab", "status", "--name", LAB, "--json")
    address = lab["hosts"][0]["address"]
    stage.site = type(stage.home)(lab["site"])

    stage.scene("A good profile on the real SGLang, as a systemd unit, watched until it is ready")
    stage.run("deploy", "lab-01", "--profile", "cpu", "--yes")

    stage.scene(
        "A good profile for eight ranks (replay), then expert parallelism with NVLink multicast"
    )
    stage.run("deploy", "lab-02", "--profile", "tp8", "--yes")
    stage.run("deploy", "lab-02", "--profile", "ep8-nvls", "--yes", expect=1)
    (first,) = stage.rows("incidents", "list", "--host", "lab-02", "--json")
    must(
        first["label"] == "cublas-capture",
        "the incident is cublas-capture, not the wrapper around it",
    )

    stage.scene("The founding mistake: NVLS away and, in the same launch, a second flag")
    stage.run(
        "deploy", "lab-02", "--profile", "ep8-nvls", "--unset", "enable-nccl-nvls",
        "--set", "max-running-requests=128", "--yes", expect=1,
    )  # fmt: skip
    second = stage.rows("incidents", "list", "--host", "lab-02", "--json")[-1]
    must(second["fingerprint"] != first["fingerprint"], "another failure, in another group")
    must(second["phase"] != first["phase"], f"earlier: {second['phase']}, not {first['phase']}")
    shown = stage.run("incidents", "show", second["id"])
    must("2 atoms" in shown, "and the tool says that two atoms changed, so neither is proven")

    stage.scene("3 a.m.: a poison request kills the real SGLang, and nobody watches")
    before = _invocation(stage)
    say(f"$ curl http://{address}:30000/generate -d '{json.dumps(POISON)}'")
    _send(address)
    until(lambda: _invocation(stage) not in (None, before), "systemd restarts it")
    say("   systemd has restarted it already; the evidence was kept before that")
    stage.run("collect", "lab-01", expect=1)
    (third,) = stage.rows("incidents", "list", "--host", "lab-01", "--json")
    must(third["invocation_id"] == before, "collect found the invocation that died")

    stage.scene("The log")
    stage.run("incidents", "list")
    rows = stage.rows("incidents", "list", "--json")
    must(
        len({r["fingerprint"] for r in rows}) == len(rows) == 3,
        "three incidents, three fingerprints",
    )
    for row in rows:
        known = stage.run(
            "lab", "exec", "--name", LAB, row["host"], "--", "journalctl", "-q", "-n", "1", "-o", "cat",
            f"_SYSTEMD_INVOCATION_ID={row['invocation_id']}", show=False,
        )  # fmt: skip
        must(known.strip(), f"{row['host']}'s own journal knows invocation {row['invocation_id']}")

    stage.scene("Back to the good profile; the real server has come back by itself")
    stage.run("deploy", "lab-02", "--profile", "tp8", "--yes")
    until(lambda: _ready_again(stage, before), "the real server serves again", 180)
    stage.run("status", "lab-01", "lab-02")


def _invocation(stage: Stage) -> str | None:
    """Return the invocation that runs on the real host, or None while none does.

    Between a crash and the restart the unit is activating (auto-restart), not active.
    """
    (row,) = stage.rows("status", "lab-01", "--json")
    unit = row["unit"]
    return unit["invocation_id"] if unit["active_state"] == "active" and unit["main_pid"] else None


def _ready_again(stage: Stage, before: str | None) -> bool:
    """Return whether another invocation than that one serves."""
    (row,) = stage.rows("status", "lab-01", "--json")
    return bool(row["state"] == "ready" and row["unit"]["invocation_id"] != before)


def _send(address: str) -> None:
    """Send the request; the server dies of it, so any answer or none will do."""
    request = urllib.request.Request(
        f"http://{address}:30000/generate",
        json.dumps(POISON).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        urllib.request.urlopen(request, timeout=30).read()
    except (OSError, urllib.error.URLError):
        return
