"""The collector as systemd runs it: one file, and what it loads for the end that every restart brings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleetctl.apply import collector
from fleetctl.remote import ending, places, records

INVOCATION = "0123456789abcdef0123456789abcdef"


def launch(outcome: str) -> None:
    record = {"id": "l-1", "service": "main", "invocation_id": INVOCATION, "outcome": outcome}
    records.save_launch(record)


def outcome() -> str:
    record = records.launch("main", "l-1")
    assert record is not None
    return str(record["outcome"])


@pytest.mark.usefixtures("host_root")
def test_a_stop_that_was_asked_for_is_told_from_the_record_alone(tmp_path: Path) -> None:
    launch("ready")
    records.ask_stop("sglang-main.service", INVOCATION, "a new launch", "somebody")
    program = tmp_path / "collect.py"
    program.write_text(collector.script())
    done = subprocess.run(
        [sys.executable, "-X", "importtime", program, "--service", "main", "--unit", "sglang-main.service"],
        env=os.environ | {"FLEETCTL_ROOT": str(tmp_path), "INVOCATION_ID": INVOCATION},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"fleetctl: {ending.PURPOSE}\n"
    assert outcome() == "stopped"
    assert "fleetctl.remote.records" in done.stderr
    assert "fleetctl.remote.spool" not in done.stderr
    assert not Path(places.SPOOL).exists()


@pytest.mark.parametrize(("was", "becomes"), [("ready", "crashed"), ("starting", "failed-start")])
def test_an_end_that_nobody_asked_for_is_kept(
    was: str, becomes: str, systemctl: object, host_root: Path
) -> None:
    assert systemctl
    launch(was)
    said = ending.collect("main", "sglang-main.service", INVOCATION)
    assert said == f"evidence of {INVOCATION} kept in {host_root}/var/lib/fleetctl/spool/main"
    assert outcome() == becomes
    manifest = Path(places.SPOOL, "main", INVOCATION, "manifest.json")
    assert json.loads(manifest.read_text())["launch_id"] == "l-1"
