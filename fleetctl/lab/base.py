"""The root file system under every host: Debian with systemd and sshd, built once and never changed."""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from fleetctl.lab import paths, shell

SUITE = "bookworm"
PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "openssh-server",
    "python3",
    "iproute2",
    "procps",
    "sudo",
)
WHAT = "root file system of the hosts: 61 MB of Debian packages, 208 MB on disk"

# Without these a host is `degraded`, or spends its first seconds on work that no lab needs.
MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "dpkg-db-backup.timer",
    "fstrim.timer",
    "console-getty.service",
    "getty@.service",
    "systemd-networkd-wait-online.service",
    "systemd-resolved.service",
)
NETWORK_UNIT = """\
[Unit]
Description=static address on host0
DefaultDependencies=no
Before=network.target ssh.service

[Service]
Type=oneshot
RemainAfterExit=yes
EnvironmentFile=/etc/lab-net.env
ExecStart=-/bin/ip link set lo up
ExecStart=/bin/ip addr add $ADDR dev host0
ExecStart=/bin/ip link set host0 up
ExecStart=/bin/ip route add default via $GW

[Install]
WantedBy=multi-user.target
"""
SSHD = """\
PermitRootLogin prohibit-password
PasswordAuthentication no
UseDNS no
MaxStartups 100:30:200
MaxSessions 100
"""


def recipe() -> str:
    """Return a short hash of all that decides what is built; a changed recipe is a new folder."""
    text = inspect.getsource(sys.modules[__name__])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def folder() -> Path:
    """Return where the root file system is, or will be."""
    return paths.cache() / f"base-{SUITE}-{recipe()}"


def ensure(say: Callable[[str], None]) -> Path:
    """Return the root file system, building it first where it is missing (about 35 s)."""
    done = folder()
    if done.is_dir():
        os.utime(done)
        return done
    with paths.locked(done):
        if not done.is_dir():
            say(f"building the {WHAT}")
            fresh = done.with_suffix(".part")
            shell.run(["rm", "-rf", "--one-file-system", fresh])
            _bootstrap(fresh)
            _prepare(fresh)
            fresh.rename(done)
    return done


def _bootstrap(root: Path) -> None:
    root.parent.mkdir(parents=True, exist_ok=True)
    exclude = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")
    shell.run(
        [
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            *(f"--dpkgopt=path-exclude={glob}" for glob in exclude),
            f"--include={','.join(PACKAGES)}",
            SUITE,
            root,
        ],
        timeout=1200,
        doing="mmdebstrap (root file system of the lab hosts)",
        hint="is the Debian mirror reachable? `apt-get update` says so; then run the same command again",
    )


def _prepare(root: Path) -> None:
    """Make the tree a good lower layer: no identity of its own, nothing that starts without need."""
    for pattern in ("var/cache/apt/*", "var/lib/apt/lists/*", "etc/ssh/ssh_host_*"):
        for path in root.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (root / "var/lib/dbus/machine-id").unlink(missing_ok=True)
    (root / "etc/machine-id").write_text("")
    (root / "var/log/journal").mkdir(exist_ok=True)
    (root / "etc/ssh/sshd_config.d/lab.conf").write_text(SSHD)
    units = root / "etc/systemd/system"
    for unit in MASKED:
        (units / unit).symlink_to("/dev/null")
    (units / "lab-net.service").write_text(NETWORK_UNIT)
    wants = units / "multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / "lab-net.service").symlink_to("/etc/systemd/system/lab-net.service")
    _users(root)
    nsswitch = root / "etc/nsswitch.conf"
    lines = nsswitch.read_text().splitlines()
    # A look-up that asks DNS waits 10 s each time; SGLang does several of them while it starts.
    fixed = ["hosts: files" if line.startswith("hosts:") else line for line in lines]
    nsswitch.write_text("\n".join(fixed) + "\n")


def _users(root: Path) -> None:
    """Add ``ops`` (sudo without a password) and ``visitor`` (sudo asks for one that nobody has)."""
    for user in ("ops", "visitor"):
        shell.run(["chroot", root, "useradd", "--create-home", "--shell", "/bin/bash", user])
    for home in ("root", "home/ops", "home/visitor"):
        (root / home / ".ssh").mkdir(mode=0o700, exist_ok=True)
    for user in ("ops", "visitor"):
        shell.run(["chroot", root, "chown", f"{user}:{user}", f"/home/{user}/.ssh"])
    sudoers = root / "etc/sudoers.d/lab"
    sudoers.write_text("ops ALL=(ALL) NOPASSWD: ALL\nvisitor ALL=(ALL) ALL\n")
    sudoers.chmod(0o440)
