"""A deploy to 20 real systemd hosts with all checks, from the start of the command until all are ready."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.harness import Report

if TYPE_CHECKING:
    from tests.bench.run import Options

HOSTS = 20
GOAL = 8.0  # seconds
TEXT = f"command start → all {HOSTS} ready ≤ {GOAL:.0f} s (median; replay at speed 0)"


def bench(options: Options) -> Report:
    """Measure on replay hosts of a lab of this bench's own; a replay at speed 0 does not wait by itself."""
    from fleetctl.lab import needs

    report = Report("fleet")
    why = needs.why_not()
    if why:
        report.goal(TEXT, GOAL, None, why=why)
        return report
    whole, ready = _measure(2 if options.quick else max(options.rounds, 3))
    report.table(
        f"{HOSTS} hosts, {len(whole)} runs, load {os.getloadavg()[0]:.1f}",
        ["what", "median s", "max s"],
        [
            ["whole command", f"{statistics.median(whole):.2f}", f"{max(whole):.2f}"],
            [
                "slowest host, its own seconds",
                f"{statistics.median(ready):.2f}",
                f"{max(ready):.2f}",
            ],
        ],
    )
    report.goal(TEXT, GOAL, statistics.median(whole))
    report.data |= {"whole": whole, "slowest": ready}
    return report


def _measure(rounds: int) -> tuple[list[float], list[float]]:
    from fleetctl.lab import bed, spec
    from fleetctl.lab.box import Box
    from tests.lab.deploying import Operator

    name = f"bench{os.getpid()}"
    names = [f"lab-{n:02}" for n in range(1, HOSTS + 1)]
    whole: list[float] = []
    slowest: list[float] = []
    with tempfile.TemporaryDirectory(prefix="fleetctl-bench-") as folder:
        try:
            bed.up(
                name, [spec.parse_host(f"{n}=replay") for n in names], owner=os.getpid(), say=print
            )
            ops = Operator(Path(folder))
            for one in names:
                box = Box(name, one)
                box.scenario("serves", speed=0)
                ops.add(box, groups=["fleet"])
            for number in range(rounds + 1):
                # Never the same configuration twice, so that each host has something to write.
                done = ops.deploy("@fleet", "tp8", f"--set=max-running-requests={200 + number}")
                results: list[dict[str, Any]] = done.named("result")
                if done.rc or len(results) != HOSTS:
                    sys.stderr.write(done.out[-2000:] + done.err[-2000:])
                    raise RuntimeError("not every host became ready")
                if number:  # the first finds no server to replace
                    whole.append(done.seconds)
                    slowest.append(max(r["seconds"] for r in results))
        finally:
            bed.down(name)
    return whole, slowest
