"""What a lab tells of itself: the object behind ``fleetctl lab status --json`` (docs/json.md)."""

from __future__ import annotations

from typing import Any

from fleetctl.lab import container, spec
from fleetctl.lab.state import SCHEMA, Lab, LabHost


def describe(lab: Lab) -> dict[str, Any]:
    """Return the documented object of one lab, with each host's state as it is now."""
    ssh = f"ssh -i {lab.key} -o UserKnownHostsFile={lab.known_hosts} ops@ADDRESS"
    return {
        "schema": SCHEMA,
        "name": lab.name,
        "network": f"10.77.{lab.subnet}.0/24",
        "gateway": spec.gateway(lab.subnet),
        "folder": str(lab.root),
        "site": str(lab.site),
        "key": str(lab.key),
        "known_hosts": str(lab.known_hosts),
        "ssh": ssh,
        "stale": bool(lab.owner and not lab.owner.alive()),
        "hosts": [_host(lab, host) for host in lab.hosts],
    }


def _host(lab: Lab, host: LabHost) -> dict[str, Any]:
    pid = container.init(host)
    return {
        "name": host.name,
        "address": host.address,
        "engine": host.engine,
        "version": host.version or None,
        "levers": list(host.levers),
        "state": "off" if pid is None else "on",
        "pid": pid,
        "cable": f"vb-{host.machine}",
        "console": str(lab.folder(host) / "console.log"),
    }
