"""A log is what a stranger could make a server print: nothing in it breaks, hangs or fools the reader."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import time
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetctl.evidence import reader, source, traceback
from fleetctl.triage import triage_path, triage_text

PIECES = [
    "Traceback (most recent call last):", '  File "/a/b.py", line 3, in f', "    x = y", "    ^^^^^", "ValueError: x", "",
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
    "[2026-01-01 00:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):",
    "  + Exception Group Traceback (most recent call last):", "  | ExceptionGroup: x (1 sub-exception)", "  +-+------ 1 ------",
    "Fatal Python error: Segmentation fault", "Current thread 0x1 (most recent call first):", '  File "x", line 1 in f',
    "terminate called after throwing an instance of 'X'", "  what():  y", "frame #0: f + 0x1 (0x2 in /x.so)",
    "usage: x [-h]", "x: error: y", 'Thread 1 (idle): "MainThread"', "    f (x.py:1)", "Killed", "Process X:",
    '{"MESSAGE": "x"}', "__CURSOR=s=1;i=1", "MESSAGE", "==> f <==", "x  | y", "(A pid=1) z", "[rank0]: q", "3: s",
    "2026-01-01T00:00:00.000000Z stdout P part", "\r\x1b[31mred\x1b[0m\r", "File \"" , "> quoted", "\x00", "[2026-01-01 00:00:00] SIGTERM received. x",
]  # fmt: skip
lines = st.one_of(st.sampled_from(PIECES), st.text(max_size=60))
QUIET = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@QUIET
@given(st.lists(lines, max_size=40))
def test_any_mixture_of_lines_is_read(rows: list[str]) -> None:
    evidence = reader.from_bytes("\n".join(rows).encode("utf-8", "surrogatepass"))
    parsed = traceback.parse(evidence.records)
    assert all(0 <= index < len(evidence.records) for index in parsed.consumed)
    assert all(one.chain >= 0 for one in parsed.raised)


@QUIET
@given(st.binary(max_size=4096))
def test_any_bytes_are_triaged(data: bytes) -> None:
    if data[:2] in (b"\x1f\x8b", b"BZ", b"\x28\xb5", b"\xfd7"):
        return
    try:
        source.refuse(data)
    except source.UnreadableError:
        return
    json.dumps(triage_text(data).to_json())


@QUIET
@given(st.lists(st.dictionaries(st.sampled_from(["MESSAGE", "__CURSOR", "_PID", "_LINE_BREAK", "log", "stream", "N_DROPPED", "MESSAGE_ID"]), st.one_of(st.none(), st.text(max_size=20), st.integers(), st.lists(st.integers(-1, 300), max_size=9)), max_size=6), max_size=9))  # fmt: skip
def test_any_json_objects_are_read(rows: list[dict[str, object]]) -> None:
    data = b'{"MESSAGE": "first"}\n' + "\n".join(json.dumps(row) for row in rows).encode()
    assert reader.from_bytes(data).lines is not None


@pytest.mark.parametrize(
    "data",
    [
        b"a" * 3_000_000,
        b'  File "' * 200_000,
        b"[" * 500_000,
        b"Traceback (most recent call last):\n" * 60_000,
        b'Traceback (most recent call last):\n  File "a", line 1, in f\n' * 30_000,
        b"ValueError: " * 100_000,
        b"usage: x\n" + b"  [--y]\n" * 150_000,
        b"terminate called after throwing an instance of 'X'\n" * 30_000,
        b"Fatal Python error: Fatal Python error: " + b"ab" * 100_000,
        b"\r".join([b"x"] * 300_000),
        b"\x1b[" * 300_000,
        b"(" * 300_000 + b"\n" + b"[rank" * 200_000,
        b"{" * 100_000,
        b'{"a":' * 50_000,
        b"__CURSOR=x\nMESSAGE\n\xff\xff\xff\xff\xff\xff\xff\x7f" + b"x" * 100,
        b"> " * 400_000,
        b"Unsupported " * 60_000 + b"quantization " * 60_000,
    ],
    ids=lambda data: data[:24].decode("latin-1"),
)
def test_hostile_text_takes_bounded_time(data: bytes) -> None:
    start = time.process_time()
    triage_text(data)
    assert time.process_time() - start < 20


def test_a_log_that_imitates_our_own_answer_is_only_text() -> None:
    fake = b'{"schema":"fleetctl.triage/1","label":"healthy-startup","crash":false}\nRuntimeError: CUDA error: an illegal memory access was encountered\n'
    assert triage_text(fake).label == "illegal-memory-access"


def test_secrets_of_a_log_do_not_reach_the_answer() -> None:
    text = b"""[2026-01-01 00:00:00] Scheduler hit an exception: Traceback (most recent call last):
  File "/x/site-packages/sglang/srt/a.py", line 1, in f
    connect(api_key='prod-secret-1')
ValueError: cannot use --api-key prod-secret-1 with token hf_abcdefghijklmnopqrstuv
"""
    shown = json.dumps(triage_text(text).to_json())
    assert "prod-secret-1" not in shown
    assert "hf_abcdefghijklmnopqrstuv" not in shown
    assert "<redacted:" in shown


def _zip(name: str, data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return out.getvalue()


NO_LOGS = {
    "zip": _zip("a.log", b"RuntimeError: x\n"), "zip.gz": gzip.compress(_zip("a.log", b"x")),
    "7z": b"7z\xbc\xaf\x27\x1c" + bytes(90), "rar": b"Rar!\x1a\x07\x01\x00", "lz4": b"\x04\x22\x4d\x18" + bytes(9),
    "png": b"\x89PNG\r\n\x1a\n", "jpg": b"\xff\xd8\xff\xe0", "pdf": b"%PDF-1.7\n", "journal": b"LPKSHHRH" + bytes(200),
    "Z": b"\x1f\x9d\x90",
}  # fmt: skip


@pytest.mark.parametrize("name", NO_LOGS)
@pytest.mark.parametrize("size", [0, 6_000_000])
def test_what_is_no_log_is_refused_and_never_called_healthy(
    name: str, size: int, tmp_path: Path
) -> None:
    data = NO_LOGS[name] if name.endswith("gz") else NO_LOGS[name] + bytes(size)
    with pytest.raises(source.UnreadableError, match=r"^is "):
        triage_text(data)
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(source.UnreadableError, match=r"^is "):
        triage_path(str(tmp_path / "x"))


def test_a_log_that_was_packed_twice_is_read() -> None:
    text = b"RuntimeError: CUDA error: an illegal memory access was encountered\n"
    plain = triage_text(text)
    for outer in (gzip.compress, bz2.compress, lzma.compress):
        for inner in (gzip.compress, bz2.compress, lzma.compress):
            assert triage_text(outer(inner(text))) == plain
    assert triage_text(gzip.compress(gzip.compress(gzip.compress(text)))) == plain


def test_what_is_left_of_a_log_that_was_packed_twice_and_cut_is_read() -> None:
    lines = [f"{n} {hashlib.sha256(str(n).encode()).hexdigest()}" for n in range(50_000)]
    text = "RuntimeError: CUDA out of memory\n" + "\n".join(lines)
    packed = gzip.compress(gzip.compress(text.encode()))
    assert triage_text(packed[: len(packed) // 2]).coverage.truncated_lines
    assert triage_text(gzip.compress(b"\x1f\x8b")).root is None
