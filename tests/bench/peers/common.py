"""What the Python peers share: ``script TASK N`` with the fleet's folder in BENCH_FLEET."""

from __future__ import annotations

import os
import sys
from pathlib import Path

P = Path(os.environ["BENCH_FLEET"])
TASK, N = sys.argv[1], int(sys.argv[2])
WORKERS = min(N, 50)
HOSTS = [(h, int(p)) for h, p in (x.split() for x in (P / "hosts.txt").read_text().splitlines())][
    :N
]
KEY, KNOWN, UNIT = str(P / "keys/id"), str(P / "known_hosts"), str(P / "unit.service")
LOG = str(P / "remote/log20m")
COMMANDS = [
    "test -s ~/unit.service",
    "uname -r",
    "wc -c < ~/unit.service",
    "sha256sum ~/unit.service",
]
ONE = "cat > ~/.unit.tmp && mv ~/.unit.tmp ~/unit.service && " + " && ".join(COMMANDS)


def out(host: str) -> str:
    return str(P / "out" / f"{host}.log")


def finish(answers: list[object]) -> None:
    """Print what the hosts said and end at once, without the interpreter's tidying up."""
    bad = 0
    for answer in answers:
        if isinstance(answer, Exception):
            bad += 1
            print("error", repr(answer), file=sys.stderr)
        else:
            print(answer.decode() if isinstance(answer, bytes) else answer, end="")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(bool(bad))
