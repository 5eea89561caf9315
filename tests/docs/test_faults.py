"""Each row of the table of faults is held by a test that is there and knows the row's reference."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import ROOT

PAGE = ROOT / "docs/reference/faults.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and "::" in line
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row[0])[:60])
def test_a_row_is_held_by_a_test(row: list[str]) -> None:
    fault, reference, code, _, place = row
    path, _, name = place.strip("|` ").partition("::")
    text = (ROOT / path).read_text(encoding="utf-8")
    assert f"def {name}(" in text, f"{fault}: {place}"
    for word in re.findall(r"`([a-z]+(?:-[a-z0-9]+)+)`", reference):
        assert word in text or word == "no-route", f"{fault}: {word} is not in {path}"
    assert code == "–" or re.findall(r"\d+", code), row


def test_the_table_is_read() -> None:
    assert len(ROWS) > 30
