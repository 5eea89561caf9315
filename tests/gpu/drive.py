"""Takes the steps of a stage: lanes at once, each on its own host, all within one limit of time."""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
import traceback
from pathlib import Path

from tests.gpu import bed, prepare, stages
from tests.gpu.record import Record, Report
from tests.gpu.steps import STEPS, Run
from tests.gpu.tool import Tool

WORK = Path(".gpu").absolute()
KEPT = WORK / "kept"
RESERVE = 15.0  # seconds for the report and the archive


def main(words: list[str]) -> int:
    """Return 0 when every step that was asked for is right."""
    if words[:1] == ["list"]:
        return show()
    if words[:1] == ["down"]:
        bed.down(stages.HOSTS)
        return 0
    plans = [stages.plan(word) for word in words[1:] or stages.ALL]
    deadline = time.monotonic() + float(os.environ.get("LIMIT", "540")) - RESERVE
    report = Report(KEPT, Path(os.environ["OUT"]))
    hosts = sorted({host for plan in plans for lanes in plan for host, _ in lanes})
    ground = ground_of(hosts)
    ground.write(WORK / "site")
    tool = Tool(command(), WORK / "site", WORK / "home", KEPT / "commands", deadline)
    tool.number = len(list(tool.kept.glob("*.txt")))
    trusted = tool.run("hosts", "trust", *hosts, "--yes", "--json")
    if trusted.rc != 0:
        print(trusted.out, trusted.err, file=sys.stderr)
        return 2
    right = True
    for plan in plans:
        for lanes in plan:
            right &= together(lanes, ground, tool, report)
    report.pack(KEPT, WORK / "home")
    print(*report.lines(), sep="\n")
    return 0 if right else 1


def show() -> int:
    """Print what there is."""
    for name, step in STEPS.items():
        print(f"{name:16} {step.limit:4.0f} s  {(step.take.__doc__ or '').splitlines()[0]}")
    for name, text in stages.STAGES.items():
        print(f"stage {name}: {text}")
    return 0


def command() -> list[str]:
    """Return how fleetctl is started: this checkout, with the packages of the wheels."""
    if chosen := os.environ.get("FLEETCTL"):
        return shlex.split(chosen)
    os.environ["PYTHONPATH"] = f"{Path.cwd()}:{WORK / 'tool'}"
    return [sys.executable, "-m", "fleetctl"]


def ground_of(hosts: list[str]) -> bed.Bed:
    """Return the hosts: a lab's where LAB_SITE names one, else of this machine."""
    if folder := os.environ.get("LAB_SITE"):
        return bed.lab(Path(folder))
    WORK.mkdir(exist_ok=True)
    if prepare.DONE.exists():
        prepare.dress()  # levers and models of this checkout
    made = str(prepare.DONE.stat().st_mtime_ns) if prepare.DONE.exists() else "not prepared"
    return bed.machine([h for h in stages.HOSTS if h in hosts], WORK / "known_hosts", made)


def together(
    lanes: list[tuple[str, list[str]]], ground: bed.Bed, tool: Tool, report: Report
) -> bool:
    """Take lanes at once; return whether all their steps were right."""
    states: list[str] = []

    def lane(host: str, names: list[str]) -> None:
        states.extend(one(name, host, ground, tool, report) for name in names)

    threads = [threading.Thread(target=lane, args=pair) for pair in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return all(state == "right" for state in states)


def one(name: str, host: str, ground: bed.Bed, tool: Tool, report: Report) -> str:
    """Take one step and write it down, whatever happens in it."""
    step = STEPS[name]
    record = Record(name, host, why=(step.take.__doc__ or "").strip())
    began = time.monotonic()
    if tool.deadline - began < step.needs:
        record.state = "no time"
    else:
        try:
            step.take(Run(host, record, tool, ground, report))
        except Exception:  # noqa: BLE001  a step that breaks must not take the others with it
            record.state, record.fault = "broken", traceback.format_exc()[-4000:]
    record.seconds = time.monotonic() - began
    record.settle()
    report.add(record)
    wrong = "; ".join(f"{c.what}: {c.seen}" for c in record.checks if not c.right)
    print(f"[{time.strftime('%T')}] {host} {name}: {record.state} in {record.seconds:.1f} s {wrong}"
          f"{record.fault[-600:]}", flush=True)  # fmt: skip
    return record.state


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
