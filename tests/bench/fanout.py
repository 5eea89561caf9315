"""The inner loop of a deploy (one file by rename, four commands, their output) on many hosts."""

from __future__ import annotations

import functools
import hashlib
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.bench import harness, peers_at
from tests.bench.harness import CORES, Report, Sample, median
from tests.bench.run import Options
from tests.bench.sshd_fleet import Fleet, fleet

FAST = ("fleetctl", "ssh one-liner", "asyncssh", "fabric", "paramiko", "parallel-ssh")
SLOW = ("ssh default", "ssh master", "clush", "pyinfra", "ansible")
ANSIBLE_MOST = 50  # 200 would take minutes and say nothing new


def bench(options: Options) -> Report:
    """Measure every peer at each size, the slow ones once."""
    report = Report("fanout")
    if options.install:
        peers_at.install()
    wanted = [p for p in (*FAST, *SLOW) if not options.peers or p in (*options.peers, "fleetctl")]
    absent = {p: why for p in wanted if (why := peers_at.absent(p))}
    report.notes += [f"- {name}: not measured, {why}" for name, why in absent.items()]
    found: dict[int, dict[str, list[Sample]]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="fleetctl-bench-") as folder,
        fleet(Path(folder), max(options.n)) as made,
    ):
        for n in options.n:
            here = [p for p in wanted if p not in absent and (p != "ansible" or n <= ANSIBLE_MOST)]
            once = functools.partial(_once, made, n)
            rounds = options.rounds + 2 if n == 1 else options.rounds
            found[n] = harness.interleave([p for p in here if p in FAST or n == 1], rounds, once)
            found[n] |= harness.interleave([p for p in here if p in SLOW and n > 1], 1, once)
            _table(report, n, found[n])
    for n, samples in found.items():
        _goals(report, n, samples)
    report.data["samples"] = {
        n: {p: [asdict(s) for s in runs] for p, runs in by.items()} for n, by in found.items()
    }
    return report


def _once(made: Fleet, n: int, name: str) -> Sample:
    made.clean()
    digest = hashlib.sha256((made.folder / "unit.service").read_bytes()).hexdigest()

    def check(said: str) -> bool:
        there = sum((made.home(h) / "unit.service").exists() for h in made.names[:n])
        return said.count(digest) >= n and there == n

    peer = peers_at.deploy_loop(made, name, n)
    return harness.run_once(
        peer.argv, peer.env, server_cpu=made.cpu_seconds, check=check, memory=n >= 50
    )


def _table(report: Report, n: int, found: dict[str, list[Sample]]) -> None:
    rows = []
    for name, runs in sorted(found.items(), key=lambda item: median(item[1], "wall")):
        good = sum(s.ok for s in runs)
        rows.append([
            name, median(runs, "wall"), min(s.wall for s in runs), 1000 * median(runs, "cpu") / n,
            1000 * median(runs, "server") / n, median(runs, "memory") or None, f"{good}/{len(runs)}",
        ])  # fmt: skip
    head = [
        "peer",
        "wall s",
        "best s",
        "client CPU ms/host",
        "server CPU ms/host",
        "memory MiB",
        "right",
    ]
    report.table(f"{n} host{'s' * (n > 1)}", head, rows)


def _goals(report: Report, n: int, found: dict[str, list[Sample]]) -> None:
    good = {p: runs for p, runs in found.items() if all(s.ok for s in runs)}
    ours = good.get("fleetctl")

    def goal(text: str, limit: float, peer: str, what: str = "wall") -> None:
        value = harness.ratio(ours, good[peer], what) if ours and peer in good else None
        why = "" if value else "no run of it that was right"
        report.goal(f"N={n}: {text}", limit, value, peer, why)

    if n == 1:
        goal("whole command from cold, wall", 2.2, "ssh one-liner")
        for peer in ("asyncssh", "fabric", "paramiko", "parallel-ssh", "pyinfra", "ansible"):
            goal("whole command from cold, wall", 0.95, peer)
    if n >= 50:
        for peer, limit in (
            ("ssh one-liner", 0.9), ("asyncssh", 0.9), ("fabric", 0.65), ("pyinfra", 0.25),
            ("clush", 0.25), ("ssh master", 0.25),
        ):  # fmt: skip
            goal("wall", limit, peer)
        if n <= ANSIBLE_MOST:
            goal("wall", 0.05, "ansible")
        if ours:
            report.goal(f"N={n}: wall against the floor", 1.10, median(ours, "floor_ratio"),
                        f"(client + server CPU) / {CORES} cores")  # fmt: skip
    if n >= 200 and ours:
        goal("client CPU a host", 0.45, "ssh one-liner", "cpu")
        report.goal(f"N={n}: peak memory, MiB", 80, median(ours, "memory"))
