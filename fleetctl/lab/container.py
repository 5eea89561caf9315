"""One host: its overlay, its identity, its container."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fleetctl.clock import Clock, SystemClock
from fleetctl.lab import cgroup, shell, spec
from fleetctl.lab.state import Lab, LabHost, Process


def mount(lab: Lab, host: LabHost, layers: Sequence[Path]) -> Path:
    """Mount the host's tree over its layers (topmost first) and return where it is."""
    folder = lab.folder(host)
    for name in ("upper", "work", "root"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    root = folder / "root"
    if not os.path.ismount(root):
        lower = ":".join(str(layer) for layer in layers)
        options = f"lowerdir={lower},upperdir={folder / 'upper'},workdir={folder / 'work'}"
        shell.run(
            ["mount", "-t", "overlay", f"fleetctl-lab-{host.machine}", "-o", options, root],
            doing=f"mounting the tree of {host.name}",
        )
    return root


def identify(lab: Lab, host: LabHost, root: Path) -> None:
    """Give the tree a name, an address, a host key and the lab's key. A second call changes nothing."""
    key = root / "etc/ssh/ssh_host_ed25519_key"
    if key.exists():
        return
    (root / "etc/hostname").write_text(f"{host.name}\n")
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    (root / "etc/resolv.conf").write_text("")
    (root / "etc/lab-net.env").write_text(
        f"ADDR={host.address}/24\nGW={spec.gateway(lab.subnet)}\n"
    )
    public = lab.key.with_suffix(".pub").read_text()
    for home in ("root", "home/ops", "home/visitor"):
        authorized = root / home / ".ssh/authorized_keys"
        authorized.write_text(public)
        owner = authorized.parent.stat()
        os.chown(authorized, owner.st_uid, owner.st_gid)
        authorized.chmod(0o600)
    shell.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", host.name, "-f", key])


def name_hosts(lab: Lab, root: Path) -> None:
    """Name all hosts of the lab in one host's /etc/hosts.

    Without an entry for its own name each gloo look-up waits 10 s.
    """
    lines = ["127.0.0.1 localhost\n", *(f"{h.address} {h.name}\n" for h in lab.hosts)]
    (root / "etc/hosts").write_text("".join(lines))


def host_key(root: Path) -> str:
    """Return the host's public key as ``type base64``."""
    return " ".join((root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[:2])


# With --keep-unit a reboot ends systemd-nspawn with 133, so that whoever started it does so again.
AGAIN = 'cd /; while "$@"; [ $? -eq 133 ]; do :; done'


def boot(lab: Lab, host: LabHost) -> LabHost:
    """Start the container and return the host with its process; the tree must be mounted."""
    folder = lab.folder(host)
    argv = [
        *cgroup.prefix(host.machine),
        "/bin/sh",
        "-c",
        AGAIN,
        "fleetctl-lab",
        "systemd-nspawn",
        "--quiet",
        f"--directory={folder / 'root'}",
        "--boot",
        "--register=no",
        "--keep-unit",
        f"--network-bridge={spec.bridge(lab.subnet)}",
        f"--machine={host.machine}",
        f"--hostname={host.name}",
        "--resolv-conf=off",
        "--timezone=off",
        "--console=pipe",
        "--link-journal=no",
    ]
    log = str(folder / "console.log")
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawnp(
        argv[0],
        argv,
        {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, append, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,  # Ctrl-C in the terminal is not meant for the hosts
    )
    return replace(host, container=Process.of(pid))


def init(host: LabHost) -> int | None:
    """Return the host's PID 1 as this computer numbers it, or None when the host is off."""
    if host.container is None or not host.container.alive():
        return None
    below = _children(host.container.pid)
    deeper = [child for nspawn in below for child in _children(nspawn)]
    return next((child for child in [*below, *deeper] if _pid_in_namespace(child) == 1), None)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(child) for child in path.read_text().split()]
    return found


def _pid_in_namespace(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    line = next((x for x in status.splitlines() if x.startswith("NSpid:")), "NSpid:\t0")
    return int(line.split()[-1])


def kill(host: LabHost, clock: Clock | None = None) -> None:
    """Cut the power: every process of the host ends at once; the disk keeps what it had."""
    clock = clock or SystemClock()
    pid = init(host)
    if pid is not None:
        _signal(pid, signal.SIGKILL)
    end = clock.monotonic() + 10
    while host.container and host.container.alive():
        if pid is None or clock.monotonic() > end:
            _signal(-host.container.pid, signal.SIGKILL)  # its process group
        clock.sleep(0.02)
    if host.container:
        with suppress(ChildProcessError):  # whoever booted it may be another process
            os.waitpid(host.container.pid, os.WNOHANG)
    if not cgroup.booted_with_systemd():
        for straggler in cgroup.members(host.machine):
            _signal(straggler, signal.SIGKILL)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def unmount(lab: Lab, host: LabHost) -> None:
    """Unmount the host's tree."""
    root = lab.folder(host) / "root"
    for _ in range(50):
        if not os.path.ismount(root):
            return
        if shell.run(["umount", root], check=False).returncode == 0:
            return
        time.sleep(0.1)
    shell.run(["umount", "--lazy", root], check=False)


def wait_for_init(host: LabHost, seconds: float = 20, clock: Clock | None = None) -> int:
    """Return the host's PID 1 once it is there; raise FleetError with the container's last words."""
    clock = clock or SystemClock()
    end = clock.monotonic() + seconds
    while clock.monotonic() < end:
        pid = init(host)
        if pid is not None:
            return pid
        if host.container is None or not host.container.alive():
            break
        clock.sleep(0.02)
    raise shell.failed(f"booting {host.name}", "the container ended or never started")


def enter(host: LabHost, argv: Sequence[str]) -> list[str]:
    """Return the command that runs ``argv`` as root inside the host, without its network or sshd."""
    pid = init(host)
    if pid is None:
        raise shell.failed(
            f"entering {host.name}", "the host is off", "fleetctl lab fault HOST boot"
        )
    clean = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"]
    # The clock is this computer's own; the host's init lacks that capability, so must who enters.
    less = ["setpriv", "--bounding-set=-sys_time", "--"]
    return ["nsenter", f"--target={pid}", "--all", "--wdns=/root", "--", *less, *clean, *argv]
