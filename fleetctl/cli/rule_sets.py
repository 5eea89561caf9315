"""The rules that a command goes by: built in, of the site, and of ``--rules``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.triage.rule import Rules


def chosen(folders: Sequence[Path] | None) -> Rules:
    """Return the built-in rules, then those of the site's ``rules/``, then those of the folders.

    Raises ConfigError ``no-such-rules`` for a folder that is none or holds no rule.
    """
    from fleetctl.config.places import site_folder
    from fleetctl.errors import ConfigError
    from fleetctl.triage.sites import rule_set

    for folder in folders or ():
        named(folder)
    try:
        site = site_folder() / "rules"
    except ConfigError:
        return rule_set(tuple(folders or ()))  # no site anywhere is no fault here
    own = (site,) if site.is_dir() else ()
    return rule_set((*own, *(folders or ())))


def named(folder: Path) -> Path:
    """Return a folder that somebody named, which must hold a rule: a mistyped one would pass in silence."""
    from fleetctl.errors import ConfigError

    if not folder.is_dir():
        raise ConfigError("no-such-rules", "is no folder of rule packs", where=str(folder))
    if next(folder.rglob("*.toml"), None) is None:
        raise ConfigError(
            "no-such-rules", "holds no rule", where=str(folder),
            hint="a rule is PACK/ID.toml below it; `fleetctl rules new` writes one",
        )  # fmt: skip
    return folder
