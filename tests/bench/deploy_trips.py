"""A deploy to a systemd host behind a proxy that delays: to the restart, and until it is ready."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.trips import forwarded, free_port

if TYPE_CHECKING:
    from fleetctl.lab.box import Box
    from tests.lab.deploying import Operator


def seconds(delay: float, rounds: int) -> dict[str, float]:
    """Return the best time of the restart and of the end, the first deploy (which finds no server) left out."""
    found: dict[str, list[float]] = {"restart issued": [], "ready": []}
    with _host() as box, tempfile.TemporaryDirectory(prefix="fleetctl-bench-") as folder:
        port = free_port()
        with forwarded(port, f"{box.address}:22", delay):
            ops = _operator(box, Path(folder), port)
            for number in range(rounds + 1):
                taken = _once(ops, number)
                for to, spent in taken.items():
                    found[to] += [spent] if number else []
    return {to: min(spent) for to, spent in found.items()}


@contextlib.contextmanager
def _host() -> Iterator[Box]:
    from fleetctl.lab import bed, spec
    from fleetctl.lab.box import Box

    name = f"bench{os.getpid()}"
    try:
        bed.up(name, [spec.parse_host("lab-01=replay")], owner=os.getpid(), say=print)
        box = Box(name, "lab-01")
        box.scenario("serves", speed=0)
        yield box
    finally:
        bed.down(name)


def _operator(box: Box, folder: Path, port: str) -> Operator:
    from tests.lab.deploying import Operator

    lines = Path(str(box.target().known_hosts)).read_text().splitlines()
    mine = [line.split(None, 1)[1] for line in lines if box.address in line.split()[0].split(",")]
    known = folder / "known_hosts"
    known.write_text("".join(f"[127.0.0.1]:{port} {key}\n" for key in mine))
    ops = Operator(folder)
    ops.add(box, address="127.0.0.1", port=int(port), known_hosts=str(known))
    return ops


def _once(ops: Operator, number: int) -> dict[str, float]:
    """Deploy another configuration; return when what was told."""
    words = ["deploy", "lab-01", "-p", "tp8", "--json", "--yes"]
    began = time.monotonic()
    process = ops.popen(*words, f"--set=max-running-requests={200 + number}")
    assert process.stdout is not None
    told = {}
    for line in process.stdout:
        event = json.loads(line)
        if event.get("do") == "restart-unit" and event["state"] == "issued":
            told["restart issued"] = time.monotonic() - began
        if event["event"] == "result":
            assert event["state"] == "ready", event
            told["ready"] = time.monotonic() - began
    process.communicate()
    return told
