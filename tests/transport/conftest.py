"""Real sshds on loopback ports, each with its own keys, started and ended by the test."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleetctl.model.fleet import Host
from fleetctl.transport import keys, reach, sshconfig

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
BASE = """
ListenAddress 127.0.0.1
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
LogLevel VERBOSE
PrintMotd no
"""


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """Make a key pair and return the private half's path."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path)], check=True)
    return path


@pytest.fixture
def free_port() -> int:
    return unused_port()


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Server:
    """One running sshd."""

    folder: Path
    port: int
    key: Path  # lets one in
    process: subprocess.Popen[bytes]

    @property
    def public(self) -> str:
        """Return the host key as ``type base64``."""
        return " ".join((self.folder / "host.pub").read_text().split()[:2])

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def logins(self) -> int:
        """Return how many sessions were let in."""
        return self.log.count("Accepted publickey for")

    def trusted(self) -> Path:
        """Return a known_hosts file that knows this server."""
        path = self.folder / "known_hosts"
        path.write_text(f"[127.0.0.1]:{self.port} {self.public}\n")
        return path

    def host(self, **changes: object) -> Host:
        fields: dict[str, object] = {
            "name": "gpu-01", "address": "127.0.0.1", "port": self.port, "user": "root",
            "key": str(self.key), "known_hosts": str(self.trusted()),
        }  # fmt: skip
        return Host(**(fields | changes))  # type: ignore[arg-type]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)


Start = Callable[..., Server]


@pytest.fixture(scope="session")
def login_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("login") / "id")


def launch(
    folder: Path, login_key: Path, options: str = "", host_key: Path | None = None
) -> Server:
    """Start an sshd and wait until it listens."""
    folder.mkdir(parents=True, exist_ok=True)
    if host_key is None:
        make_key(folder / "host")
    else:
        shutil.copy(host_key, folder / "host")
        shutil.copy(f"{host_key}.pub", folder / "host.pub")
    shutil.copy(f"{login_key}.pub", folder / "authorized_keys")
    port = unused_port()
    config = folder / "sshd_config"
    config.write_text(
        f"{options}\n{BASE}Port {port}\nHostKey {folder}/host\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nSetEnv HOME={folder}\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    process = subprocess.Popen(
        [SSHD, "-D", "-f", str(config), "-E", str(folder / "log")], stdin=subprocess.DEVNULL
    )
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return Server(folder, port, login_key, process)
        if process.poll() is not None:
            break
        time.sleep(0.02)
    process.kill()
    raise RuntimeError(f"sshd did not start: {(folder / 'log').read_text()}")


@pytest.fixture
def sshd(tmp_path: Path, login_key: Path) -> Iterator[Start]:
    """Start as many sshds as a test wants."""
    if os.geteuid() or not Path(SSHD).exists():
        if os.environ.get("CI"):
            pytest.fail("needs root and openssh-server")
        pytest.skip("needs root and openssh-server")
    running: list[Server] = []

    def start(options: str = "", host_key: Path | None = None) -> Server:
        server = launch(tmp_path / f"sshd{len(running)}", login_key, options, host_key)
        running.append(server)
        return server

    yield start
    reach.close_jumps()
    for server in running:
        server.stop()


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Keep the person's ssh_config, keys and agent out of the tests."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    sshconfig.reload()
    keys.reload()
    yield home
    sshconfig.reload()
    keys.reload()
