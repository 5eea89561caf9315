"""Names of hosts, groups and profiles without a full reading: for completion in a shell."""

from __future__ import annotations

from pathlib import Path

from fleetctl.config import places
from fleetctl.config.nodes import load
from fleetctl.config.ranges import expand
from fleetctl.errors import FleetError


def profile_names() -> list[str]:
    """Return the profiles of the site at hand, sorted; nothing where there is none."""
    folder = _root() / "profiles"
    return sorted({p.stem for p in folder.glob("*") if p.suffix in (".yaml", ".yml")})


def selectors() -> list[str]:
    """Return hosts, ``host/service`` where a host has several, and @groups; nothing on a fault."""
    try:
        value = load(_root() / "hosts.yaml").value
    except FleetError:
        return []
    found: list[str] = []
    groups: set[str] = set()
    for key, entry in (value.get("hosts") or {}).items():
        entry = entry if isinstance(entry, dict) else {}
        try:
            names = [n.name for n in expand(key)]
        except ValueError:
            continue
        found += names
        services = entry.get("services")
        if isinstance(services, dict) and len(services) > 1:
            found += [f"{name}/{service}" for name in names for service in services]
        listed = entry.get("groups")
        groups |= set(listed if isinstance(listed, list) else [listed] if listed else [])
    return found + sorted(f"@{g}" for g in groups)


def _root() -> Path:
    try:
        return places.site_folder()
    except FleetError:
        return Path("/nonexistent")
