"""One flag under two spellings: what was written later counts, as it does under one spelling."""

from __future__ import annotations

from fleetctl.config import flagsets
from fleetctl.config.profiles import Merge
from fleetctl.engines.sglang.schema import Flag, Schema
from fleetctl.errors import ConfigError
from fleetctl.model.fleet import Origin


def settle(merge: Merge, schema: str) -> None:
    """Drop each flag that a later layer or option gives under another spelling.

    Two spellings in one file stay: that is for lint to say. ``schema`` is the profile's own; the
    newest release stands in for one that only the host knows. Raises ConfigError for a bad file.
    """
    if len({_layer(merge, name) for name in merge.flags}) < 2:
        return
    known = _schema(schema)
    latest: dict[str, str] = {}
    for name in list(merge.flags):  # in the order in which they were last written
        flag = _find(known, name)
        if flag is None:
            continue
        other = latest.get(flag.dest)
        if other is not None and _layer(merge, other) != _layer(merge, name):
            del merge.flags[other]
            del merge.origins[f"flags.{other}"]
        latest[flag.dest] = name


def _layer(merge: Merge, name: str) -> str:
    return merge.origins.get(f"flags.{name}", Origin("")).profile


def _schema(text: str) -> Schema:
    if text != flagsets.INSTALLED:
        try:
            return flagsets.named(text)
        except ConfigError as error:
            if error.reference != "no-schema":
                raise
    return flagsets.newest()


def _find(schema: Schema, name: str) -> Flag | None:
    """Return the flag of a spelling, or of the beginning of exactly one (argparse's rule)."""
    found = schema.find(name)
    if found is not None:
        return found
    flags = {id(schema.flags[n]): schema.flags[n] for n in schema.prefixed(f"--{name}")}
    return next(iter(flags.values())) if len(flags) == 1 else None
