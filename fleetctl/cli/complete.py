"""What a shell completes: hosts, services, groups, profiles. Never a fault, nothing heavy."""

from __future__ import annotations


def hosts(incomplete: str) -> list[str]:
    """Return the selectors that begin so."""
    from fleetctl.config.names import selectors

    return [s for s in selectors() if s.startswith(incomplete)]


def profiles(incomplete: str) -> list[str]:
    """Return the profiles that begin so."""
    from fleetctl.config.names import profile_names

    return [p for p in profile_names() if p.startswith(incomplete)]
