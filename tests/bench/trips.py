"""Round trips: a proxy delays each direction; (seconds with delay - seconds without) / round-trip time."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench import harness, peers_at
from tests.bench.fanout import FAST
from tests.bench.harness import Report, Sample
from tests.bench.run import Options
from tests.bench.sshd_fleet import Fleet, fleet

ROUND_TRIP = 0.3  # seconds: large beside what a busy machine adds
LIMIT = 7.5
DEPLOY_LIMIT = 12
PROXY = str(Path(__file__).parent / "delay_proxy.py")


def bench(options: Options) -> Report:
    """Measure one host with and without delay, peers interleaved; the best run has least of other things."""
    report = Report("trips")
    names = [
        p
        for p in FAST
        if not peers_at.absent(p) and (not options.peers or p in (*options.peers, "fleetctl"))
    ]
    report.notes += [f"- {p}: not measured, {why}" for p in FAST if (why := peers_at.absent(p))]
    with (
        tempfile.TemporaryDirectory(prefix="fleetctl-bench-") as folder,
        fleet(Path(folder), 1) as made,
    ):
        walls = {}
        for delay in (0.0, ROUND_TRIP / 2):
            with _behind_proxy(made, delay):
                found = harness.interleave(names, options.rounds, lambda name: _once(made, name))
            walls[delay] = {
                n: min(s.wall for s in runs) for n, runs in found.items() if all(s.ok for s in runs)
            }
    near, far = walls[0.0], walls[ROUND_TRIP / 2]
    trips = {n: (far[n] - near[n]) / ROUND_TRIP for n in near if n in far}
    rows = [[n, trips[n], far[n]] for n in sorted(trips, key=lambda n: trips[n])]
    report.table("run --put on one host", ["peer", "round trips", "wall s at 300 ms"], rows)
    report.goal(
        "round trips of run --put",
        LIMIT,
        trips.get("fleetctl"),
        why="" if "fleetctl" in trips else "failed",
    )
    report.data["trips"] = trips
    _deploy(report, options)
    return report


def _deploy(report: Report, options: Options) -> None:
    """Measure a deploy on a systemd host, to the restart and to its end."""
    from fleetctl.lab import needs

    text = "round trips of a deploy, start of the command → ready"
    if why := needs.why_not():
        report.goal(text, DEPLOY_LIMIT, None, why=why)
        return
    from tests.bench import deploy_trips

    walls = {
        delay: deploy_trips.seconds(delay, 2 if options.quick else max(options.rounds, 3))
        for delay in (0.0, ROUND_TRIP / 2)
    }
    near, far = walls[0.0], walls[ROUND_TRIP / 2]
    found = {to: (far[to] - near[to]) / ROUND_TRIP for to in near}
    rows = [[to, found[to], near[to], far[to]] for to in found]
    head = ["to", "round trips", "wall s", "wall s at 300 ms"]
    report.table("deploy, best runs", head, rows)
    report.goal(text, DEPLOY_LIMIT, found["ready"])
    report.data["deploy"] = found


def _once(made: Fleet, name: str) -> Sample:
    made.clean()
    peer = peers_at.deploy_loop(made, name, 1)
    return harness.run_once(
        peer.argv, peer.env, check=lambda _: (made.home("h001") / "unit.service").exists()
    )


def free_port() -> str:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@contextlib.contextmanager
def _behind_proxy(made: Fleet, delay: float) -> Iterator[None]:
    """Put a delaying proxy where every client looks for the host."""
    port = free_port()
    here = str(made.port("h001"))
    files = [
        made.folder / n
        for n in (
            "hosts.txt",
            "known_hosts",
            "ssh_config",
            "ssh_config_fast",
            "ssh_config_cm",
            "site/hosts.yaml",
        )
    ]
    before = {f: f.read_text() for f in files}
    for file, text in before.items():
        file.write_text(text.replace(here, port))
    try:
        with forwarded(port, here, delay):
            yield
    finally:
        for file, text in before.items():
            file.write_text(text)


@contextlib.contextmanager
def forwarded(port: str, target: str, delay: float) -> Iterator[None]:
    """Forward a port to ``[host:]port``, each direction that many seconds later."""
    process = subprocess.Popen([sys.executable, PROXY, port, target, str(delay)])
    try:
        _wait(int(port))
        yield
    finally:
        process.terminate()
        process.wait()


def _wait(port: int) -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError("the proxy did not start")
