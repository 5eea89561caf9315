"""The private network of a lab: one bridge, one /24, nothing routed anywhere."""

from __future__ import annotations

import json
from typing import Any

from fleetctl.lab import shell, spec


def taken() -> set[int]:
    """Return the numbers N for which 10.77.N.0/24 or its bridge is on this computer already."""
    links: list[dict[str, Any]] = json.loads(shell.run(["ip", "-j", "addr"]).stdout or "[]")
    addresses = [a.get("local", "") for link in links for a in link.get("addr_info", [])]
    used = {int(a.split(".")[2]) for a in addresses if a.startswith("10.77.")}
    names = [link.get("ifname", "") for link in links]
    return used | {int(n[5:]) for n in names if n.startswith("fclab") and n[5:].isdigit()}


def up(subnet: int) -> None:
    """Make the bridge of a lab; one that is there already is taken as it is."""
    bridge = spec.bridge(subnet)
    if shell.run(["ip", "link", "show", bridge], check=False).returncode == 0:
        return
    shell.run(["ip", "link", "add", bridge, "type", "bridge"], doing="making the bridge of the lab")
    shell.run(["ip", "addr", "add", f"{spec.gateway(subnet)}/24", "dev", bridge])
    shell.run(["ip", "link", "set", bridge, "up"])


def down(subnet: int) -> None:
    """Remove the bridge of a lab, if it is there."""
    shell.run(["ip", "link", "del", spec.bridge(subnet)], check=False)


def port(machine: str) -> str:
    """Return the name of the bridge's side of a host's cable."""
    return f"vb-{machine}"
