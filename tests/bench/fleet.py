"""A deploy to 20 real systemd hosts with all checks, from the start of the command until all are ready."""

from __future__ import annotations

import os
import resource
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.harness import CORES, Report

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
    runs = _measure(2 if options.quick else max(options.rounds, 3))
    rows = (
        ("whole command", [r.wall for r in runs]),
        ("slowest host, its own seconds", [r.slowest for r in runs]),
        ("CPU of this machine (hosts too) over its cores", [r.machine / CORES for r in runs]),
        ("CPU of fleetctl", [r.client for r in runs]),
    )
    report.table(
        f"{HOSTS} hosts, {len(runs)} runs, load {os.getloadavg()[0]:.1f}",
        ["what", "median s", "max s"],
        [[name, f"{statistics.median(v):.2f}", f"{max(v):.2f}"] for name, v in rows],
    )
    report.goal(TEXT, GOAL, statistics.median(r.wall for r in runs))
    report.data["runs"] = [asdict(r) for r in runs]
    return report


@dataclass(frozen=True)
class Run:
    """Seconds of one deploy: by the clock, of the slowest host, and CPU of the machine and of fleetctl."""

    wall: float
    slowest: float
    machine: float
    client: float


def _machine() -> float:
    """Return the seconds of CPU that the machine has spent since it started."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, soft = map(int, words[:7])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def _client() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _measure(rounds: int) -> list[Run]:
    from fleetctl.lab import bed, spec
    from fleetctl.lab.box import Box
    from tests.lab.deploying import Operator

    name = f"bench{os.getpid()}"
    names = [f"lab-{n:02}" for n in range(1, HOSTS + 1)]
    runs: list[Run] = []
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
                machine, client = _machine(), _client()
                done = ops.deploy("@fleet", "tp8", f"--set=max-running-requests={200 + number}")
                results: list[dict[str, Any]] = done.named("result")
                if done.rc or len(results) != HOSTS:
                    sys.stderr.write(done.out[-2000:] + done.err[-2000:])
                    raise RuntimeError("not every host became ready")
                if number:  # the first finds no server to replace
                    slowest = max(r["seconds"] for r in results)
                    used = _machine() - machine
                    runs.append(Run(done.seconds, slowest, used, _client() - client))
        finally:
            bed.down(name)
    return runs
