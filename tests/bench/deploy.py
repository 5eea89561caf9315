"""A deploy on a real systemd host: to the restart, beside SGLang's own start, and from a crash's line on."""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.harness import Report

if TYPE_CHECKING:
    from fleetctl.lab.box import Box
    from tests.bench.run import Options
    from tests.lab.deploying import Operator

ISSUED_GOAL = 1.5  # seconds from the start of the command
CRASH_GOAL = 1.0  # seconds, median, from journald's time of the line
VERDICT_GOAL = 1.0  # … to the result: evidence frozen and fetched, triaged, recorded
OVERHEAD_GOAL = (
    2.0  # a whole deploy, less the server's own way from its first instruction to its ready line
)
UNIT = "sglang-main.service"

# One crash for each run: the traceback comes a while after the start, at a time of its own.
SCENARIO = """
name = "bench"
speed = 20
[[outcome]]
when = {"max-running-requests" = {min = 129}}
phase = "graph-capture"
log = "recordings/cublas-capture-0.5.12.post1.txt"
"""


def bench(options: Options) -> Report:
    """Measure on a replay host of a lab of this bench's own."""
    from fleetctl.lab import needs

    report = Report("deploy")
    why = needs.why_not()
    if why:
        report.goal("restart issued", ISSUED_GOAL, None, why=why)
        report.goal("crash told", CRASH_GOAL, None, why=why)
        report.goal("verdict", VERDICT_GOAL, None, why=why)
        report.goal("overhead", OVERHEAD_GOAL, None, why=why)
        return report
    rounds = 3 if options.quick else max(options.rounds, 10)
    taken = _measure(rounds)
    issued, crashes, verdicts = taken.issued, taken.crashes, taken.verdicts
    report.table(
        f"{rounds} runs, load {os.getloadavg()[0]:.1f}",
        ["from", "to", "median s", "p90 s", "max s"],
        [
            ["command started", "restart issued", *_three(issued)],
            ["crash printed (journald's time)", "provisional crash on stdout", *_three(crashes)],
            ["crash printed (journald's time)", "result with its triage", *_three(verdicts)],
            ["ready line printed (journald's time)", "ready on stdout", *_three(taken.ready)],
            ["ready line printed (journald's time)", "command ended", *_three(taken.ended)],
            ["command started", "its end, less the server's own start", *_three(taken.over)],
        ],
    )
    report.goal(
        "command start → restart issued ≤ 1.5 s (median)", ISSUED_GOAL, statistics.median(issued)
    )
    report.goal(
        "crash line → provisional crash ≤ 1.0 s (median)", CRASH_GOAL, statistics.median(crashes)
    )
    report.goal("crash line → result ≤ 1.0 s (median)", VERDICT_GOAL, statistics.median(verdicts))
    report.goal(
        "deploy over the server's own start ≤ 2 s (median)",
        OVERHEAD_GOAL,
        statistics.median(taken.over),
    )
    report.data |= {"issued": issued, "crash": crashes, "verdict": verdicts}
    report.data |= {"ready": taken.ready, "ended": taken.ended, "over": taken.over}
    return report


@dataclass
class Taken:
    """Seconds, one of each for every round."""

    issued: list[float] = field(default_factory=list)
    crashes: list[float] = field(default_factory=list)
    verdicts: list[float] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    over: list[float] = field(default_factory=list)


def _measure(rounds: int) -> Taken:
    from fleetctl.lab import bed, spec
    from fleetctl.lab.box import Box
    from tests.lab.deploying import Operator

    name = f"bench{os.getpid()}"
    taken = Taken()
    with tempfile.TemporaryDirectory(prefix="fleetctl-bench-") as folder:
        try:
            bed.up(name, [spec.parse_host("lab-01=replay")], owner=os.getpid(), say=print)
            box = Box(name, "lab-01")
            ops = Operator(Path(folder))
            ops.add(box)
            _scenario(box, Path(folder))
            list(_run(ops, "tp8"))
            for number in range(rounds):
                # Never the same configuration twice, so that each has something to write.
                printed = 0.0
                for at, event in _run(ops, "ep8", f"max-running-requests={200 + number}"):
                    if event.get("do") == "restart-unit" and event["state"] == "issued":
                        taken.issued.append(at)
                    if event["event"] == "crash":
                        printed = datetime.fromisoformat(event["printed_at"]).timestamp()
                        taken.crashes.append(time.time() - printed)
                    if event["event"] == "result":
                        assert event["triage"], event
                        taken.verdicts.append(time.time() - printed)
                _ready(ops, box, number, taken)
        finally:
            bed.down(name)
    return taken


def _ready(ops: Operator, box: Box, number: int, taken: Taken) -> None:
    """Deploy what becomes ready, from a server that is down, and take the server's own start off."""
    box.console(f"systemctl stop {UNIT}; systemctl reset-failed {UNIT}; true")
    began, told = time.monotonic(), 0.0
    for _, event in _run(ops, "tp8", f"max-running-requests={64 + number}"):
        if event["event"] == "ready":
            told = time.time()
        if event["event"] == "result":
            assert event["state"] == "ready", event
    ended, seconds = time.time(), time.monotonic() - began
    start, _, line = box.console(
        f"systemctl show -p ExecMainStartTimestampMonotonic --value {UNIT};"
        f" journalctl -u {UNIT} -o json --no-pager | grep -F 'fired up and ready' | tail -1"
    ).partition("\n")
    said = json.loads(line)
    printed = int(said["__REALTIME_TIMESTAMP"]) / 1e6
    taken.ready.append(told - printed)
    taken.ended.append(ended - printed)
    taken.over.append(seconds - (int(said["__MONOTONIC_TIMESTAMP"]) - int(start)) / 1e6)


def _scenario(box: Box, folder: Path) -> None:
    path = folder / "bench.toml"
    path.write_text(SCENARIO)
    box.scenario(str(path))


def _run(ops: Operator, profile: str, *sets: str) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield seconds since the command was started, and each event as it is read."""
    words = ["deploy", "lab-01", "-p", profile, "--json", "--yes"]
    began = time.monotonic()
    process = ops.popen(*words, *(f"--set={one}" for one in sets))
    assert process.stdout is not None
    assert process.stderr is not None
    for line in process.stdout:
        yield time.monotonic() - began, json.loads(line)
    sys.stderr.write(process.stderr.read())
    process.wait()
    process.stdout.close()
    process.stderr.close()


def _three(values: list[float]) -> list[str]:
    ordered = sorted(values)
    return [
        f"{statistics.median(ordered):.3f}",
        f"{ordered[int(len(ordered) * 0.9) - 1]:.3f}",
        f"{ordered[-1]:.3f}",
    ]
