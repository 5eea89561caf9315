"""The transport on a lab host: a user with sudo, and lines that are cut, lossy or refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.errors import FleetError
from fleetctl.fleet.run import Job, Put, Runner
from fleetctl.lab.box import Box
from fleetctl.transport import connect
from fleetctl.transport.fetch import fetch_file


def reference(work: Callable[[], object]) -> str:
    with pytest.raises(FleetError) as caught:
        work()
    return caught.value.reference


def test_a_user_becomes_root_for_a_put_and_its_command(replay_host: Box) -> None:
    job = Job(
        "id -un; stat -c '%U %a' /etc/put", (Put(b"x\n", "put", "/etc/put", 0o600),), become=True
    )
    outcome = Runner(job)(replay_host.target())
    assert outcome.stdout.split() == [b"root", b"root", b"600"]


def test_a_user_whose_sudo_wants_a_password_is_told_so(replay_host: Box) -> None:
    outcome = Runner(Job("true", become=True))(replay_host.target(user="visitor"))
    assert outcome.error is not None
    assert outcome.error.reference == "sudo-password"


def test_what_runs_as_root_is_ended_for_a_user_too(replay_host: Box) -> None:
    connection = connect(replay_host.target())
    begin = "sudo -n sh -c 'echo $$ > /run/mark; sleep 300; :'"
    assert reference(lambda: connection.exec(begin, timeout=1)) == "command-timeout"
    connection.close()
    assert (
        replay_host.console("kill -0 $(cat /run/mark) 2>/dev/null && echo there || echo gone")
        == "gone\n"
    )


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("cable-out", "unreachable-timeout"),
        ("drop", "unreachable-timeout"),
        ("refuse", "connection-refused"),
    ],
)
def test_a_fault_of_the_line_has_its_reference(replay_host: Box, fault: str, expected: str) -> None:
    replay_host.fault(fault)
    began = time.monotonic()
    assert reference(lambda: connect(replay_host.target(), 2)) == expected
    assert time.monotonic() - began < 6


def test_a_cable_pulled_while_a_command_runs_ends_it_at_its_timeout(replay_host: Box) -> None:
    connection = connect(replay_host.target())
    threading.Timer(0.5, replay_host.fault, ("cable-out",)).start()
    began = time.monotonic()
    assert reference(lambda: connection.exec("sleep 30", timeout=3)) == "command-timeout"
    assert time.monotonic() - began < 12
    replay_host.fault("cable-in")
    connection.close()


def test_thirty_percent_loss_ends_in_an_answer_or_at_the_deadline(replay_host: Box) -> None:
    replay_host.fault("loss", percent=30)
    ways_to_end = ("through", "unreachable-timeout", "command-timeout", "connection-lost")
    for _ in range(3):
        began = time.monotonic()
        assert said_through(replay_host) in ways_to_end
        assert time.monotonic() - began < 45


def said_through(box: Box) -> str:
    """Return what a command said, or why it said nothing."""
    try:
        connection = connect(box.target(), 15)
        said = connection.exec("echo through", timeout=15).stdout.decode().strip()
        connection.close()
    except FleetError as error:
        return error.reference
    return said


def test_a_full_disk_leaves_the_old_file(replay_host: Box) -> None:
    replay_host.console("mkdir -p /etc/fleetctl; echo old > /etc/fleetctl/f")
    replay_host.fault("disk-full", path="/etc/fleetctl", size=8192)
    job = Job("true", (Put(b"n" * 100_000, "f", "/etc/fleetctl/f", 0o644),), become=True)
    outcome = Runner(job)(replay_host.target())
    assert outcome.error is not None
    assert outcome.error.reference == "put-failed"
    assert "No space left" in "".join(outcome.error.context)
    assert replay_host.console("cat /etc/fleetctl/f; ls /etc/fleetctl") == "old\nf\n"


def test_a_reboot_in_the_middle_of_a_fetch_leaves_nothing(
    private_host: Callable[[str], Box], tmp_path: Path
) -> None:
    box = private_host("bare")
    connection = connect(box.target())
    threading.Timer(0.7, box.fault, ("kill",)).start()
    assert reference(
        lambda: fetch_file(connection, "/dev/urandom", tmp_path / "log", limit=1 << 40)
    ) in ("connection-lost", "fetch-failed", "command-timeout")
    assert list(tmp_path.iterdir()) == []


def test_a_log_of_a_host_comes_packed(replay_host: Box, tmp_path: Path) -> None:
    replay_host.console("yes 'one line of a log' | head -c 3000000 > /tmp/log; chmod 644 /tmp/log")
    connection = connect(replay_host.target())
    got = fetch_file(connection, "/tmp/log", tmp_path / "log")
    connection.close()
    assert got.size == (tmp_path / "log").stat().st_size == 3_000_000
    assert got.wire < 300_000
