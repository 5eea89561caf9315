"""The shell that waits for the next command: it runs what a new session would run, or nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.transport import connect
from tests.transport.test_contract import spare_shell

Start = Callable[..., Any]


@pytest.fixture
def made(sshd: Start) -> Iterator[Any]:
    connection = connect(sshd().host())
    yield connection
    connection.close()


def ended(process: int) -> bool:
    end = time.monotonic() + 10
    while Path(f"/proc/{process}").exists():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_the_next_command_is_the_process_that_waited(made: Any) -> None:
    waits = spare_shell(made)
    assert made.exec("echo $$").stdout == b"%d\n" % waits
    assert spare_shell(made) != waits


def test_an_opened_command_takes_it_as_well(made: Any) -> None:
    waits = spare_shell(made)
    channel = made.open("echo $$; read line; echo got $line")
    assert channel.recv(10) == b"%d\n" % waits
    channel.send(b"it\n")
    assert channel.recv(10) == b"got it\n"
    channel.close()


@pytest.mark.parametrize(
    "command",
    ["", "-x", "+e", "# nothing", "  echo ' a  b '", "echo a\\\\b \\", "if", "echo $c$l", "cat", "echo é\r"],
)  # fmt: skip
def test_a_command_means_the_same_as_in_a_session_of_its_own(made: Any, command: str) -> None:
    alone = made.exec(command, b"in\nput")
    spare_shell(made)
    spared = made.exec(command, b"in\nput")
    assert (spared.rc, spared.stdout, spared.stderr) == (alone.rc, alone.stdout, alone.stderr)


@pytest.mark.parametrize("command", ["echo a\necho b", f"echo {'x' * 5000}"], ids=["lines", "long"])
def test_what_is_no_short_line_gets_a_session_of_its_own(made: Any, command: str) -> None:
    waits = spare_shell(made)
    assert made.exec(f"{command}; echo $$").stdout.split()[-1] != b"%d" % waits
    assert made.exec("echo $$").stdout == b"%d\n" % waits


def test_one_that_was_killed_takes_no_command_with_it(made: Any) -> None:
    waits = spare_shell(made)
    os.kill(waits, signal.SIGKILL)
    end = time.monotonic() + 10
    while not made._spare._shell.over:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert made.exec("echo on").stdout == b"on\n"
    assert spare_shell(made) != waits


def test_it_ends_with_its_connection(sshd: Start) -> None:
    connection = connect(sshd().host())
    waits = spare_shell(connection)
    connection.close()
    assert ended(waits)


def test_it_gives_way_where_the_server_allows_no_more_sessions(sshd: Start) -> None:
    connection: Any = connect(sshd("MaxSessions 2").host())
    waits = spare_shell(connection)
    other = connection.open("cat\n:")
    assert connection.exec("echo a\necho b").stdout == b"a\nb\n"
    assert ended(waits)
    other.close()
    connection.close()


def test_a_forced_command_is_run_as_often_as_asked_for(sshd: Start, tmp_path: Path) -> None:
    connection: Any = connect(sshd(f"ForceCommand echo x >>{tmp_path}/runs").host())
    for _ in range(4):
        assert connection.exec("true").rc == 0
    assert connection._spare._shell is None
    connection.close()
    assert (tmp_path / "runs").read_text() == "x\n" * 4
