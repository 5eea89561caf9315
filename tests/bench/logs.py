"""Fetching 20 MiB of log from each of 10 hosts: wall, CPU and the bytes on the wire."""

from __future__ import annotations

import functools
import json
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.bench import harness, peers_at
from tests.bench.harness import Report, Sample, median
from tests.bench.run import Options
from tests.bench.sshd_fleet import LOG_BYTES, Fleet, fleet

HOSTS = 10
NAMES = {
    "fleetctl": "fleetctl fetch", "ssh one-liner": "ssh cat", "ssh default": "scp",
    "clush": "clush --rcopy", "asyncssh": "asyncssh cat", "fabric": "fabric get",
    "paramiko": "paramiko sftp", "parallel-ssh": "parallel-ssh",
}  # fmt: skip


def bench(options: Options) -> Report:
    """Measure every peer, interleaved; sizes are checked."""
    report = Report("logs")
    wanted = [n for n in NAMES if not options.peers or n in (*options.peers, "fleetctl")]
    absent = {n: why for n in wanted if (why := peers_at.absent(n))}
    report.notes += [f"- {NAMES[n]}: not measured, {why}" for n, why in absent.items()]
    hosts = 2 if options.quick else HOSTS
    with (
        tempfile.TemporaryDirectory(prefix="fleetctl-bench-") as folder,
        fleet(Path(folder), hosts) as made,
    ):
        found = harness.interleave(
            [n for n in wanted if n not in absent],
            options.rounds,
            functools.partial(_once, made, hosts),
        )
        share = _wire_share(made, hosts)
    rows = [
        [
            NAMES[n],
            median(runs, "wall"),
            1000 * median(runs, "cpu") / hosts,
            1000 * median(runs, "server") / hosts,
        ]
        for n, runs in sorted(found.items(), key=lambda item: median(item[1], "wall"))
    ]
    report.table(
        f"20 MiB × {hosts} hosts",
        ["peer", "wall s", "client CPU ms/host", "server CPU ms/host"],
        rows,
    )
    for peer in ("ssh default", "fabric", "clush", "parallel-ssh"):
        value = harness.ratio(found["fleetctl"], found[peer]) if peer in found else None
        report.goal("wall", 0.45, value, NAMES[peer], "" if value else "not installed")
    report.goal("bytes on the wire against bytes on disk", 0.15, share)
    report.data["samples"] = {n: [asdict(s) for s in runs] for n, runs in found.items()}
    return report


def _once(made: Fleet, hosts: int, name: str) -> Sample:
    made.clean()

    def check(_: str) -> bool:
        files = [p for p in (made.folder / "out").rglob("*") if p.is_file()]
        return sum(p.stat().st_size for p in files) == hosts * LOG_BYTES

    peer = peers_at.logs(made, name, hosts)
    return harness.run_once(peer.argv, peer.env, server_cpu=made.cpu_seconds, check=check)


def _wire_share(made: Fleet, hosts: int) -> float | None:
    """Return what fleetctl itself says went over the wire, as a share of the files."""
    made.clean()
    peer = peers_at.logs(made, "fleetctl", hosts)
    sample = harness.run_once((*peer.argv, "--json"), peer.env)
    lines = [json.loads(x) for x in sample.tail.splitlines() if x.startswith('{"schema"')]
    return sum(x["wire_bytes"] for x in lines) / sum(x["bytes"] for x in lines) if lines else None
