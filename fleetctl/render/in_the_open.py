"""Secrets that are given as plain values: no command line carries one, and of a variable it is told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fleetctl.errors import ConfigError
from fleetctl.model.fleet import Origin, Profile

FLAGS = ("api-key", "admin-api-key", "ssl-keyfile-password")
_VARIABLE = re.compile(r".*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)")


def flags(given: Mapping[str, Any]) -> list[str]:
    """Return the flags whose plain value would stand in the unit, in records and in ps."""
    return [n for n in FLAGS if isinstance(given.get(n), str) and given[n]]


def fault(name: str) -> tuple[str, str]:
    """Return what is wrong with such a flag, and how to go on."""
    reference = f"secrets: {{flags: {{{name}: {{env: VARIABLE}}}}}}"
    return (
        f"--{name} is a secret: in a command line every user of the host reads it",
        f"give it by reference, {reference}; a key that was written openly should be changed",
    )


def refuse(given: Mapping[str, Any], origins: Mapping[str, Origin]) -> None:
    """Raise ConfigError ``secret-in-the-open`` for the first of them."""
    for name in flags(given):
        origin = origins.get(f"flags.{name}")
        where = origin.where.removesuffix(f"={given[name]}") if origin else ""  # as of --set
        message, hint = fault(name)
        raise ConfigError("secret-in-the-open", message, where=where, hint=hint)


def warnings(profile: Profile) -> tuple[str, ...]:
    """Return a line for each variable whose name says that its value is a secret."""
    names = [n for n, value in profile.env.items() if value and _VARIABLE.fullmatch(n)]
    return tuple(
        f"{name} is given in the open: the environment file and the records show it; "
        "name it under secrets: instead"
        for name in names
    )
