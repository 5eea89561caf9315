"""Secrets that a profile gives as plain values: told before they are written where all can read them."""

from __future__ import annotations

import re

from fleetctl.model.fleet import Profile

FLAGS = ("api-key", "admin-api-key", "ssl-keyfile-password")
_VARIABLE = re.compile(r".*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)")


def warnings(profile: Profile) -> tuple[str, ...]:
    """Return a line for each flag and variable whose name says that its value is a secret."""
    flags = [f"--{n}" for n in FLAGS if isinstance(profile.flags.get(n), str) and profile.flags[n]]
    names = [n for n, value in profile.env.items() if value and _VARIABLE.fullmatch(n)]
    told = [(name, "the unit, its records and ps show it") for name in flags]
    told += [(name, "the environment file and the records show it") for name in names]
    return tuple(
        f"{name} is given in the open: {where}; name it under secrets: instead"
        for name, where in told
    )
