"""Stacks of a hang: where py-spy is found, what it says of each process, and what it is not allowed.

The py-spy here is a stand-in: a shell script that says what the real one says.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.remote import shell, stacks

SAYS = """#!/bin/sh
# dump --pid N
case $3 in
{denied}) echo "Permission Denied: Try running again with elevated permissions" >&2; exit 1;;
esac
echo "Process $3: python -m sglang.launch_server"
echo "Thread $3 (idle): \\"MainThread\\""
echo "    recv (zmq/sugar/socket.py:989)"
"""


@pytest.fixture
def sleepers(tmp_path: Path) -> Iterator[list[int]]:
    """Two processes whose Python lies in a folder of its own, and one that is no Python."""
    python = tmp_path / "venv" / "bin" / "python3"
    python.parent.mkdir(parents=True)
    python.symlink_to(Path(sys.executable).resolve())
    code = "import sys, time; print(1, flush=True); time.sleep(60)"
    them = [
        subprocess.Popen([str(python), "-S", "-c", code], stdout=subprocess.PIPE) for _ in range(2)
    ]
    them.append(subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE))
    for one in them[:2]:
        assert one.stdout is not None
        one.stdout.readline()
    yield [one.pid for one in them]
    for one in them:
        one.kill()
        one.communicate()


def put(folder: Path, denied: object = "none") -> None:
    path = folder / "py-spy"
    path.write_text(SAYS.format(denied=denied))
    path.chmod(0o755)


def test_each_python_process_is_asked_where_it_stands(tmp_path: Path, sleepers: list[int]) -> None:
    put(tmp_path / "venv" / "bin")
    text, wrong = stacks.dump(sleepers, 10.0)
    assert [f"Process {pid}:" in text for pid in sleepers] == [True, True, False]
    assert "zmq/sugar/socket.py:989" in text
    assert wrong == []


def test_what_may_not_be_looked_at_is_named_and_the_rest_is_there(
    tmp_path: Path, sleepers: list[int]
) -> None:
    put(tmp_path / "venv" / "bin", denied=sleepers[0])
    text, wrong = stacks.dump(sleepers, 10.0)
    assert f"Process {sleepers[1]}:" in text
    assert len(wrong) == 1
    assert wrong[0].startswith(f"no stacks of process {sleepers[0]}: Permission Denied")


def test_without_py_spy_it_says_where_it_looked(
    sleepers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(shell.ENV, "PATH", "/nowhere")
    assert stacks.dump(sleepers, 10.0) == (
        "",
        ["no stacks: py-spy is neither beside the service's Python nor on the PATH"],
    )


def test_a_service_that_runs_no_python_has_none(sleepers: list[int]) -> None:
    assert stacks.dump(sleepers[2:], 10.0) == ("", ["no stacks: no process of it runs Python"])


def test_no_more_time_is_taken_than_there_is(tmp_path: Path, sleepers: list[int]) -> None:
    put(tmp_path / "venv" / "bin")
    text, wrong = stacks.dump(sleepers[:2], 0.0)
    assert text == ""
    assert [note.rpartition(": ")[2] for note in wrong] == ["the time for stacks was over"] * 2
