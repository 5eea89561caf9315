"""Measuring: wall time, CPU of a whole process tree, peak memory; tables, goals, a JSON file."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import random
import resource
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "out"
CORES = len(os.sched_getaffinity(0))
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Sample:
    """One run of a program. Seconds and MiB; ``server`` is CPU of what it talked to.

    ``others`` is CPU that programs of no concern took from the machine meanwhile.
    """

    wall: float
    cpu: float
    server: float
    memory: float
    ok: bool
    tail: str = ""
    others: float = 0.0

    @property
    def floor_ratio(self) -> float:
        """Return the CPU time that the cores had for us, over what was needed: 1 is the best possible.

        On an otherwise idle machine that is wall / ((client CPU + server CPU) / cores).
        """
        return (CORES * self.wall - self.others) / (self.cpu + self.server)


@dataclass(frozen=True)
class Goal:
    """A number to be at or below. ``measured`` None: it could not be measured, ``why`` says so."""

    text: str
    limit: float
    measured: float | None
    peer: str = ""
    why: str = ""

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        return "pass" if self.measured <= self.limit else "FAIL"


@dataclass
class Report:
    """What a bench found: tables for people, goals, and the same as JSON."""

    name: str
    tables: list[tuple[str, list[str], list[list[str]]]] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def table(self, title: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        self.tables.append((title, list(head), [[_cell(c) for c in row] for row in rows]))

    def goal(
        self, text: str, limit: float, measured: float | None, peer: str = "", why: str = ""
    ) -> None:
        self.goals.append(Goal(text, limit, measured, peer, why))

    def text(self) -> str:
        """Return the report as Markdown."""
        parts = [f"## {self.name}"]
        for title, head, rows in self.tables:
            parts.append(f"### {title}\n\n{_markdown(head, rows)}")
        if self.goals:
            rows = [
                [
                    g.text,
                    _cell(g.measured),
                    f"≤ {_cell(g.limit)}",
                    g.peer,
                    g.verdict + (f" ({g.why})" if g.why else ""),
                ]
                for g in self.goals
            ]
            head = ["goal", "measured", "limit", "against", ""]
            parts.append(f"### Goals\n\n{_markdown(head, rows)}")
        parts += self.notes
        return "\n\n".join(parts)

    def save(self) -> Path:
        """Write ``out/<name>.json`` and return its path."""
        OUT.mkdir(exist_ok=True)
        path = OUT / f"{self.name}.json"
        goals = [asdict(g) | {"verdict": g.verdict} for g in self.goals]
        body = {
            "schema": "fleetctl.bench/1", "name": self.name, "at": datetime.now(UTC).isoformat(),
            "machine": machine(), "goals": goals, "notes": self.notes, **self.data,
        }  # fmt: skip
        path.write_text(json.dumps(body, indent=1) + "\n")
        return path


def machine() -> dict[str, Any]:
    """Return what the numbers were measured on."""
    model = next(
        (x.split(":", 1)[1].strip() for x in Path("/proc/cpuinfo").read_text().splitlines()
         if x.startswith("model name")), platform.machine(),
    )  # fmt: skip
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": model, "cores": CORES, "memory_gib": round(memory, 1), "kernel": platform.release(),
        "python": platform.python_version(), "load": [round(x, 2) for x in os.getloadavg()],
    }  # fmt: skip


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)) + " |"

    rule = "|" + "|".join("-" * (w + 2) for w in widths) + "|"
    return "\n".join([line(head), rule, *map(line, rows)])


def median(samples: Sequence[Sample], what: str) -> float:
    """Return the median of one field."""
    return float(statistics.median(getattr(s, what) for s in samples))


def ratio(ours: Sequence[Sample], theirs: Sequence[Sample], what: str = "wall") -> float:
    """Return the median over rounds of ours/theirs: both of a round met the same busy machine."""
    if len(ours) != len(theirs):
        return median(ours, what) / median(theirs, what)
    pairs = zip(ours, theirs, strict=True)
    return float(statistics.median(getattr(a, what) / getattr(b, what) for a, b in pairs))


def interleave(
    names: Sequence[str], rounds: int, once: Callable[[str], Sample]
) -> dict[str, list[Sample]]:
    """Run each name ``rounds`` times in random order within a round, so that a busy minute hits all."""
    found: dict[str, list[Sample]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in random.sample(list(names), len(names)):
            sample = once(name)
            if not sample.ok:
                print(f"  {name} failed: {sample.tail[-400:]}", flush=True)
            found[name].append(sample)
    return found


def run_once(
    argv: Sequence[str],
    env: Mapping[str, str] | None = None,
    *,
    server_cpu: Callable[[], float] = lambda: 0.0,
    check: Callable[[str], bool] = lambda _: True,
    memory: bool = False,
    timeout: float = 300.0,
) -> Sample:
    """Run a program to its end. Its CPU is that of all descendants, those that became daemons too."""
    before = set(descendants(os.getpid()))
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    served, used = server_cpu(), resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = _busy()
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
        )  # fmt: skip
        watch = _Memory(process.pid) if memory else None
        killer = threading.Timer(timeout, process.kill)
        killer.start()
        rc = process.wait()
        wall = time.perf_counter() - began
        busy = _busy() - busy
        killer.cancel()
        peak = watch.stop() if watch else 0.0
        _end_daemons(before)
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        time.sleep(0.1)  # the servers' last children
        output.seek(0)
        said = output.read().decode(errors="replace")
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    server = server_cpu() - served
    good = rc == 0 and check(said)
    return Sample(wall, cpu, server, peak, good, said[-1000:], max(busy - cpu - server, 0.0))


def _busy() -> float:
    """Return the seconds that all cores worked so far (proc(5), stat)."""
    fields = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


class _Memory:
    """Samples the proportional set size of a process tree."""

    def __init__(self, root: int) -> None:
        self._root, self._peak, self._stop = root, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.is_set():
            self._peak = max(self._peak, sum(map(_pss, [self._root, *descendants(self._root)])))
            self._stop.wait(0.25)  # a look takes 20 ms of CPU from whom is measured

    def stop(self) -> float:
        self._stop.set()
        self._thread.join()
        return self._peak / 1024


def _pss(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def descendants(root: int) -> list[int]:
    """Return the process ids below one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, open_ = [], [root]
    while open_:
        for child in children.get(open_.pop(), ()):
            found.append(child)
            open_.append(child)
    return found


def _end_daemons(before: set[int]) -> None:
    """End and reap what a measured program left running (ssh's ControlPersist masters)."""
    left = [p for p in descendants(os.getpid()) if p not in before]
    for pid in left:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + 5
    for pid in left:
        while time.monotonic() < end:
            try:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    break
            except ChildProcessError:
                break
            time.sleep(0.01)
