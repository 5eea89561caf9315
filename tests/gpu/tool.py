"""Runs fleetctl as people do, keeps all it said, and when each line of it came."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Done:
    """One command that ended; ``lines`` are standard output with the time of each."""

    words: tuple[str, ...]
    rc: int
    seconds: float
    lines: list[tuple[float, str]]
    err: str
    timed_out: bool = False

    @property
    def out(self) -> str:
        """Return standard output."""
        return "".join(line for _, line in self.lines)

    def objects(self, event: str = "") -> list[tuple[float, dict[str, Any]]]:
        """Return the JSON lines (of one event) with their times."""
        found = [(at, json.loads(line)) for at, line in self.lines if line.startswith("{")]
        return [(at, o) for at, o in found if not event or o.get("event") == event]

    @property
    def last(self) -> dict[str, Any]:
        """Return the last JSON line, {} when there is none."""
        return self.objects()[-1][1] if self.objects() else {}


@dataclass
class Tool:
    """fleetctl with the site and the state of this run."""

    command: Sequence[str]
    site: Path
    home: Path
    kept: Path
    deadline: float
    number: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, *words: str, limit: float = 60.0) -> Done:
        """Run a command for at most ``limit`` seconds, and never past the deadline of the run."""
        with self.lock:
            self.number += 1
            name = f"{self.number:03d}-{words[0]}"
        env = os.environ | {
            "FLEETCTL_SITE": str(self.site),
            "FLEETCTL_HOME": str(self.home),
            "PYTHONUNBUFFERED": "1",
        }
        began = time.monotonic()
        limit = max(1.0, min(limit, self.deadline - began))
        process = subprocess.Popen(
            [*self.command, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env=env, start_new_session=True,
        )  # fmt: skip
        late = threading.Event()

        def stop() -> None:
            late.set()
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(5.0)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(limit, stop)
        timer.daemon = True
        timer.start()
        errors: list[str] = []
        drain = threading.Thread(target=lambda: errors.extend(process.stderr or ()), daemon=True)
        drain.start()
        lines = [(time.time(), line) for line in process.stdout or ()]
        rc = process.wait()
        timer.cancel()
        drain.join(5.0)
        done = Done(words, rc, time.monotonic() - began, lines, "".join(errors), late.is_set())
        self._keep(name, done)
        return done

    def _keep(self, name: str, done: Done) -> None:
        self.kept.mkdir(parents=True, exist_ok=True)
        head = f"$ fleetctl {shlex.join(done.words)}\n# exit {done.rc} after {done.seconds:.2f} s\n"
        body = "".join(f"{at:.3f} {line}" for at, line in done.lines)
        (self.kept / f"{name}.txt").write_text(
            head + body + ("\n# stderr\n" + done.err if done.err else "")
        )
