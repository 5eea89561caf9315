"""What the lab asks of this computer, and what it changes there."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.lab import needs


@pytest.mark.parametrize(("before", "after"), [("128\n", "1024"), ("8192\n", "8192\n")])
def test_the_limit_of_watches_is_raised_and_never_lowered(
    tmp_path: Path, before: str, after: str
) -> None:
    setting = tmp_path / "max_user_instances"
    setting.write_text(before)
    said: list[str] = []
    needs.room_for_watches(said.append, setting)
    assert setting.read_text() == after
    assert bool(said) == (before != after)


def test_a_computer_without_that_setting_is_left_alone(tmp_path: Path) -> None:
    needs.room_for_watches(print, tmp_path / "nothing")
