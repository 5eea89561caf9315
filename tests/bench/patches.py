"""Patches: what an inserted check costs a call, and how long a push to 20 hosts takes."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from fleetctl.patching import catalog, snippets
from tests.bench.harness import Report

if TYPE_CHECKING:
    from fleetctl.lab.box import Box
    from tests.bench.run import Options

CALL_GOAL = 1.0  # microseconds a call
PUSH_GOAL = 3.0  # seconds for 20 hosts
HOSTS = 20
PATCH = "none-in-foreach-copy"
VERSION = "0.5.12.post1"
UNIT = """\
[Service]
ExecStart=/opt/sglang/.venv/bin/python -c "import time; time.sleep(86400)"
"""


def bench(options: Options) -> Report:
    """Measure both."""
    report = Report("patches")
    _calls(report)
    _pushes(report, options)
    return report


# --- a call ---


class Tensor:
    """Has a type and is no None: all that a check looks at when nothing is wrong."""


def _calls(report: Report) -> None:
    rows = []
    worst = 0.0
    for pairs in (6, 12, 20):
        tensors = [Tensor() for _ in range(pairs)]
        cost = _cost(PATCH, "dsts, srcs", (tensors, list(tensors)))
        rows.append([PATCH, f"{pairs} pairs, none of them None", f"{cost:.3f}"])
        worst = max(worst, cost)
    batch = type("Batch", (), {"forward_mode": type("Mode", (), {"name": "DECODE"})()})()
    dump = _cost("forward-batch-dump", "self, forward_batch", (Tensor(), batch))
    rows.append(["forward-batch-dump", "between two lines", f"{dump:.3f}"])
    report.table("an inserted check", ["patch", "call", "µs"], rows)
    report.goal("a check on a good call ≤ 1 µs (20 pairs)", CALL_GOAL, worst)
    report.goal("a rate-limited dump ≤ 1 µs a call", CALL_GOAL, dump)
    report.data["calls"] = rows


def _cost(name: str, signature: str, arguments: tuple[Any, ...]) -> float:
    """Return microseconds of its thread that the block adds to an empty function: the best of twenty."""
    block = snippets.render(catalog.find(name, None), VERSION).edits[0][2]
    body = "".join(f"    {line}\n" for line in block.splitlines())
    space: dict[str, Any] = {}
    exec(f"def plain({signature}):\n    pass\ndef checked({signature}):\n{body}    pass\n", space)
    with tempfile.TemporaryFile() as sink:  # the dump's first line is not what is measured
        kept = os.dup(2)
        os.dup2(sink.fileno(), 2)
        space["checked"](*arguments)
        os.dup2(kept, 2)
        os.close(kept)
    count = 50_000
    names = space | {"arguments": arguments}
    best = {
        key: min(
            timeit.repeat(
                f"{key}(*arguments)", timer=time.thread_time, globals=names, number=count, repeat=20
            )
        )
        / count
        for key in ("plain", "checked")
    }
    return (best["checked"] - best["plain"]) * 1e6


# --- 20 hosts ---


def _pushes(report: Report, options: Options) -> None:
    from fleetctl.lab import bed, needs, spec
    from fleetctl.lab.box import Box

    why = needs.why_not()
    if why:
        report.goal("push to 20 hosts", PUSH_GOAL, None, why=why)
        return
    name, load = f"bench{os.getpid()}", os.getloadavg()[0]
    hosts = [f"lab-{n:02}" for n in range(1, HOSTS + 1)]
    try:
        specs = [spec.parse_host(f"{h}=sglang:{VERSION}") for h in hosts]
        bed.up(name, specs, owner=os.getpid(), say=print, timeout=120)
        boxes = [Box(name, h) for h in hosts]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(_prepare, boxes))
        first: list[float] = []
        again: list[float] = []
        reverts: list[float] = []
        for _ in range(3 if options.quick else max(options.rounds, 5)):
            with tempfile.TemporaryDirectory(prefix="fleetctl-bench-") as cache:
                for series in (first, again):
                    series.append(_push(boxes[0], cache, "push", PATCH, "--all"))
                    reverts.append(_push(boxes[0], cache, "revert", "--all"))
    finally:
        bed.down(name)
    report.table(
        f"{HOSTS} hosts on this one machine, load before {load:.1f}",
        ["command", "median s", "best s", "worst s"],
        [
            ["push, worked out on the first host", *_three(first)],
            ["push again, bytes from the cache", *_three(again)],
            ["revert", *_three(reverts)],
        ],
    )
    report.goal(f"push to {HOSTS} hosts ≤ 3 s (median)", PUSH_GOAL, statistics.median(first))
    report.data |= {"push_first": first, "push_again": again, "revert": reverts}


def _prepare(box: Box) -> None:
    box.console('printf "%s" "$1" > /etc/systemd/system/sglang-main.service', UNIT)
    box.console("systemctl daemon-reload")


def _push(box: Box, cache: str, *words: str) -> float:
    """Run one command on every host of the lab, make sure that each did it, and return its seconds."""
    env = {"FLEETCTL_SITE": str(box.lab.site), "FLEETCTL_HOME": cache, "XDG_CACHE_HOME": cache}
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "fleetctl", "patch", *words, "--json"],
        env=os.environ | env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    wall = time.perf_counter() - began
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if len(lines) != HOSTS or any(line["error"] for line in lines):
        raise SystemExit(f"patch {words[0]} failed: {done.stdout[-500:]}{done.stderr[-500:]}")
    return wall


def _three(values: list[float]) -> list[str]:
    return [f"{x:.2f}" for x in (statistics.median(values), min(values), max(values))]
