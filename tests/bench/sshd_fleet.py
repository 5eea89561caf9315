"""A fleet of sshds on loopback ports: each port is one host with a home of its own.

Clients and servers share the machine's cores, so the least wall time a client can reach is
(CPU of the servers + CPU of the client) / cores.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or "/usr/sbin/sshd"
FIRST_PORT = 21300
PAYLOAD = 3072
LOG_BYTES = 20 * 1024 * 1024
CONFIG = """
ListenAddress 127.0.0.1
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 500
PrintMotd no
PrintLastLog no
LogLevel ERROR
"""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Fleet:
    """Running sshds and the files of every client: keys, known hosts, ssh_config, inventory."""

    folder: Path
    count: int
    first_port: int

    @property
    def names(self) -> list[str]:
        return [f"h{n:03d}" for n in range(1, self.count + 1)]

    def port(self, name: str) -> int:
        return self.first_port + int(name[1:])

    def home(self, name: str) -> Path:
        return self.folder / "remote" / name

    def cpu_seconds(self) -> float:
        """Return what the servers used so far, their ended children counted."""
        total = 0
        for path in (self.folder / "sshd").glob("*.pid"):
            with contextlib.suppress(OSError, IndexError):
                stat = Path(f"/proc/{path.read_text().strip()}/stat").read_text()
                total += sum(map(int, stat.rsplit(")", 1)[1].split()[11:15]))
        return total / TICKS

    def clean(self) -> None:
        """Take away what the last peer put there."""
        for name in self.names:
            for path in self.home(name).glob("*.service*"):
                path.unlink()
        for path in (self.folder / "out").iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextlib.contextmanager
def fleet(folder: Path, count: int) -> Iterator[Fleet]:
    """Start ``count`` sshds and stop them at the end."""
    made = Fleet(folder, count, _free(count))
    for part in ("keys", "sshd", "remote", "out"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    _keys(folder)
    _client_files(made)
    try:
        for name in made.names:
            _start(made, name)
        _wait(made)
        yield made
    finally:
        for path in (folder / "sshd").glob("*.pid"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(path.read_text()), signal.SIGTERM)


def _free(count: int) -> int:
    """Return the first of so many ports that nobody listens on."""
    for first in range(FIRST_PORT, 60_000, 500):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first + 1, first + count + 1):
                    probe = stack.enter_context(socket.socket())
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise RuntimeError(f"no {count} free ports in a row")


def _keys(folder: Path) -> None:
    for name, kind in (
        ("id", "ed25519"),
        ("host_ed", "ed25519"),
        ("host_ec", "ecdsa"),
        ("host_rsa", "rsa"),
    ):
        if not (folder / "keys" / name).exists():
            subprocess.run(
                ["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(folder / "keys" / name)],
                check=True,
            )
    shutil.copy(folder / "keys/id.pub", folder / "keys/authorized_keys")
    (folder / "unit.service").write_bytes((b"[Unit]\n" + b"# " + b"x" * 60 + b"\n") * 60)
    os.truncate(folder / "unit.service", PAYLOAD)
    log = folder / "remote/log20m"
    if not log.exists():
        lines = (
            f"[2026-11-29 15:46:{n % 60:02d} TP{n % 8}] Decode batch, #running-req: {n % 37}, "
            f"#token: {n * 7919 % 100_000}, token usage: 0.{n % 97:02d}, gen throughput (token/s): "
            f"{n * 104_729 % 9_973}.{n % 89:02d}, #queue-req: {n % 5}\n"
            for n in range(200_000)
        )
        log.write_text("".join(lines)[:LOG_BYTES])


def _start(made: Fleet, name: str) -> None:
    folder, port = made.folder, made.port(name)
    made.home(name).mkdir(exist_ok=True)
    config = folder / f"sshd/{port}.conf"
    keys = "".join(f"HostKey {folder}/keys/{k}\n" for k in ("host_ed", "host_ec", "host_rsa"))
    config.write_text(
        f"{CONFIG}{keys}AuthorizedKeysFile {folder}/keys/authorized_keys\nPort {port}\n"
        f"PidFile {folder}/sshd/{port}.pid\nSetEnv HOME={made.home(name)}\n"
        f"Subsystem sftp internal-sftp -d {made.home(name)}\n"
    )
    subprocess.run([SSHD, "-f", str(config), "-E", str(folder / "sshd/err.log")], check=True)


def _wait(made: Fleet) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if all((made.folder / f"sshd/{made.port(n)}.pid").exists() for n in made.names):
            return
        time.sleep(0.05)
    raise RuntimeError((made.folder / "sshd/err.log").read_text()[-2000:])


def _client_files(made: Fleet) -> None:
    folder = made.folder
    public = " ".join((folder / "keys/host_ed.pub").read_text().split()[:2])
    known = [f"[127.0.0.1]:{made.port(n)} {public}\n" for n in made.names]
    (folder / "known_hosts").write_text("".join(known))
    (folder / "known_hosts_alias").write_text(f"fleet {public}\n")
    (folder / "hosts.txt").write_text("".join(f"{n} {made.port(n)}\n" for n in made.names))
    hosts = "".join(f"Host {n}\n Port {made.port(n)}\n" for n in made.names)
    common = (
        f" HostName 127.0.0.1\n User root\n IdentityFile {folder}/keys/id\n IdentitiesOnly yes\n"
        f" HostKeyAlias fleet\n UserKnownHostsFile {folder}/known_hosts_alias\n"
        " StrictHostKeyChecking yes\n LogLevel ERROR\n"
    )
    fast = " KexAlgorithms curve25519-sha256\n Ciphers aes128-gcm@openssh.com\n"
    (folder / "cm").mkdir(exist_ok=True)
    master = f" ControlMaster auto\n ControlPersist 60\n ControlPath {folder}/cm/%n\n"
    (folder / "ssh_config").write_text(f"{hosts}Host h*\n{common}")
    (folder / "ssh_config_fast").write_text(f"{hosts}Host h*\n{fast}{common}")
    (folder / "ssh_config_cm").write_text(f"{hosts}Host h*\n{master}{common}")
    entries = "".join(
        f"  {n}: {{address: 127.0.0.1, port: {made.port(n)}, groups: [all]}}\n" for n in made.names
    )
    site = folder / "site"
    site.mkdir(exist_ok=True)
    (site / "hosts.yaml").write_text(
        f"defaults: {{user: root, key: {folder}/keys/id, known_hosts: {folder}/known_hosts}}\n"
        f"hosts:\n{entries}"
    )
