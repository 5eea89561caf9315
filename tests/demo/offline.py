"""What can be shown without hosts: triage, lint and the bisect's planner, on any computer."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.demo.stage import ROOT, Stage, must, say


def play() -> None:
    """Tell the half that needs neither root nor Linux."""
    home = Path(tempfile.mkdtemp(prefix="fleetctl-demo-"))
    stage = Stage(home=home, site=ROOT)
    stage.scene("A crash log of eight ranks: which line is the root?")
    log = ROOT / "tests/demo/ep8-nvls.log"
    out = stage.run("triage", str(log), expect=1)
    must("cublas-capture" in out, "named")
    stage.scene("The same profile against a newer SGLang, without a host")
    stage.run("lint", "ep8-nvls", "--sglang", "0.5.12.post1")
    stage.scene("How many trials would a bisect need?")
    stage.run(
        "bisect", "simulate", "--n", "16", "--k", "2", "--q", "1", "--runs", "100", "--seed", "7"
    )
    say("\ndemo: this was the offline half; the other needs root on Linux")
