"""``make bench``: measures fleetctl beside its peers. One line a bench; tests/bench/README.md."""

from __future__ import annotations

import argparse
import compileall
import importlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import fleetctl
from tests.bench.harness import Report, machine


@dataclass(frozen=True)
class Bench:
    """Where a bench is (``module:function``) and what it answers."""

    place: str
    about: str


@dataclass(frozen=True)
class Options:
    """What the command line asks of every bench."""

    n: tuple[int, ...]
    rounds: int
    quick: bool
    install: bool
    peers: tuple[str, ...]


BENCHES: dict[str, Bench] = {
    "start": Bench("tests.bench.start:bench", "CPU of --help and --version beside other tools"),
    "wire": Bench("tests.bench.wire:bench", "login and warm exec in a running process"),
    "fanout": Bench("tests.bench.fanout:bench", "run --put on 1 to 200 hosts beside every peer"),
    "trips": Bench("tests.bench.trips:bench", "round trips, by a proxy that delays"),
    "deploy": Bench(
        "tests.bench.deploy:bench", "deploy to restart issued, crash line to terminal (needs a lab)"
    ),
    "fleet": Bench(
        "tests.bench.fleet:bench", "20 hosts deployed with all checks until all ready (needs a lab)"
    ),
    "patches": Bench(
        "tests.bench.patches:bench", "cost of an inserted check; push to 20 hosts (needs a lab)"
    ),
    "triage": Bench(
        "tests.bench.triage:bench", "1 GiB of log beside ripgrep; a small log beside bare imports"
    ),
    "logs": Bench("tests.bench.logs:bench", "fetching 20 MiB of log from 10 hosts"),
    "bisect": Bench(
        "tests.bench.bisect:bench", "the planner of bisect-flags beside other searches"
    ),
}


def main() -> int:
    """Run the named benches (default: all); return 1 when a goal was measured and missed."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="BENCH", help=", ".join(BENCHES))
    parser.add_argument("--list", action="store_true", help="say what each bench measures")
    parser.add_argument("--n", default="1,10,50", help="hosts, where a bench varies them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="few rounds, small inputs")
    parser.add_argument("--peers", default="", help="only these peers")
    parser.add_argument(
        "--install", action="store_true", help="make the venv of Python peers (says its size first)"
    )
    parser.add_argument(
        "--first", action="store_true", help="go before other programs of a busy machine (root)"
    )
    said = parser.parse_args()
    if said.list:
        for name, one in BENCHES.items():
            print(f"{name:10} {one.about}")
        return 0
    if unknown := [n for n in said.names if n not in BENCHES]:
        parser.error(f"no bench named {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    options = Options(
        n=tuple(int(n) for n in said.n.split(",")),
        rounds=1 if said.quick else said.rounds,
        quick=said.quick,
        install=said.install,
        peers=tuple(p for p in said.peers.split(",") if p),
    )
    if said.first:
        _go_first()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are stopped
    # As an installation has it, and all peers: pip compiles, a checkout may be told not to (python(1), -B).
    compileall.compile_dir(str(Path(fleetctl.__file__).parent), quiet=1)
    print(" ".join(f"{k}={v}" for k, v in machine().items()), flush=True)
    missed = 0
    for name in said.names or BENCHES:
        module, _, function = BENCHES[name].place.partition(":")
        began = time.monotonic()
        report: Report = getattr(importlib.import_module(module), function)(options)
        print(
            f"\n{report.text()}\n\n({time.monotonic() - began:.0f} s, {report.save()})", flush=True
        )
        missed += sum(g.verdict == "FAIL" for g in report.goals)
    return 1 if missed else 0


def _go_first() -> None:
    """Go before all other programs, with the servers and the peers: sched(7), SCHED_RR.

    A nice value would count among our own processes alone: each daemon gets an autogroup of its own.
    The kernel leaves the others a twentieth of each second.
    """
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


if __name__ == "__main__":
    sys.exit(main())
