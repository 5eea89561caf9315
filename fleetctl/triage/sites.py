"""The rules of this run: the built-in packs and further folders of packs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleetctl.errors import ConfigError
from fleetctl.triage.rule import Rules, builtin


def rule_set(folders: Sequence[Path] = ()) -> Rules:
    """Return the rules to use; a later pack replaces a rule of the same id.

    Raises:
        ConfigError: a folder does not exist or holds a rule that is not right.
    """
    rules = builtin()
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError("no-such-rules", "is no folder of rule packs", where=str(folder))
        from fleetctl.triage import packs

        more, _ = packs.load(folder)
        rules = rules.with_more(more.rules, more.digest)
    return rules
