"""What every transport does alike: here, over a real sshd, and through a jump host."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.errors import RemoteError, UnreachableError
from fleetctl.model.fleet import Host
from fleetctl.transport import connect
from fleetctl.transport.agent import Agent
from fleetctl.transport.base import Connection


@pytest.fixture(params=["local", "ssh", "spare", "jump"])
def host(request: pytest.FixtureRequest, own_home: Path) -> Host:
    if request.param == "local":
        return Host(name="gpu-01", address="localhost", transport="local")
    sshd = request.getfixturevalue("sshd")
    server = sshd()
    if request.param in ("ssh", "spare"):
        return server.host()  # type: ignore[no-any-return]
    bastion = sshd()
    config = f"""Host bastion
  HostName 127.0.0.1
  User root
  Port {bastion.port}
  IdentityFile {bastion.key}
  UserKnownHostsFile {bastion.trusted()}
"""
    (own_home / ".ssh/config").write_text(config)
    return server.host(jump="bastion")  # type: ignore[no-any-return]


@pytest.fixture
def connection(host: Host, request: pytest.FixtureRequest) -> Iterator[Connection]:
    made = connect(host)
    if request.node.callspec.params["host"] == "spare":
        spare_shell(made)
    yield made
    made.close()


def spare_shell(connection: Any) -> int:
    """Return the process of the shell that waits for the next command, once it does."""
    for _ in range(2):
        assert connection.exec("true").rc == 0
    end = time.monotonic() + 20
    while not connection._spare._shell.leads:
        assert time.monotonic() < end
        time.sleep(0.01)
    return int(connection._spare._shell._session.leader)


def alive(mark: str) -> bool:
    """Return whether a process with this word among its arguments runs."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if mark.encode() in words:
            return True
    return False


def gone(mark: str) -> bool:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        if not alive(mark):
            return True
        time.sleep(0.05)
    return False


def test_a_command_leaves_status_output_and_errors_apart(connection: Connection) -> None:
    result = connection.exec("echo out; echo err >&2; exit 3")
    assert (result.rc, result.stdout, result.stderr) == (3, b"out\n", b"err\n")


def test_a_command_gets_its_input(connection: Connection) -> None:
    assert connection.exec("tr a-z A-Z", b"kimi").stdout == b"KIMI"


def test_input_and_output_larger_than_any_buffer_pass_each_other(connection: Connection) -> None:
    data = bytes(range(256)) * 40_000  # 10 MB
    assert connection.exec("cat", data).stdout == data


def test_standard_error_larger_than_the_window_does_not_stop_the_command(
    connection: Connection,
) -> None:
    result = connection.exec("head -c 5000000 /dev/zero >&2; echo done")
    assert result.stdout == b"done\n"
    assert len(result.stderr) == 1024 * 1024


def test_a_command_that_does_not_read_its_input_still_ends(connection: Connection) -> None:
    assert connection.exec("exit 5", b"x" * 3_000_000).rc == 5


def test_a_command_killed_by_a_signal_tells_it_as_a_shell_does(connection: Connection) -> None:
    assert connection.exec("kill -9 $$").rc == 137


def test_one_session_runs_many_commands(connection: Connection) -> None:
    assert [connection.exec(f"exit {n}").rc for n in range(5)] == [0, 1, 2, 3, 4]


def test_at_the_timeout_the_command_and_its_children_are_ended(connection: Connection) -> None:
    mark = f"mark-{time.monotonic_ns()}"
    command = f"sh -c 'sleep 300; :' {mark} & setsid -f true; sh -c 'sleep 301; :' {mark}-b"
    with pytest.raises(UnreachableError) as caught:
        connection.exec(command, timeout=0.5)
    assert caught.value.reference == "command-timeout"
    assert gone(mark)
    assert gone(f"{mark}-b")
    assert connection.exec("echo still here").stdout == b"still here\n"


def test_a_closed_channel_ends_what_ignores_the_end_of_its_input(connection: Connection) -> None:
    mark = f"mark-{time.monotonic_ns()}"
    channel = connection.open(f"echo on; exec sh -c 'sleep 300; :' {mark}")
    assert channel.recv(5) == b"on\n"
    channel.close()
    assert gone(mark)


def test_reading_a_silent_command_times_out_and_can_go_on(connection: Connection) -> None:
    channel = connection.open("read line; echo got $line")
    with pytest.raises(TimeoutError):
        channel.recv(0.05)
    channel.send(b"it\n")
    assert channel.recv(5) == b"got it\n"
    assert channel.recv(5) == b""
    assert channel.wait(5) == 0
    channel.close()


def test_shell_quoting_survives(connection: Connection) -> None:
    text = """it's "x" $HOME `id` \\ \n ! é"""
    assert connection.exec(f"printf %s {shlex.quote(text)}").stdout == text.encode()


def test_a_command_line_need_not_be_utf_8(connection: Connection) -> None:
    typed = os.fsdecode(b"printf %s 'caf\xe9 \xc3\xa9'")
    for _ in range(2):  # a new shell, and one that waits for its command
        assert connection.exec(typed).stdout == b"caf\xe9 \xc3\xa9"


def test_sudo_without_a_password_is_its_own_fault(connection: Connection, tmp_path: Path) -> None:
    fake = tmp_path / "sudo"
    fake.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    fake.chmod(0o755)
    with pytest.raises(RemoteError) as caught:
        connection.exec(f"sudo -n true 2>/dev/null; PATH={tmp_path}:$PATH; sudo -n true")
    assert caught.value.reference == "sudo-password"


def test_the_agent_speaks_over_it(connection: Connection) -> None:
    with Agent(connection) as agent, pytest.raises(RemoteError) as caught:
        agent.call("agent.nothing")
    assert caught.value.reference == "unknown-verb"
