"""The hosts of a run: made on this machine (a GPU server), or those of a lab (to try the driver)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STATE = Path("/var/lib/fleet-hosts")
FIRST_SSH = 2222
FIRST_HTTP = 30000
UP_SECONDS = 60.0


@dataclass(frozen=True)
class Bed:
    """Hosts by name, with what the inventory says of each; ``gpu``: profiles for a GPU."""

    gpu: bool
    defaults: dict[str, Any]
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def write(self, site: Path) -> None:
        """Write the site afresh."""
        profiles = site / "profiles"
        shutil.rmtree(profiles, ignore_errors=True)
        profiles.mkdir(parents=True)
        kind = HERE / "profiles" / ("gpu" if self.gpu else "cpu")
        for folder in (HERE / "profiles", kind):
            for path in folder.glob("*.yaml"):
                shutil.copy(path, profiles)
        text = json.dumps({"defaults": self.defaults, "hosts": self.hosts}, indent=1)
        (site / "hosts.yaml").write_text(text + "\n")  # JSON is YAML

    def url(self, host: str) -> str:
        """Return where the host's service answers."""
        port = self.hosts[host].get("services", {}).get("main", {}).get("port", FIRST_HTTP)
        return f"http://{self.hosts[host]['address']}:{port}"


def machine(names: Sequence[str], known_hosts: Path, made: str) -> Bed:
    """Bring hosts up on this machine, where they are not up yet.

    ``made`` names the ``/opt/sglang`` below them: a host from before is made anew.
    """
    defaults = {
        "user": "ops", "become": "sudo", "gpus": 1, "key": str(STATE / "key"),
        "known_hosts": str(known_hosts), "groups": ["gpu"],
    }  # fmt: skip
    bed = Bed(True, defaults)
    env = os.environ | {"BUNDLE": str(Path(os.environ["BUNDLES"]).absolute() / "host.tar.xz")}
    known_hosts.unlink(missing_ok=True)  # a host that was made anew has another key
    for number, name in enumerate(names):
        port = FIRST_SSH + number
        _renewed(name, made)
        subprocess.run(
            [HERE / "host-up.sh", "up", name, str(port)], env=env, check=True, timeout=UP_SECONDS
        )
        # Each server opens more ports near its own.
        service = {"main": {"gpus": [0], "port": FIRST_HTTP + 1000 * number}}
        bed.hosts[name] = {"address": "127.0.0.1", "port": port, "services": service}
    return bed


def down(names: Sequence[str]) -> None:
    """Power hosts off."""
    for name in names:
        if (STATE / name / "pid").exists():
            subprocess.run([HERE / "host-up.sh", "down", name], check=False, timeout=UP_SECONDS)


def forget(names: Sequence[str]) -> None:
    """Power hosts off and take away what they wrote, their keys among it."""
    down(names)
    for name in names:
        folder = STATE / name
        if folder.is_mount():
            subprocess.run(["umount", "-l", folder], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _renewed(name: str, made: str) -> None:
    """Forget a host that lies over another ``/opt/sglang`` than the one that is there now."""
    said = STATE / f"{name}.made"  # beside its folder, which may become a mount
    before = said.read_text() if said.exists() else ""
    if (STATE / name / "up").exists() and before != made:
        forget([name])
    STATE.mkdir(parents=True, exist_ok=True)
    said.write_text(made)


def lab(folder: Path) -> Bed:
    """Return the hosts of a lab's site; they need engine ``sglang``."""
    inventory = json.loads((folder / "hosts.yaml").read_text())
    return Bed(False, inventory["defaults"], inventory["hosts"])
