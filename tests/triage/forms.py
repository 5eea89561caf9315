"""The same log in every form that people hand in. Each wrapper takes plain text and returns bytes."""

from __future__ import annotations

import bz2
import gzip
import html
import json
import lzma
import textwrap
from collections.abc import Callable, Iterator

import zstandard

START = 1_795_964_444


def _stamps(text: str) -> Iterator[tuple[int, str]]:
    """Yield a second for each line, slowly rising: a logger takes many lines at once."""
    for number, line in enumerate(text.split("\n")):
        yield START + number // 20, line


def _clock(second: int) -> str:
    day, rest = divmod(second - START, 86400)
    return f"{day + 5:02d} {rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def _lines(form: str) -> Callable[[str], bytes]:
    def wrap(text: str) -> bytes:
        rows = []
        for number, (second, line) in enumerate(_stamps(text)):
            day, clock = _clock(second).split(" ")
            rows.append(form.format(day=day, clock=clock, us=f"{number % 1000000:06d}", line=line))
        return ("\n".join(rows) + "\n").encode()

    return wrap


def journal_json(text: str, *, as_bytes: bool = False) -> bytes:
    """journalctl -o json, one object a line; some messages as arrays of bytes, as journalctl writes them."""
    rows = []
    for number, (second, line) in enumerate(_stamps(text)):
        message: object = list(line.encode()) if as_bytes and line else line
        rows.append(
            json.dumps(
                {
                    "__CURSOR": f"s=fb104b1a;i={number + 4096:x};b=1cce;m={number:x};t=6616;x=30d3",
                    "__REALTIME_TIMESTAMP": str(second * 1_000_000),
                    "_PID": "4242",
                    "_HOSTNAME": "gpu1",
                    "SYSLOG_IDENTIFIER": "python3",
                    "_TRANSPORT": "stdout",
                    "MESSAGE": message,
                }
            )
        )
    return ("\n".join(rows) + "\n").encode()


def journal_export(text: str) -> bytes:
    """journalctl -o export, with the binary spelling for what is not plain text."""
    out = b""
    for number, (second, line) in enumerate(_stamps(text)):
        raw = line.encode()
        out += f"__CURSOR=s=fb104b1a;i={number + 4096:x};b=1c\n".encode()
        out += f"__REALTIME_TIMESTAMP={second * 1_000_000}\n_PID=4242\n_TRANSPORT=stdout\n".encode()
        if line.isprintable():
            out += b"MESSAGE=" + raw + b"\n\n"
        else:
            out += b"MESSAGE\n" + len(raw).to_bytes(8, "little") + raw + b"\n\n"
    return out


def newest_first(text: str) -> bytes:
    """A viewer's export: a time on each line, newest line on top."""
    rows = _lines("2026-11-{day}T{clock}.{us}Z {line}")(text).decode().rstrip("\n").split("\n")
    return ("\n".join(reversed(rows)) + "\n").encode()


def docker_json(text: str) -> bytes:
    """Docker's own files: one JSON object for each piece of output."""
    rows = (
        json.dumps(
            {"log": line + "\n", "stream": "stderr", "time": f"2026-11-05T00:00:00.{n:09d}Z"}
        )
        for n, line in enumerate(text.split("\n"))
    )
    return ("\n".join(rows) + "\n").encode()


def fluent_bit(text: str) -> bytes:
    """A collector of containers' logs: as Docker's files, without the newlines, with the pod's name."""
    rows = (
        json.dumps(
            {
                "@timestamp": f"2026-11-05T00:00:00.{n:09d}Z",
                "log": line,
                "stream": "stderr",
                "kubernetes": {"pod_name": "sglang-0", "host": "gpu1"},
            }
        )
        for n, line in enumerate(text.split("\n"))
    )
    return ("\n".join(rows) + "\n").encode()


def nested_json(text: str) -> bytes:
    """A cloud's log service: the program's fields one level down."""
    rows = (
        json.dumps(
            {
                "insertId": f"a{n}",
                "jsonPayload": {"message": line},
                "timestamp": f"2026-11-05T00:00:00.{n:09d}Z",
            }
        )
        for n, line in enumerate(text.split("\n"))
    )
    return ("\n".join(rows) + "\n").encode()


def cri_partial(text: str) -> bytes:
    """CRI logs, where the runtime cuts long lines into parts."""
    rows = []
    for number, line in enumerate(text.split("\n")):
        pieces = textwrap.wrap(line, 8000, drop_whitespace=False, replace_whitespace=False) or [""]
        rows += [f"2026-11-05T00:00:00.{number:09d}Z stderr P {piece}" for piece in pieces[:-1]]
        rows.append(f"2026-11-05T00:00:00.{number:09d}Z stderr F {pieces[-1]}")
    return ("\n".join(rows) + "\n").encode()


def coloured(text: str) -> bytes:
    """Terminal colours around every line."""
    return "\n".join(f"\x1b[32m{line}\x1b[0m" for line in text.split("\n")).encode()


def bars(text: str) -> bytes:
    """Progress bars that redraw with carriage returns between the lines."""
    bar = "Loading: 10%|#  | 1/9\rLoading: 20%|## | 2/9\r"
    return "\n".join(
        bar + line if n % 7 == 3 and line[:1] == "[" else line
        for n, line in enumerate(text.split("\n"))
    ).encode()


def no_indent(text: str) -> bytes:
    """A chat window that ate the white space at the start of lines."""
    return "\n".join(line.lstrip() for line in text.split("\n")).encode()


def spoiled(text: str) -> bytes:
    """Bytes that are no UTF-8, NULs, and a very long line on top."""
    return b"\xff\xfe\x80 caf\xe9\x00\n" + b"x" * 120_000 + b"\n" + text.encode()


def issue(text: str) -> bytes:
    """A bug report around the log: headings, fences, the command, and versions below it."""
    above = "### Describe the bug\n\nAfter some hours the server crashed:\n\n```bash\n"
    below = (
        "\n```\n\n### Reproduction\n\npython3 -m sglang.launch_server --model-path /m --tp 8\n\n"
        "### Environment\n\nPython: 3.12.12 (main, Oct 10 2025) [GCC 11.4.0]\nCUDA available: True\n"
        "NVCC: Cuda compilation tools, release 12.9, V12.9.86\nsglang: 0.5.6\n\nLegend:\n\n  X    = Self\n"
    )
    return (above + text + below).encode()


def table(text: str) -> bytes:
    """A log service's table: a head, and each line in the last of its quoted columns."""
    rows = (
        f'"2026-11-05T00:00:00Z","gpu1","{line.replace(chr(34), chr(34) * 2)}"'
        for line in text.split("\n")
    )
    return ('"Date","Host","Message"\n' + "\n".join(rows) + "\n").encode()


def numbered(text: str) -> bytes:
    """A viewer that numbers lines."""
    return "\n".join(f"{n:6d}\t{line}" for n, line in enumerate(text.split("\n"), 1)).encode()


TEXT_FORMS: dict[str, Callable[[str], bytes]] = {
    "journal-short": _lines("Nov {day} {clock} gpu1 python3[4242]: {line}"),
    "journal-short-precise": _lines("Nov {day} {clock}.{us} gpu1 python3[4242]: {line}"),
    "journal-short-iso": _lines("2026-11-{day}T{clock}+0000 gpu1 python3[4242]: {line}"),
    "journal-short-full": _lines("Sun 2026-11-{day} {clock} UTC gpu1 python3[4242]: {line}"),
    "journal-json": journal_json,
    "journal-json-bytes": lambda text: journal_json(text, as_bytes=True),
    "journal-export": journal_export,
    "compose": _lines("sglang-1  | {line}"),
    "docker-time": _lines("2026-11-{day}T{clock}.{us}000Z {line}"),
    "docker-json": docker_json,
    "fluent-bit": fluent_bit,
    "nested-json": nested_json,
    "cri": cri_partial,
    "kubectl": _lines("[pod/sglang-0/server] {line}"),
    "ray": _lines("(SGLangEngine pid=4242, ip=10.0.0.9) {line}"),
    "ray-colour": _lines("\x1b[36m(SGLangEngine pid=4242)\x1b[0m {line}"),
    "journal-compose": _lines("Nov {day} {clock} gpu1 docker[99]: sglang-1  | {line}"),
    "python-logger": _lines("2026-11-{day} {clock},123 - __main__ - INFO - {line}"),
    "newest-first": newest_first,
    "crlf": lambda text: text.replace("\n", "\r\n").encode(),
    "coloured": coloured,
    "bars": bars,
    "no-indent": no_indent,
    "issue": issue,
    "table": table,
    "numbered": numbered,
    "page-source": lambda text: html.escape(text).encode(),
    "task-name": _lines("(task, head=gpu1) {line}"),
    "tabs": lambda text: "\n".join(f"\t{line}" for line in text.split("\n")).encode(),
    "double-spaced": lambda text: text.replace("\n", "\n\n").encode(),
    "spoiled": spoiled,
    "utf-16": lambda text: text.encode("utf-16"),
}
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zst": lambda data: zstandard.ZstdCompressor().compress(data),
}
