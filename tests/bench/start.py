"""CPU of starting: --help and --version, beside what people compare with."""

from __future__ import annotations

import shutil
import sys
from dataclasses import asdict
from pathlib import Path

from tests.bench import harness, peers_at
from tests.bench.harness import Report, median
from tests.bench.run import Options

OWN = Path(sys.executable).parent


def bench(options: Options) -> Report:
    """Measure each program several times; the median CPU counts."""
    report = Report("start")
    if options.install:
        peers_at.install()
    theirs = peers_at.venv() / "bin"
    programs = {
        "python -c pass": [str(OWN / "python"), "-c", "pass"],
        "fleetctl --help": [str(OWN / "fleetctl"), "--help"],
        "fleetctl --version": [str(OWN / "fleetctl"), "--version"],
        "fab --version": [str(OWN / "fab"), "--version"],
        "ansible --version": [str(theirs / "ansible"), "--version"],
        "pyinfra --version": [str(theirs / "pyinfra"), "--version"],
        "clush --version": [shutil.which("clush") or "clush", "--version"],
    }
    there = {n: argv for n, argv in programs.items() if Path(argv[0]).exists()}
    report.notes += [f"- {n}: not measured, not installed" for n in programs if n not in there]
    found = harness.interleave(
        list(there), 3 if options.quick else 9, lambda name: harness.run_once(there[name])
    )
    rows = [
        [n, 1000 * median(runs, "cpu"), 1000 * median(runs, "wall")] for n, runs in found.items()
    ]
    report.table("median of 9", ["program", "CPU ms", "wall ms"], sorted(rows, key=lambda r: r[1]))
    for peer, limit in (("fab --version", 0.5), ("ansible --version", 0.25)):
        value = (
            median(found["fleetctl --help"], "cpu") / median(found[peer], "cpu")
            if peer in found
            else None
        )
        report.goal("CPU of --help", limit, value, peer, "" if value else "not installed")
    report.data["samples"] = {n: [asdict(s) for s in runs] for n, runs in found.items()}
    return report
