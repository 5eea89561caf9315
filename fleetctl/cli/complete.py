"""What a shell completes: hosts, services, groups, profiles. Never a fault, nothing heavy."""

from __future__ import annotations

import contextlib


def hosts(incomplete: str) -> list[str]:
    """Return the selectors that begin so."""
    from fleetctl.config.names import selectors

    return [s for s in selectors() if s.startswith(incomplete)]


def profiles(incomplete: str) -> list[str]:
    """Return the profiles that begin so."""
    from fleetctl.config.names import profile_names

    return [p for p in profile_names() if p.startswith(incomplete)]


def patches(incomplete: str) -> list[str]:
    """Return the patches that begin so."""
    from fleetctl.config import places
    from fleetctl.errors import FleetError

    folders = [places.packaged("patches")]
    with contextlib.suppress(FleetError):
        folders.append(places.site_folder() / "patches")
    names = {p.parent.name for f in folders for p in f.glob("*/patch.toml")}
    return sorted(n for n in names if n.startswith(incomplete))


def patches_and_hosts(incomplete: str) -> list[str]:
    """Return the patches, then the selectors, that begin so."""
    return [*patches(incomplete), *hosts(incomplete)]
