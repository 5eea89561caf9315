"""Logs that are too long to hold are read in windows, and give the answer that the whole would give."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from fleetctl.evidence import source
from fleetctl.triage import big, limits, triage_path, triage_text
from tests.triage.score import SETS, Case, cases, judge

OPEN = [
    c
    for c in cases(SETS["open"])
    if c.want["crash"] and c.want["phase"] not in ("startup-args", "import")
]
LIFE = (
    "[2026-01-01 00:00:00 TP0] Decode batch. #running-req: 3, #token: 9120, token usage: 0.02, "
    "gen throughput (token/s): 141.20, #queue-req: 0\n"
)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make everything above 64 KiB a long log."""
    monkeypatch.setattr(limits, "WHOLE", 64 << 10)


def buried(case: Case) -> bytes:
    """The log after and before a megabyte of signs of life."""
    return LIFE.encode() * 6000 + case.path.read_bytes() + b"\n"


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("case", OPEN[::3], ids=lambda c: c.path.stem)
def test_a_root_in_the_middle_of_a_long_log_is_found_with_its_line(
    case: Case, tmp_path: Path
) -> None:
    path = tmp_path / "long.log"
    path.write_bytes(buried(case))
    found = triage_path(path)
    marks = judge(case, found)
    assert (marks["label"], marks["crash"], marks.get("root message", True)) == (True, True, True)
    if found.root is not None and case.message is not None:
        line = path.read_bytes().split(b"\n")[found.root.line - 1]
        assert found.root.message.split("\n")[0].split(": ")[0].encode() in line
    assert found.coverage.lines is None


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("case", OPEN[1::6], ids=lambda c: c.path.stem)
def test_a_stream_gives_the_same_as_a_file(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "long.log.gz"
    path.write_bytes(gzip.compress(buried(case)))
    packed, plain = triage_path(path), triage_text(buried(case))
    assert (packed.label, packed.root) == (plain.label, plain.root)
    assert judge(case, packed)["label"]


@pytest.mark.usefixtures("short")
def test_a_bomb_is_read_up_to_a_bound_and_said_to_be_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UNPACKED", 8 << 20)
    bomb = gzip.compress(b"\0" * (64 << 20))
    found = triage_text(bomb)
    assert (found.crash, found.label) == (False, "unknown")


def test_an_archive_that_breaks_off_keeps_what_came_before() -> None:
    data = (SETS["open"] / "logs/011.log").read_bytes() * 200
    packed = gzip.compress(data)
    found = triage_text(packed[: len(packed) // 2])
    assert found.label == "illegal-memory-access"


def test_what_is_no_archive_at_all_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(b"\x1f\x8b" + b"nonsense" * 9)
    with pytest.raises(source.UnreadableError, match="broken archive"):
        triage_path(path)


def test_windows_do_not_grow_with_the_number_of_hits() -> None:
    noise = b"[2026-01-01 00:00:00] ERROR: ValueError: one request was bad\n" * 400_000
    windows = big.of_stream(io.BytesIO(noise), limits.UNPACKED)
    assert sum(len(data) for _, data in windows.pieces) < 20 << 20
    assert windows.cut > 0
