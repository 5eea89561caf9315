"""What the lab needs of this computer, said before anything is tried."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from fleetctl.errors import FleetError

PROGRAMS = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "nft": "nftables",
    "ip": "iproute2",
    "tc": "iproute2",
    "ssh-keygen": "openssh-client",
    "nsenter": "util-linux",
}

WATCHES = Path("/proc/sys/fs/inotify/max_user_instances")
WATCHES_WANTED = 1024


def why_not() -> str:
    """Return why the lab cannot run here, or an empty text. Cheap: asks no network and starts nothing."""
    if not sys.platform.startswith("linux"):
        return f"the lab makes systemd hosts and needs Linux (this is {sys.platform})"
    if os.geteuid() != 0:
        return "the lab mounts overlays and starts containers: it needs root"
    if not Path("/proc/filesystems").read_text().count("\toverlay\n"):
        return "the kernel has no overlay file system"
    missing = missing_packages()
    if missing:
        return f"missing Debian packages: {' '.join(missing)}"
    return ""


def missing_packages() -> list[str]:
    """Return the Debian packages whose programs are not on the PATH."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return sorted({pkg for prog, pkg in PROGRAMS.items() if not shutil.which(prog, path=path)})


def require() -> None:
    """Raise FleetError ``lab-not-possible`` with the reason and what to do."""
    reason = why_not()
    if not reason:
        return
    missing = missing_packages() if sys.platform.startswith("linux") else []
    hint = f"apt-get install {' '.join(missing)}" if missing and os.geteuid() == 0 else ""
    raise FleetError(
        "lab-not-possible",
        reason,
        hint=hint or "everything but the lab works without it; see docs/howto/lab.md",
    )


def room_for_watches(say: Callable[[str], None], setting: Path = WATCHES) -> None:
    """Raise the kernel's limit of inotify instances, which all hosts of this computer share.

    Each host's systemd and journald take about five; with the kernel's 128 (inotify(7)) the 27th
    host dies at its start. Only ever raised; a computer that does not let it be is left alone.
    """
    try:
        if int(setting.read_text()) < WATCHES_WANTED:
            setting.write_text(str(WATCHES_WANTED))
            say(f"raised {setting} to {WATCHES_WANTED}, for many hosts at once")
    except (OSError, ValueError):
        return
