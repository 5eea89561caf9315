"""Where the peers are, how each is started, and how the Python ones are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from fleetctl.config import places
from tests.bench.sshd_fleet import Fleet

HERE = Path(__file__).parent / "peers"
OWN = Path(sys.executable).parent  # fabric and paramiko are our own dependencies
PACKAGES = ("asyncssh", "parallel-ssh", "pyinfra", "ansible-core")
SIZE = "about 140 MB on disk, from PyPI"


@dataclass(frozen=True)
class Peer:
    """One way to do the same work. ``python``: it is a Python program (for the goals on those)."""

    name: str
    argv: tuple[str, ...]
    env: dict[str, str]
    python: bool = False


def venv() -> Path:
    """Return the folder of the venv with the Python peers."""
    return places.cache() / "bench-peers"


def install() -> None:
    """Make the venv, saying first what it costs."""
    if (venv() / "bin/ansible-playbook").exists():
        return
    print(f"installing peers to {venv()}: {', '.join(PACKAGES)} ({SIZE})", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(venv())], check=True)
    pip = [str(venv() / "bin/pip"), "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *PACKAGES], check=True)


def absent(name: str) -> str:
    """Return why a peer cannot be run here, or ""."""
    if name.startswith(("ssh", "fleetctl", "fabric", "paramiko")):
        return ""
    if name == "clush":
        return "" if shutil.which("clush") else "clustershell is not installed"
    files = {
        "asyncssh": "asyncssh", "parallel-ssh": "pssh", "pyinfra": "pyinfra", "ansible": "ansible",
    }  # fmt: skip
    found = list(venv().glob(f"lib/*/site-packages/{files[name]}/__init__.py"))
    return "" if found else "not installed (make bench installs it with --install)"


def fleetctl(fleet: Fleet, n: int, *words: str) -> Peer:
    """Return our own command on the first ``n`` hosts; ``{hosts}`` in a word is the selector."""
    hosts = f"h[001-{n:03d}]" if n > 1 else "h001"
    argv = (str(OWN / "fleetctl"), *(w.replace("{hosts}", hosts) for w in words))
    return Peer("fleetctl", argv, {"FLEETCTL_SITE": str(fleet.folder / "site")}, python=True)


LOOP = "test -s ~/unit.service && uname -r && wc -c < ~/unit.service && sha256sum ~/unit.service"


def deploy_loop(fleet: Fleet, name: str, n: int) -> Peer:
    """Return a peer that puts 3 KB by rename, runs four commands and prints what they said."""
    if name == "fleetctl":
        put = f"{fleet.folder}/unit.service:~/unit.service"
        return fleetctl(fleet, n, "run", "{hosts}", "--json", "--put", put, "--", LOOP)
    return _peer(fleet, name, "loop", n)


def logs(fleet: Fleet, name: str, n: int) -> Peer:
    """Return a peer that fetches 20 MiB from each host into ``out/``."""
    if name == "fleetctl":
        return fleetctl(
            fleet,
            n,
            "fetch",
            "{hosts}",
            f"{fleet.folder}/remote/log20m",
            "--to",
            f"{fleet.folder}/out",
        )
    return _peer(fleet, name, "logs", n)


def _peer(fleet: Fleet, name: str, task: str, n: int) -> Peer:
    env = {"BENCH_FLEET": str(fleet.folder)}
    shell = {
        "ssh one-liner": "fast",
        "ssh default": "one",
        "ssh master": "master",
        "clush": "clush",
    }
    if name in shell:
        return Peer(name, (str(HERE / "ssh_peer.sh"), shell[name], task, str(n)), env)
    scripts = {
        "asyncssh": (venv() / "bin/python", "asyncssh_peer.py"),
        "parallel-ssh": (venv() / "bin/python", "pssh_peer.py"),
        "fabric": (OWN / "python", "fabric_peer.py"),
        "paramiko": (OWN / "python", "paramiko_peer.py"),
    }
    if name in scripts:
        python, script = scripts[name]
        return Peer(name, (str(python), str(HERE / script), task, str(n)), env, python=True)
    return _pyinfra(fleet, n, env) if name == "pyinfra" else _ansible(fleet, n, env)


def _pyinfra(fleet: Fleet, n: int, env: dict[str, str]) -> Peer:
    path = fleet.folder / f"pyinfra_{n}.py"
    hosts = [
        (name, {
            "ssh_hostname": "127.0.0.1", "ssh_port": fleet.port(name), "ssh_user": "root",
            "ssh_key": str(fleet.folder / "keys/id"),
            "ssh_known_hosts_file": str(fleet.folder / "known_hosts"),
            "ssh_strict_host_key_checking": "yes", "_shell_executable": "sh",
        })
        for name in fleet.names[:n]
    ]  # fmt: skip
    path.write_text(f"hosts = {hosts!r}\n")
    program = str(venv() / "bin/pyinfra")
    script = str(HERE / "pyinfra_deploy.py")
    argv = (program, "-y", "--parallel", str(min(n, 50)), "-vvv", str(path), script)
    return Peer("pyinfra", argv, env, python=True)


def _ansible(fleet: Fleet, n: int, env: dict[str, str]) -> Peer:
    path = fleet.folder / f"ansible_{n}.ini"
    path.write_text("[all]\n" + "".join(f"{name}\n" for name in fleet.names[:n]))
    more = {
        "ANSIBLE_PIPELINING": "True", "ANSIBLE_HOST_KEY_CHECKING": "False",
        "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3",
        "ANSIBLE_LOCAL_TEMP": str(fleet.folder / "ansible-tmp"),
        "ANSIBLE_SSH_ARGS": f"-F {fleet.folder}/ssh_config -o ControlMaster=auto -o ControlPersist=60s",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(fleet.folder / "ansible-cm"),
        "PATH": f"{venv()}/bin:{os.environ['PATH']}",
    }  # fmt: skip
    argv = (
        str(venv() / "bin/ansible-playbook"),
        "-f",
        str(min(n, 50)),
        "-i",
        str(path),
        str(HERE / "ansible.yml"),
    )
    return Peer("ansible", argv, env | more, python=True)
