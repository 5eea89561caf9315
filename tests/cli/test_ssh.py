"""``fleetctl ssh`` on a real sshd: a terminal there, the status as it is."""

from __future__ import annotations

import fcntl
import functools
import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetctl.cli.app import run
from fleetctl.fleet import run as from_shell
from tests.transport.conftest import free_port, login_key, own_home, sshd

__all__ = ["free_port", "login_key", "own_home", "sshd"]
Start = Callable[..., Any]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sshd: Start) -> Path:
    server, bastion = sshd(), sshd()
    (tmp_path / "hosts.yaml").write_text(
        f"""
defaults: {{user: root, address: 127.0.0.1, key: {server.key}}}
hosts:
  bastion: {{port: {bastion.port}, known_hosts: {bastion.trusted()}}}
  gpu-01: {{port: {server.port}, known_hosts: {server.trusted()}, jump: bastion}}
""".replace(", address: 127.0.0.1", "").replace("{port", "{address: 127.0.0.1, port")
    )
    monkeypatch.setenv("FLEETCTL_SITE", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def in_a_terminal(argv: list[str], typed: bytes = b"") -> tuple[int, bytes]:
    """Run a program on a pseudo-terminal and return its status and what the screen got."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        argv,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=functools.partial(fcntl.ioctl, 0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    shown = b""
    end = time.monotonic() + 60
    sent = not typed
    while time.monotonic() < end:
        if not select.select([ours], [], [], 0.2)[0]:
            continue
        try:
            shown += os.read(ours, 65536)
        except OSError:
            break
        if not sent and b"# " in shown:
            os.write(ours, typed)
            sent = True
    else:
        process.kill()
    status = process.wait(10)
    os.close(ours)
    return status, shown


def test_a_command_has_a_terminal_where_the_person_has_one(site: Path) -> None:
    argv = [
        sys.executable,
        "-m",
        "fleetctl",
        "ssh",
        "gpu-01",
        "--",
        "test -t 0 && echo tty; exit 7",
    ]
    status, shown = in_a_terminal(argv)
    assert (status, b"tty" in shown) == (7, True), shown


def test_a_shell_takes_what_is_typed(site: Path) -> None:
    argv = [sys.executable, "-m", "fleetctl", "ssh", "gpu-01"]
    status, shown = in_a_terminal(argv, b"echo $((6*7)); exit 5\n")
    assert b"42" in shown
    assert status == 5


def test_without_a_terminal_the_command_has_none(
    site: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["ssh", "gpu-01", "--", "test -t 0 || echo plain"]) == 0
    assert capfd.readouterr().out == "plain\n"


def test_many_hosts_are_a_usage_fault(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ssh", "*"]) == 2
    assert "error[one-host]" in capsys.readouterr().err


def test_patches_of_the_host_are_said_first_also_where_it_allows_one_session(
    site: Path, sshd: Start, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = sshd("MaxSessions 1")
    (site / "hosts.yaml").write_text(
        f"hosts: {{gpu-01: {{address: 127.0.0.1, port: {server.port}, user: root, "
        f"key: {server.key}, known_hosts: {server.trusted()}}}}}\n"
    )
    folder = site / "patches" / "main"
    folder.mkdir(parents=True)
    (folder / "notice").write_text("rank-beacon\toverlay\tann@desk\t2999-01-01T00:00:00Z\n")
    there = from_shell.NOTES.replace("/var/lib/fleetctl", str(site))
    monkeypatch.setattr(from_shell, "NOTES", there)
    assert run(["ssh", "gpu-01", "--", "echo out; exit 3"]) == 3
    said = capfd.readouterr()
    assert said.out == "out\n"
    assert "gpu-01/main: patch rank-beacon of ann@desk is applied until 2999" in said.err


def test_a_command_that_is_no_utf_8_is_refused_by_name(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ssh", "gpu-01", "--", os.fsdecode(b"echo \xff")]) == 2
    assert "error[not-utf-8]" in capsys.readouterr().err
