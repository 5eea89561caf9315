"""Triage: a log of one GiB beside ripgrep with 60 signatures, and a small log beside bare imports."""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.bench import harness
from tests.bench.harness import Report, Sample, median, ratio
from tests.bench.run import Options

OWN = Path(sys.executable).parent
SIGNATURES = Path(__file__).parent / "signatures.txt"
SMALL = 50_000
IMPORTS = "import typer, pydantic\nclass A(pydantic.BaseModel): x: int"
SHELL = ["sh", "-c", '"$0" "$@"; test $? -le 1']  # 1 says that there was a crash
CRASH = """\
[2026-11-29 12:00:00 TP3] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/venv/lib/python3.12/site-packages/sglang/srt/managers/scheduler.py", line 3160, in run_scheduler_process
    scheduler.event_loop_overlap()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.

"""


def bench(options: Options) -> Report:
    """Measure whole processes in random order; the ratio is of runs of the same round."""
    report = Report("triage")
    size = (64 << 20) if options.quick else (1 << 30)
    rounds = 2 if options.quick else options.rounds
    with tempfile.TemporaryDirectory(prefix="fleetctl-bench-") as folder:
        large, small = Path(folder) / "large.log", Path(folder) / "small.log"
        written(large, size)
        small.write_bytes(_head(large))
        own = str(OWN / "fleetctl")
        programs = {
            "triage, large": [*SHELL, own, "triage", "--json", str(large)],
            "ripgrep, large": ["rg", "-c", "-f", str(SIGNATURES), str(large)],
            "triage, 50 KB": [*SHELL, own, "triage", "--json", str(small)],
            "import typer, pydantic": [str(OWN / "python"), "-c", IMPORTS],
        }
        there = [n for n, argv in programs.items() if shutil.which(argv[0])]
        found = harness.interleave(there, rounds, lambda name: _once(programs[name]))
    rows = [
        [n, median(runs, "wall"), median(runs, "cpu"), median(runs, "memory")]
        for n, runs in found.items()
    ]
    report.table(f"median of {rounds}", ["program", "wall s", "CPU s", "peak MiB"], rows)
    _goals(report, found)
    report.data["bytes"] = size
    report.data["samples"] = {n: [asdict(s) for s in runs] for n, runs in found.items()}
    return report


def _goals(report: Report, found: dict[str, list[Sample]]) -> None:
    rg = found.get("ripgrep, large")
    against = ratio(found["triage, large"], rg) if rg else None
    missing = "" if rg else "ripgrep is not installed"
    report.goal("wall, large ≥ 2.0 × as fast", 0.5, against, "ripgrep", missing)
    report.goal("peak MiB, large", 200.0, median(found["triage, large"], "memory"))
    report.goal("wall s, 50 KB", 0.35, median(found["triage, 50 KB"], "wall"))
    bare = ratio(found["triage, 50 KB"], found["import typer, pydantic"])
    report.goal("wall, 50 KB", 2.0, bare, "import typer, pydantic")


def _once(argv: list[str]) -> Sample:
    return harness.run_once(argv, memory=True)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(SMALL)


def written(path: Path, size: int) -> None:
    """Write a log of eight busy ranks with forty crashes in it; the same for the same size."""
    draw = random.Random(7)
    every = max(1, size // 40)
    done = crashed = 0
    with path.open("w", encoding="utf-8") as file:
        while done < size:
            text = "".join(_line(draw, rank % 8) for rank in range(4096))
            if done >= crashed * every:
                text += CRASH
                crashed += 1
            done += file.write(text)


def _line(draw: random.Random, rank: int) -> str:
    what = draw.random()
    head = f"[2026-11-29 12:{draw.randrange(60):02d}:{draw.randrange(60):02d} TP{rank}]"
    if what < 0.9:
        return (
            f"{head} Decode batch. #running-req: {draw.randrange(64)}, #token: {draw.randrange(99999)}, "
            f"token usage: {draw.random():.2f}, cuda graph: True, "
            f"gen throughput (token/s): {draw.random() * 3000:.2f}, #queue-req: {draw.randrange(9)}, \n"
        )
    return f'{head} INFO:     10.1.2.3:{draw.randrange(60000)} - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
