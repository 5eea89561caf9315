"""Recorded start-ups: who printed what when, and how it reads with other ranks, another model, another port."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

LONGEST_PAUSE = 60.0


class Line(NamedTuple):
    """One line of a recording. ``process`` is main, scheduler or detokenizer; ``pause`` is before it."""

    pause: float
    process: str
    text: str


class Recording(NamedTuple):
    """A start-up as it was recorded, and the remarks at its head (``recorded:`` or ``composed-from:``)."""

    name: str
    remarks: tuple[str, ...]
    lines: tuple[Line, ...]


def read(path: Path) -> Recording:
    """Return the recording of a file (columns: seconds, process, text)."""
    remarks, lines, before = [], [], 0.0
    for row in path.read_text(encoding="utf-8").splitlines():
        if row.startswith("# "):
            remarks.append(row[2:])
            continue
        seconds, process, text = row.split("\t", 2)
        pause = min(max(0.0, float(seconds) - before), LONGEST_PAUSE)
        lines.append(Line(pause, process, text))
        before = float(seconds)
    return Recording(path.stem, tuple(remarks), tuple(lines))


def read_text(path: Path) -> tuple[tuple[str, ...], list[str]]:
    """Return the remarks and the lines of a log to print."""
    rows = path.read_text(encoding="utf-8").splitlines()
    remarks = tuple(row[2:] for row in rows if row.startswith("# "))
    return remarks, [row for row in rows if not row.startswith("# ")]


def choose(folder: Path, version: str, device: str | None) -> Path:
    """Return the start-up of a release: on a GPU where one was recorded and the device is not the CPU."""
    gpu = folder / f"start-{version}-gpu.txt"
    return gpu if device != "cpu" and gpu.exists() else folder / f"start-{version}-cpu.txt"


def prefixes(flags: dict[str, Any], node: int = 0) -> Iterator[str]:
    """Yield what each rank of this node has after the time in its lines: `` TP0 EP0`` and so on."""
    tp, pp = int(flags.get("tp-size") or 1), int(flags.get("pp-size") or 1)
    ep, dp = int(flags.get("ep-size") or 1), int(flags.get("dp-size") or 1)
    nodes = int(flags.get("nnodes") or 1)
    attention_dp = bool(flags.get("enable-dp-attention")) and dp > 1
    here = range(tp * pp * node // nodes, tp * pp * (node + 1) // nodes)
    for number in here:
        stage, rank = divmod(number, tp)
        text = f" DP{rank * dp // tp}" if attention_dp else ""
        text += f" PP{stage}" if pp > 1 else ""
        text += f" TP{rank}" if tp > 1 else ""
        text += f" EP{rank * ep // tp}" if ep > 1 else ""
        yield text


def retold(text: str, flags: dict[str, Any], given: dict[str, Any], pid: int) -> str:
    """Return a recorded line as this start would print it: its model, port, process and arguments."""
    if "server_args=" in text:
        return server_args(text, given)
    if "Uvicorn running" in text:
        address = f"http://{flags.get('host') or '127.0.0.1'}:{flags.get('port')}"
        return re.sub(r"http://\S+", address, text)
    text = re.sub(r"Started server process \[\d+\]", f"Started server process [{pid}]", text)
    return text.replace("/models/tiny-llama", str(flags.get("model-path")))


def server_args(text: str, given: dict[str, Any]) -> str:
    """Return the recorded ``server_args=`` line with the values of this start."""
    as_dict = "server_args={" in text
    for name, value in given.items():
        key = name.replace("-", "_")
        head, stop = (
            (f"'{key}': ", r"(?=, '\w+': |}$)") if as_dict else (f"{key}=", r"(?=, \w+=|\)$)")
        )
        shown = "'<redacted>'" if as_dict and "key" in key and value else repr(value)
        text = re.sub(
            rf"(?<![\w]){re.escape(head)}.*?{stop}", lambda _, t=head + shown: t, text, count=1
        )
    return text
