"""Where the processes of a hanging service stand: a py-spy dump of each that runs Python.

py-spy reads another process's memory: it needs root, or the same user and a ptrace_scope that lets it.
"""

from __future__ import annotations

import os
import time
from typing import Iterable, List, Tuple

from fleetctl.remote import procs, shell

EACH = 8.0  # seconds for one process; py-spy needs under one
AT_ONCE = 4
MOST = 32  # processes
LIMIT = 1 << 20  # bytes of one dump


def find(pids: Iterable[int]) -> str:
    """Return the path of py-spy, "" where there is none: beside the service's own Python, or on the PATH."""
    for pid in pids:
        program = procs.read("/proc/%d/cmdline" % pid).partition("\0")[0]
        beside = os.path.join(os.path.dirname(program), "py-spy")
        if program.startswith("/") and os.access(beside, os.X_OK):
            return beside
    return shell.which("py-spy")


def of_python(pids: Iterable[int]) -> list[int]:
    """Return those of the processes that run Python."""
    return [pid for pid in pids if os.path.basename(_program(pid)).startswith("python")]


def _program(pid: int) -> str:
    try:
        return os.readlink("/proc/%d/exe" % pid)
    except OSError:
        return ""


def dump(pids: Iterable[int], seconds: float) -> Tuple[str, List[str]]:
    """Return the stacks of the processes, and what went wrong on the way; no stacks at all is ""."""
    wanted = of_python(pids)[:MOST]
    if not wanted:
        return "", ["no stacks: no process of it runs Python"]
    tool = find(wanted)
    if not tool:
        return "", ["no stacks: py-spy is neither beside the service's Python nor on the PATH"]
    from concurrent.futures import ThreadPoolExecutor  # only for a hang: 8 ms to import

    end = time.monotonic() + seconds
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        found = list(pool.map(lambda pid: _one(tool, pid, end), wanted))
    texts = [text for text, _ in found if text]
    wrong = ["no stacks of process %d: %s" % (p, w) for p, (_, w) in zip(wanted, found) if w]
    return "\n".join(texts), wrong


def _one(tool: str, pid: int, end: float) -> Tuple[str, str]:
    said = ["the time for stacks was over"]
    # py-spy stops a process to look at it; one that is stopped already it only reads without.
    for option in ((), ("--nonblocking",)):
        left = min(EACH, end - time.monotonic())
        if left <= 0:
            break
        done = shell.run((tool, "dump", "--pid", str(pid), *option), timeout=left)
        if done.rc == 0 and done.out.strip():
            return done.out[:LIMIT], ""
        said = (done.err or done.out).strip().splitlines()
        said = said or ["py-spy ended with status %d" % done.rc]
    return "", said[0][:200]
