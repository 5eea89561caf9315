"""What the lab needs of this computer, said before anything is tried."""

from __future__ import annotations

import os
import shutil
import sys
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
