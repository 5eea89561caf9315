"""The end of a command: at once, yet with all that was said, and after what is to be done at the exit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleetctl import __main__

SCRIPT = """
import atexit, sys
import fleetctl.cli.app as app
def run():
    atexit.register(lambda: print("closed", file=sys.stderr))
    sys.stdout.write("x" * 1_000_000)
    return 3
app.run = run
from fleetctl.__main__ import main
main()
"""


def test_all_output_and_the_exit_s_own_work_come_before_the_end(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | {"PYTHONUNBUFFERED": "", "HOME": str(tmp_path)},
        capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, len(done.stdout), done.stderr) == (3, 1_000_000, b"closed\n")


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    return codes


def test_a_command_that_left_no_code_ends_as_python_ends(ended: list[int]) -> None:
    __main__._leave([])
    assert ended == []


def test_output_that_cannot_be_written_is_left_to_python_to_tell(
    ended: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone:
        def flush(self) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Gone())
    __main__._leave([0])
    assert ended == []
