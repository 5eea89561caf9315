"""Secrets that are given as plain values: no command line carries one, and of a variable it is told."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fleetctl.errors import ConfigError
from fleetctl.model.fleet import Origin, Profile

FLAGS = ("api-key", "admin-api-key", "ssl-keyfile-password")
_VARIABLE = re.compile(r".*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)")


def faults(
    given: Mapping[str, Any], origins: Mapping[str, Origin]
) -> Iterator[tuple[str, ConfigError]]:
    """Yield each flag whose plain value would stand in the unit, in records and in ps, with its fault."""
    for name in FLAGS:
        value = given.get(name)
        if not isinstance(value, str) or not value:
            continue
        origin = origins.get(f"flags.{name}")
        reference = f"secrets: {{flags: {{{name}: {{env: VARIABLE}}}}}}"
        yield (
            name,
            ConfigError(
                "secret-in-the-open",
                f"--{name} is a secret: in a command line every user of the host reads it",
                where=origin.where.removesuffix(f"={value}") if origin else "",  # as of --set
                hint=f"give it by reference, {reference}; a key that was written openly should be changed",
            ),
        )


def refuse(given: Mapping[str, Any], origins: Mapping[str, Origin]) -> None:
    """Raise the first of them: ConfigError ``secret-in-the-open``."""
    for _, fault in faults(given, origins):
        raise fault


def warnings(profile: Profile) -> tuple[str, ...]:
    """Return a line for each variable whose name says that its value is a secret."""
    names = [n for n, value in profile.env.items() if value and _VARIABLE.fullmatch(n)]
    return tuple(
        f"{name} is given in the open: the environment file and the records show it; "
        "name it under secrets: instead"
        for name in names
    )
