"""What a site expects of its hosts: ``doctor.yaml`` beside hosts.yaml, plain values, later globs win.

gpus: 8
driver: ">=580"
skip: [py-spy-missing]
hosts:
  "rtx-*": {gpus: 4, shm: 8GiB}
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from fleetctl.doctor.ids import IDS
from fleetctl.errors import ConfigError, FleetError, UsageError

GIB = 1024**3
UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": GIB, "T": 1024**4}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?")


@dataclass(frozen=True, slots=True)
class Expect:
    """Expectations; None is not looked at. Sizes are bytes, times seconds."""

    gpus: int | None = None
    gpu: str | None = None  # a glob over the model's name
    driver: str | None = None  # version specifiers, as in ">=580,<600"
    sglang: str | None = None
    torch: str | None = None
    kernel: str | None = None
    fabric: bool | None = None  # NVLink fabric is wanted
    shm: int = GIB
    disk: int = 2 * GIB  # free on each path that matters
    disk_paths: tuple[str, ...] = ()
    nofile: int = 65536
    clock: float = 2.0
    skip: tuple[str, ...] = ()


DEFAULT = Expect()
_VERSIONS = 'a version, or what it must satisfy as in ">=580"'
WANTED = {
    "gpus": "a number", "nofile": "a number", "clock": "a number of seconds", "gpu": "a name or a glob",
    "fabric": "true or false", "shm": "a size as in 32GiB", "disk": "a size as in 20GiB",
    "skip": "a list of findings", "disk_paths": "a list of paths",
} | dict.fromkeys(("driver", "sglang", "torch", "kernel"), _VERSIONS)  # fmt: skip


def parse(value: Mapping[str, Any], host: str, where: str = "doctor.yaml") -> Expect:
    """Return what is expected of one host. ConfigError ``bad-expectation`` for an unknown or wrong value."""
    found = _merged(DEFAULT, {k: v for k, v in value.items() if k != "hosts"}, where)
    hosts = value.get("hosts") or {}
    if not isinstance(hosts, Mapping):
        raise ConfigError(
            "bad-expectation", "hosts: a mapping of globs is wanted", where=where,
            hint='as in `hosts: {"rtx-*": {gpus: 4}}`',
        )  # fmt: skip
    for pattern, own in hosts.items():
        if not isinstance(own, Mapping):
            raise ConfigError(
                "bad-expectation", f"hosts: {pattern}: a mapping is wanted", where=where
            )
        checked = _merged(found, own, f"{where}: hosts: {pattern}")
        found = checked if fnmatch.fnmatchcase(host, str(pattern)) else found
    return found


def _merged(base: Expect, value: Mapping[str, Any], where: str) -> Expect:
    known = {f.name for f in fields(Expect)}
    changes: dict[str, Any] = {}
    for key, raw in value.items():
        name = str(key).replace("-", "_")
        if name not in known:
            raise ConfigError(
                "bad-expectation", f"{key!r} is not known", where=where,
                hint=f"known are {', '.join(sorted(k.replace('_', '-') for k in known))}",
            )  # fmt: skip
        changes[name] = _value(name, raw, where)
    return replace(base, **changes)


def _value(name: str, raw: Any, where: str) -> Any:
    try:
        if name in ("skip", "disk_paths"):
            if isinstance(raw, Mapping):
                raise ValueError(name)
            words = tuple(str(v) for v in ([raw] if isinstance(raw, str) else raw))
            if name == "skip":
                known(words, where, ConfigError)
            return words
        if name in ("shm", "disk"):
            return size(str(raw))
        if name in ("gpus", "nofile"):
            return int(raw)
        if name == "clock":
            return float(raw)
        if name == "fabric":
            return {"true": True, "false": False}[str(raw).lower()]
        if name in ("driver", "sglang", "torch", "kernel"):
            _specifiers(str(raw))
        return str(raw)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            "bad-expectation",
            f"{name.replace('_', '-')}: {raw!r} is not understood",
            where=where,
            hint=f"{WANTED[name]} is wanted",
        ) from error


def known(ids: Iterable[str], where: str = "", kind: type[FleetError] = UsageError) -> None:
    """Raise ``unknown-check``, of that kind, for an id that no check has."""
    for one in ids:
        if one not in IDS:
            near = difflib.get_close_matches(one, IDS, n=3)
            hint = f"did you mean {', '.join(near)}?" if near else "docs/howto/doctor.md lists them"
            raise kind("unknown-check", f"no check finds {one}", where=where, hint=hint)


def size(text: str) -> int:
    """Return bytes of ``32GiB``, ``32G`` or ``1024``; ValueError for anything else."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return int(float(match.group(1)) * UNITS[match.group(2)])


def _specifiers(text: str) -> Any:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return SpecifierSet(text if text[:1] in "<>=!~" else f"=={text}")
    except InvalidSpecifier as error:
        raise ValueError(text) from error


def fits(version: str, wanted: str) -> bool:
    """Return whether a version satisfies specifiers; a kernel's tail (``-91-generic``) is left out."""
    from packaging.version import InvalidVersion, Version

    plain = re.match(r"\d+(?:\.\d+)*(?:\.?post\d+|rc\d+)?", version)
    try:
        return (
            bool(_specifiers(wanted).contains(Version(plain.group()), prereleases=True))
            if plain
            else False
        )
    except InvalidVersion:
        return False
