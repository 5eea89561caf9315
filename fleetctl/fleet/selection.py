"""From a selector of the command line to hosts."""

from __future__ import annotations

from fleetctl.config import snapshot
from fleetctl.config.select import select_hosts
from fleetctl.model.fleet import Host


def hosts_of(*selectors: str) -> list[Host]:
    """Return the hosts that selectors pick, each once, in the order of the inventory.

    A selector may hold several, with commas; ``--all`` is every host. Raises UsageError for names
    that are not there, ConfigError for an inventory that is wrong.
    """
    return select_hosts(snapshot.hosts(), selectors)
