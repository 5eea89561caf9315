"""Every scanner finds the same lines, wherever slices and pieces are cut."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetctl.triage import backends, scan
from fleetctl.triage.patterns import any_digit, joined, refusals, without_captures

PATTERNS = (
    r"CUDA error: [a-z ]+",
    r"CUBLAS_STATUS_\w+",
    r"error 802",
    r"Xid \(PCI:[^)]*\): (\d+)",
    r"(?i)out of memory",
    r"^Traceback \(most recent call last\)",
    r"exit code -?[1-9]\d{0,2}$",
    r"'NoneType' object has no attribute '(?P<name>\w+)'",
    r"tp[^0-3] failed",
)
BACKENDS = ["hyperscan", "re2", "stdlib"]

WORDS = [
    "CUDA error: an illegal", "CUBLAS_STATUS_X", "error 802", "error 803", "Xid (PCI:0000:02:00): 79", "Out Of Memory", "out of memor",
    "Traceback (most recent call last)", "exit code -9", "exit code 0", "exit code 12345", "'NoneType' object has no attribute 'dtype'",
    "tp5 failed", "tp2 failed", "tpx failed", "Decode batch. #token: 17", "[2026-11-29 03:00:00 TP3]", "é", "\x00", "\r", "x" * 40, " ",
]  # fmt: skip
LINES = st.lists(st.lists(st.sampled_from(WORDS), max_size=4).map("".join), max_size=40)


def expected(text: bytes) -> list[tuple[int, int]]:
    """Return what a plain loop with ``re`` finds."""
    exact, at, spans = joined(PATTERNS), 0, []
    for line in text.split(b"\n"):
        if exact.search(line):
            spans.append((at, at + len(line)))
        at += len(line) + 1
    return spans


@pytest.mark.parametrize("backend", BACKENDS)
@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(lines=LINES, slice_=st.sampled_from([7, 64, 1 << 20]), end=st.sampled_from(["", "\n"]))
def test_all_scanners_find_what_a_plain_loop_finds(
    backend: str,
    lines: list[str],
    slice_: int,
    end: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scan, "SLICE", slice_)
    monkeypatch.setattr(scan, "AHEAD", 5)
    monkeypatch.setattr(backends, "PIECE", 50)
    text = ("\n".join(lines) + end).encode()
    path = tmp_path / "log"
    path.write_bytes(text)
    found = scan.scan(path, PATTERNS, backend=backend, count_lines=True, cache=tmp_path)
    assert [(h.start, h.end) for h in found.hits] == expected(text)
    for hit in found.hits:
        assert found.line_number(hit.start) == text[: hit.start].count(b"\n") + 1


def test_two_processes_find_what_one_finds(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(
        b"".join(
            b"line %d\n" % k + (b"error 802\n" if k % 5000 == 0 else b"") for k in range(400_000)
        )
    )
    one, two = (scan.scan(path, PATTERNS, processes=n, count_lines=True) for n in (1, 2))
    assert one.hits == two.hits
    assert len(one.hits) == 80
    assert (
        two.line_number(two.hits[-1].start) == one.line_number(one.hits[-1].start) == 395_001 + 80
    )


def test_lines_are_numbered_without_having_been_counted(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x\n" * 10 + b"error 802\n")
    found = scan.scan(path, PATTERNS)
    assert found.line_number(found.hits[0].start) == 11


def test_a_line_of_many_megabytes_is_cut_and_said_so(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"error 802\n" + b"x" * (5 << 20) + b" error 802\nerror 802\n")
    found = scan.scan(path, PATTERNS)
    assert found.cut_lines == 1
    assert [path.read_bytes()[h.start : h.end] for h in found.hits] == [b"error 802", b"error 802"]


def test_too_many_hits_keep_the_first_and_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "HIT_LIMIT", 10)
    path = tmp_path / "log"
    path.write_bytes(b"error 802\n" * 1000)
    found = scan.scan(path, PATTERNS)
    assert [h.start // 10 for h in found.hits] == [0, 1, 2, 3, 4, 995, 996, 997, 998, 999]
    assert found.dropped == 990


def test_an_empty_file_has_no_hits(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    assert scan.scan(tmp_path / "log", PATTERNS, processes=2).hits == ()


def test_a_damaged_cache_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"error 802\n")
    cache = tmp_path / "cache"
    scan.scan(path, PATTERNS, backend="hyperscan", cache=cache)
    (kept,) = cache.iterdir()
    kept.write_bytes(b"not a database")
    assert len(scan.scan(path, PATTERNS, backend="hyperscan", cache=cache).hits) == 1


def test_a_cache_that_cannot_be_written_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"error 802\n")
    assert (
        len(scan.scan(path, PATTERNS, backend="hyperscan", cache=path / "not-a-folder").hits) == 1
    )


def test_an_unknown_scanner_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="auto, hyperscan, re2 or stdlib"):
        scan.scan(tmp_path, PATTERNS, backend="grep")


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(?<=a)b", "look-around"), (r"a(?!b)", "look-around"), (r"(a)\1", "back-reference"), (r"(?P<x>a)(?P=x)", "back-reference"),
        (r"a*", "matches an empty line"), (r"(", "not a regular expression"), (r"a\Z", "absolute anchor"), (r"a++", "possessive"),
    ],
)  # fmt: skip
def test_a_pattern_that_not_all_scanners_run_is_refused(pattern: str, why: str) -> None:
    assert any(why in reason for reason in refusals(pattern))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_shipped_forms_are_accepted(pattern: str) -> None:
    assert refusals(pattern) == []


@pytest.mark.parametrize(
    ("pattern", "plain"),
    [
        (r"(a)[(](?:b)\(", r"(?:a)[(](?:b)\("),
        (r"(?P<n>a)", r"(?:a)"),
        (r"\\(a)", r"\\(?:a)"),
        (r"[]()]x", r"[]()]x"),
    ],
)
def test_captures_are_made_plain(pattern: str, plain: str) -> None:
    assert without_captures(pattern) == plain


@given(st.from_regex(joined(PATTERNS), fullmatch=True))
def test_the_digitless_form_finds_every_line_of_a_shape(line: bytes) -> None:
    shape = re.sub(rb"[0-9]", b"0", line)
    assert joined(any_digit(p) for p in PATTERNS).search(shape)
