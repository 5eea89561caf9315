"""The reference of commands is the program's own."""

from __future__ import annotations

from tests.docs.reference import PAGE, page


def test_the_reference_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.docs.reference"
