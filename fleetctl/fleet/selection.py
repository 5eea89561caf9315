"""From a selector of the command line to hosts."""

from __future__ import annotations

import re

from fleetctl.config import snapshot
from fleetctl.config.select import select
from fleetctl.model.fleet import Host

_COMMA = re.compile(r",(?![^\[]*\])")  # outside brackets


def hosts_of(*selectors: str) -> list[Host]:
    """Return the hosts that selectors pick, each once, in the order of the inventory.

    A selector may hold several, with commas; ``--all`` is every host. Raises UsageError for names
    that are not there, ConfigError for an inventory that is wrong.
    """
    patterns = [p for text in selectors for p in _COMMA.split(text) if p]
    targets = select(snapshot.hosts(), patterns)
    return list({t.host.name: t.host for t in targets}.values())
