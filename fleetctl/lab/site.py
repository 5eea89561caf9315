"""The site that belongs to a lab: an inventory with its addresses and keys, and the lab's profiles."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from fleetctl.config import places
from fleetctl.lab.state import Lab


def inventory(lab: Lab) -> dict[str, Any]:
    """Return the inventory of a lab as an object; JSON is YAML, so it is written as JSON."""
    defaults = {
        "user": "ops",
        "become": "sudo",
        "key": str(lab.key),
        "known_hosts": str(lab.known_hosts),
    }
    hosts = {host.name: {"address": host.address, "groups": [host.engine]} for host in lab.hosts}
    return {"defaults": defaults, "hosts": hosts}


def write(lab: Lab) -> Path:
    """Write the lab's site afresh and return its folder. Profiles that somebody added stay."""
    profiles = lab.site / "profiles"
    profiles.mkdir(parents=True, exist_ok=True)
    (lab.site / "hosts.yaml").write_text(json.dumps(inventory(lab), indent=2) + "\n")
    for profile in sorted((places.packaged("inventories") / "lab/profiles").glob("*.yaml")):
        shutil.copyfile(profile, profiles / profile.name)
    return lab.site
