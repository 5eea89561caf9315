"""The rules that a command goes by: built in, of the site, and of ``--rules``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.triage.rule import Rules


def chosen(folders: Sequence[Path] | None) -> Rules:
    """Return the built-in rules, then those of the site's ``rules/``, then those of the folders."""
    from fleetctl.config.places import site_folder
    from fleetctl.errors import ConfigError
    from fleetctl.triage.sites import rule_set

    try:
        site = site_folder() / "rules"
    except ConfigError:
        return rule_set(tuple(folders or ()))  # no site anywhere is no fault here
    own = (site,) if site.is_dir() else ()
    return rule_set((*own, *(folders or ())))
