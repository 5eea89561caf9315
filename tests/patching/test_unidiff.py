"""Unified diffs: unique context or nothing, the file's own line ends, a map back to the original lines."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.remote import unidiff
from fleetctl.remote.instrument import InstrumentError, original_line

OLD = "import os\n\n\ndef f(x):\n    y = x\n    return y\n\n\ndef g(x):\n    return x\n"
NEW = OLD.replace("    y = x\n", "    if x is None:\n        x = 1\n    y = x\n")


def diff(old: str, new: str, path: str = "sglang/srt/a.py") -> str:
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{path}", f"b/{path}"
    )
    return "".join(x if x.endswith("\n") else x + "\n\\ No newline at end of file\n" for x in lines)


def applied(old: bytes, text: str) -> bytes:
    return unidiff.apply(old, unidiff.parse(text)[0].hunks)[0]


def test_a_hunk_moves_with_its_context() -> None:
    moved = "# a\n# b\n" + OLD
    assert applied(moved.encode(), diff(OLD, NEW)).decode() == "# a\n# b\n" + NEW


def test_line_ends_of_the_file_are_kept() -> None:
    old = OLD.replace("\n", "\r\n").encode()
    assert applied(old, diff(OLD, NEW)) == NEW.replace("\n", "\r\n").encode()


def test_a_final_newline_comes_and_goes_as_the_diff_says() -> None:
    assert applied(OLD.encode(), diff(OLD, OLD.rstrip("\n"))) == OLD.rstrip("\n").encode()
    assert applied(OLD.rstrip("\n").encode(), diff(OLD.rstrip("\n"), OLD)) == OLD.encode()


def test_the_path_is_that_of_the_package() -> None:
    for path in ("sglang/srt/a.py", "python/sglang/srt/a.py"):
        assert unidiff.parse(diff(OLD, NEW, path))[0].path == "sglang/srt/a.py"


def test_lines_are_mapped_back() -> None:
    _, line_map, found = unidiff.apply(OLD.encode(), unidiff.parse(diff(OLD, NEW))[0].hunks)
    assert [original_line(line_map, n) for n in range(1, 13)] == [
        1, 2, 3, 4, None, None, 5, 6, 7, 8, 9, 10,
    ]  # fmt: skip
    assert found == [2]


@pytest.mark.parametrize(
    ("old", "reference"),
    [
        (OLD.replace("y = x", "y = 2"), "context-not-found"),
        (OLD + OLD, "context-not-unique"),
        (NEW, "already-applied"),
    ],
)
def test_no_guessing(old: str, reference: str) -> None:
    with pytest.raises(InstrumentError) as caught:
        applied(old.encode(), diff(OLD, NEW))
    assert caught.value.reference == reference


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@@ -1 +1 @@\n-a\n+b\n",
        "--- a/x.py\n+++ b/x.py\n",
        diff(OLD, NEW, "../../etc/passwd.py"),
        diff(OLD, NEW, "/etc/x.py"),
        diff(OLD, NEW, "sglang/x.so"),
        "--- a/x.py\n+++ b/x.py\n@@ -1,9 +1,9 @@\n a\n",
        "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n?a\n",
        "--- a/x.py\n+++ b/x.py\n@@ -0,0 +1 @@\n+a\n",
        "diff --git a/x.py b/y.py\nrename from x.py\nrename to y.py\n",
    ],
)
def test_a_diff_that_is_none_or_leaves_the_package_is_refused(text: str) -> None:
    with pytest.raises(InstrumentError) as caught:
        unidiff.parse(text)
    assert caught.value.reference == "bad-diff"


LINES = st.lists(st.sampled_from(["a", "b", "c", "", "  d"]), min_size=1, max_size=12)


@settings(max_examples=200, deadline=None)
@given(LINES, LINES)
def test_what_is_applied_is_what_the_diff_was_made_of(left: list[str], right: list[str]) -> None:
    old = "".join(f"{i} {x}\n" for i, x in enumerate(left))
    new = "".join(f"{i} {x}\n" for i, x in enumerate(right))
    if old == new:
        return
    data, line_map, _ = unidiff.apply(old.encode(), unidiff.parse(diff(old, new))[0].hunks)
    assert data.decode() == new
    for number, line in enumerate(new.splitlines(), 1):
        original = original_line(line_map, number)
        if original is not None and original <= len(old.splitlines()):
            assert old.splitlines()[original - 1] == line
