"""YAML that people go on to edit: what ``profiles save-as`` and ``init`` write."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleetctl.config import places
from fleetctl.config.nodes import Plain, as_bool, is_null, parse, shown_path
from fleetctl.config.profiles import check_name
from fleetctl.config.site import Site
from fleetctl.errors import ConfigError, UsageError
from fleetctl.model.fleet import Profile

_WORD = re.compile(r"[A-Za-z0-9_/.+-][A-Za-z0-9_/.+@-]*")


def scalar(value: Any) -> str:
    """Return a value as YAML: as it would be typed where that reads back the same, else quoted."""
    if value is True:
        return "true"
    if value is None or value is False:
        return "null"
    if isinstance(value, Mapping):
        return _quoted(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(scalar(v) for v in value)}]"
    text = str(value)
    if _WORD.fullmatch(text) and not is_null(Plain(text)) and as_bool(Plain(text)) is None:
        return text
    return _quoted(text)


def _quoted(value: Any) -> str:
    """Return JSON that YAML reads the same: it escapes what YAML calls unprintable or a line break."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else _escape(ord(c)) for c in text)


def _escape(code: int) -> str:
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def section(name: str, values: Mapping[str, Any]) -> list[str]:
    """Return ``name:`` and an indented line for each value; nothing for no values."""
    return [f"{name}:", *(f"  {k}: {scalar(v)}" for k, v in values.items())] if values else []


def delta(base: Profile, changed: Profile) -> list[str]:
    """Return the lines of a profile that extends ``base`` and merges to ``changed``."""
    lines: list[str] = []
    if changed.model != base.model:
        lines.append(f"model: {scalar(changed.model)}")
    for name in ("flags", "env", "unit"):
        old, new = getattr(base, name), getattr(changed, name)
        values = {k: v for k, v in new.items() if k not in old or old[k] != v}
        secret, kept = {
            "flags": (base.secret_flags, changed.secret_flags),
            "env": (base.secret_env, changed.secret_env),
        }.get(name, ({}, {}))
        gone = [k for k in (*old, *secret) if k not in new and k not in kept]
        values |= dict.fromkeys(gone)
        lines += section(name, values)
    return lines


def save_as(
    site: Site, name: str, base: str, sets: list[str], unsets: list[str], *, force: bool = False
) -> Path:
    """Write a profile that extends another by ``--set`` and ``--unset``; return its file.

    Raises UsageError ``profile-exists`` where it is there and ``force`` is off, and ``no-site`` where
    there is nothing but the program's own example.
    """
    check_name(name)
    if places.only_example() and site.root == places.packaged("inventories") / "example":
        raise UsageError(
            "no-site",
            "no site is near, and the packaged example is not written to",
            hint="`fleetctl init` writes a first inventory; --site DIR names one",
        )
    path = site.root / "profiles" / f"{name}.yaml"
    if name in site.profile_names() and not force:
        raise UsageError(
            "profile-exists",
            f"{name} is there already",
            where=shown_path(site.profile_path(name)),
            hint="another name, or --force to write over it",
        )
    if name == base or (force and name in site.lineage(base)):
        raise UsageError("extends-cycle", f"{name} would extend itself")
    changed = site.profile(base, sets, unsets)
    original = site.profile(base)
    lines = [f"name: {name}", f"extends: {base}", *delta(original, changed)]
    write_text(path, "\n".join(lines) + "\n")
    return path


def write_text(path: Path, text: str) -> Path:
    """Write a YAML file of the site atomically, after reading it back. Raises ConfigError."""
    parse(text, path)
    return write_text_as_is(path, text)


def write_text_as_is(path: Path, text: str, mode: int = 0o644) -> Path:
    """Write a file on this machine atomically and return its path. Raises ConfigError ``unwritable``."""
    return write_bytes(path, text.encode(), mode)


def write_bytes(path: Path, data: bytes, mode: int = 0o644) -> Path:
    """Write a file on this machine atomically and return its path. Raises ConfigError ``unwritable``.

    What is there and no file (a pipe, ``/dev/stdout``) is written to as it is.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return path
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name[:100]}.", delete=False
        ) as file:
            file.write(data)
        Path(file.name).chmod(mode)
        Path(file.name).replace(path)
    except OSError as error:
        raise ConfigError(
            "unwritable", error.strerror or str(error), where=shown_path(path)
        ) from error
    return path
