"""Reads the flag schema of an SGLang that lies on this computer, without importing it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleetctl.errors import ConfigError
from fleetctl.remote import env_reader, flag_reader, sglang_tree


def read_json(path: Path, *, env_everywhere: bool = True) -> dict[str, Any]:
    """Return the schema object (``fleetctl.flags/1``) of a wheel, an installed tree or a checkout.

    ``env_everywhere=False`` leaves out the environment variables that stand outside ``environ.py``.
    Raises ConfigError when there is no SGLang, or none whose layout is known.
    """
    tree = sglang_tree.find(str(path))
    if tree is None:
        raise ConfigError(
            "no-sglang-tree",
            "no SGLang package here",
            where=str(path),
            hint="name a wheel, a virtual environment, site-packages, or a checkout's folder",
        )
    try:
        flags = flag_reader.read_flags(tree)
    except (flag_reader.UnknownLayout, SyntaxError) as error:
        raise ConfigError(
            "unknown-flag-layout",
            f"cannot read the flags: {error}",
            where=str(path),
            hint="give a schema file instead (profile: sglang: {schema: FILE})",
        ) from error
    return {
        "schema": flag_reader.SCHEMA,
        "version": sglang_tree.version(tree),
        "digest": sglang_tree.digest(tree),
        "flags": flags,
        "env": env_reader.read_env(tree, everywhere=env_everywhere),
    }
