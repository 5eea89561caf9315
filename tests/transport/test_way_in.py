"""Each way not to get in has its own reference; the deadline covers every stage."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fleetctl.errors import Exit, FleetError
from fleetctl.model.fleet import Host
from fleetctl.transport import connect
from tests.transport.test_contract import spare_shell

Start = Callable[..., Any]


def fault(host: Host, timeout: float = 5.0) -> FleetError:
    with pytest.raises(FleetError) as caught:
        connect(host, timeout)
    assert caught.value.exit_code == Exit.UNREACHABLE
    assert caught.value.where == host.name
    return caught.value


def test_a_port_without_listener_is_connection_refused(free_port: int) -> None:
    host = Host(name="gpu-01", address="127.0.0.1", port=free_port)
    assert fault(host).reference == "connection-refused"


def test_a_name_that_nobody_knows_is_name_unknown() -> None:
    error = fault(Host(name="gpu-01", address="no-such-host.invalid"))
    assert error.reference == "name-unknown"
    assert "no-such-host.invalid" in error.message


def test_a_server_that_hangs_up_first_is_tried_again_then_named(listener: Listener) -> None:
    error = fault(listener.host)
    assert error.reference == "connection-dropped"
    assert listener.accepted == 3


class Listener:
    """Accepts and hangs up."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.accepted = 0
        self.host = Host(name="gpu-01", address="127.0.0.1", port=self.socket.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self.socket.accept()
            except OSError:
                return
            self.accepted += 1
            link.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    with closing(made.socket):
        yield made


class Stalling:
    """Passes a number of the server's bytes on, then nothing more: a cable pulled at that point."""

    def __init__(self, target: int, budget: int) -> None:
        self.budget = budget
        self.target = target
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.links: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self.socket.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.target))
            self.links += [near, far]
            threading.Thread(target=self._pump, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        while True:
            try:
                data = source.recv(65536)
                if counted:
                    data, self.budget = data[: self.budget], max(self.budget - len(data), 0)
                if not data:
                    return
                sink.sendall(data)
            except OSError:
                return

    def close(self) -> None:
        for link in (self.socket, *self.links):
            link.close()


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.6, 0.8])
def test_the_deadline_holds_wherever_the_line_goes_dead(sshd: Start, share: float) -> None:
    server = sshd()
    ample = 1 << 20
    with closing(Stalling(server.port, ample)) as proxy:
        (server.folder / "known").write_text(f"[127.0.0.1]:{proxy.port} {server.public}\n")
        host = server.host(port=proxy.port, known_hosts=str(server.folder / "known"))
        connect(host).close()
        proxy.budget = int(
            (ample - proxy.budget) * share
        )  # of what the server says until we are in
        began = time.monotonic()
        assert fault(host, 0.6).reference == "unreachable-timeout"
        assert time.monotonic() - began < 3


@pytest.mark.parametrize("size", [0, 1, 5_000_000])
def test_a_line_that_dies_after_the_login_ends_a_command_at_its_timeout(
    sshd: Start, size: int
) -> None:
    server = sshd()
    with closing(Stalling(server.port, 1 << 30)) as proxy:
        (server.folder / "known").write_text(f"[127.0.0.1]:{proxy.port} {server.public}\n")
        made = connect(server.host(port=proxy.port, known_hosts=str(server.folder / "known")))
        proxy.budget = 0
        assert times_out(made, "true", size) == "unreachable-timeout"
        made.close()


@pytest.mark.parametrize("size", [0, 1, 5_000_000])
@pytest.mark.parametrize("budget", [30, 200])
def test_a_line_that_dies_when_a_command_starts_ends_it_at_its_timeout(
    sshd: Start, size: int, budget: int
) -> None:
    server = sshd()
    with closing(Stalling(server.port, 1 << 30)) as proxy:
        (server.folder / "known").write_text(f"[127.0.0.1]:{proxy.port} {server.public}\n")
        made = connect(server.host(port=proxy.port, known_hosts=str(server.folder / "known")))
        made.exec("true")
        proxy.budget = budget  # of the channel's opening, or of the command's first words
        assert times_out(made, "cat >/dev/null; sleep 60", size) in (
            "unreachable-timeout", "command-timeout",
        )  # fmt: skip
        made.close()


def test_a_line_that_dies_while_a_shell_waits_ends_its_command_at_its_timeout(sshd: Start) -> None:
    server = sshd()
    with closing(Stalling(server.port, 1 << 30)) as proxy:
        (server.folder / "known").write_text(f"[127.0.0.1]:{proxy.port} {server.public}\n")
        made = connect(server.host(port=proxy.port, known_hosts=str(server.folder / "known")))
        spare_shell(made)
        proxy.budget = 0
        assert times_out(made, "cat >/dev/null; sleep 60", 5_000_000) == "command-timeout"
        made.close()


def times_out(connection: Any, command: str, size: int) -> str:
    """Return the reference of a command that must end in about half a second."""
    began = time.monotonic()
    with pytest.raises(FleetError) as caught:
        connection.exec(command, b"x" * size, timeout=0.5)
    assert time.monotonic() - began < 8  # ending what runs there is tried for five seconds
    return caught.value.reference


def test_a_session_that_the_server_ends_is_connection_lost(sshd: Start) -> None:
    made = connect(sshd().host())
    with pytest.raises(FleetError) as caught:
        made.exec("kill -9 $PPID; sleep 5")
    assert caught.value.reference == "connection-lost"
    with pytest.raises(FleetError) as caught:
        made.exec("true")
    assert caught.value.reference == "connection-lost"
    made.close()


def test_twenty_hosts_behind_a_bastion_log_in_to_it_once(sshd: Start) -> None:
    bastion, server = sshd(), sshd()
    host = server.host(jump="bastion", via=bastion.host(name="bastion"))
    with ThreadPoolExecutor(20) as pool:
        made = list(pool.map(lambda _: connect(host, 20), range(20)))
    outputs = {c.exec("echo there").stdout for c in made}
    for connection in made:
        connection.close()
    assert outputs == {b"there\n"}
    assert (bastion.logins(), server.logins()) == (1, 20)


def test_a_chain_of_jumps_is_followed_in_order(sshd: Start, own_home: Path) -> None:
    server = sshd()
    inner = sshd(f"PermitOpen 127.0.0.1:{server.port}")
    outer = sshd(f"PermitOpen 127.0.0.1:{inner.port}")
    (own_home / ".ssh/config").write_text(
        "".join(
            f"Host {name}\n HostName 127.0.0.1\n User root\n Port {s.port}\n"
            f" IdentityFile {s.key}\n UserKnownHostsFile {s.trusted()}\n"
            for name, s in (("outer", outer), ("inner", inner))
        )
    )
    made = connect(server.host(jump="outer, inner"))
    assert made.exec("echo $SSH_CONNECTION").rc == 0
    made.close()
    assert (outer.logins(), inner.logins(), server.logins()) == (1, 1, 1)


def test_a_jump_host_that_is_down_is_jump_failed_with_its_own_reason(
    sshd: Start, free_port: int
) -> None:
    down = Host(name="bastion", address="127.0.0.1", port=free_port)
    error = fault(sshd().host(jump="bastion", via=down))
    assert error.reference == "jump-failed"
    assert error.context == ("connection-refused at bastion",)


def test_a_jump_host_that_forwards_nothing_is_jump_failed(sshd: Start) -> None:
    bastion = sshd("AllowTcpForwarding no")
    error = fault(sshd().host(jump="bastion", via=bastion.host(name="bastion")))
    assert error.reference == "jump-failed"
    assert "forwarding" in error.message


def test_a_host_that_is_down_behind_a_jump_is_told_from_the_jump(
    sshd: Start, free_port: int
) -> None:
    bastion = sshd()
    host = Host(name="gpu-01", address="127.0.0.1", port=free_port,
                jump="bastion", via=bastion.host(name="bastion"))  # fmt: skip
    error = fault(host)
    assert error.reference == "unreachable-from-jump"
    assert "bastion cannot connect" in error.message


def test_a_proxy_command_gets_the_inventory_s_port(sshd: Start, own_home: Path) -> None:
    server = sshd()
    script = own_home / "proxy.py"
    script.write_text(PROXY)
    (own_home / ".ssh/config").write_text(
        f"Host 127.0.0.1\n ProxyCommand python3 {script} %h %p %r\n"
    )
    made = connect(server.host())
    assert made.exec("echo through").stdout == b"through\n"
    made.close()
    assert (own_home / "proxy.log").read_text() == f"127.0.0.1 {server.port} root"


def test_a_proxy_command_that_fails_is_named(own_home: Path) -> None:
    (own_home / ".ssh/config").write_text("Host gpu-01\n ProxyCommand false\n")
    assert fault(Host(name="gpu-01", address="gpu-01")).reference == "connection-dropped"


PROXY = """
import os, pathlib, select, socket, sys
pathlib.Path(__file__).with_name("proxy.log").write_text(" ".join(sys.argv[1:]))
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while True:
    for f in select.select([0, s], [], [])[0]:
        d = os.read(0, 65536) if f == 0 else s.recv(65536)
        if not d:
            sys.exit()
        s.sendall(d) if f == 0 else os.write(1, d)
"""
