"""The sources of a version of SGLang without installing it: its wheel, fetched once into the cache."""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from fleetctl.config import places
from fleetctl.errors import ConfigError, RemoteError, UsageError
from fleetctl.remote.source_tree import WheelTree

_THERE = re.compile(r"\(from versions: ([^)]*)\)")
TIMEOUT = 600.0  # seconds for one download
# Some versions have wheels for one platform and Python only, and the operator may have another.
ELSEWHERE = [
    ("manylinux_2_34_x86_64", "311"),
    ("manylinux_2_34_x86_64", "312"),
    ("manylinux_2_34_x86_64", "310"),
    ("manylinux_2_34_aarch64", "312"),
]


def _quiet(_: str) -> None:
    return None


def tree(version: str, say: Callable[[str], None] = _quiet) -> WheelTree:
    """Return the sources of one version; fetches the wheel (2 to 40 MB) when it is not cached.

    Raises UsageError ``wrong-version``, RemoteError ``no-wheel``, ConfigError ``unwritable`` and ``bad-wheel``.
    """
    path = cached(version)
    if path is None:
        say(f"fetching the wheel of sglang {version} (2 to 40 MB, once)")
        path = fetch(version)
    try:
        return WheelTree(str(path))
    except (zipfile.BadZipFile, OSError) as error:
        raise ConfigError(
            "bad-wheel", str(error), where=str(path), hint="delete it: it is then fetched again"
        ) from error


def cached(version: str) -> Path | None:
    """Return the cached wheel of a version, or None."""
    found = sorted(folder().glob(f"sglang-{_normal(version)}-*.whl"))
    return found[0] if found else None


def folder() -> Path:
    """Return where wheels are kept."""
    return places.cache() / "wheels"


def _normal(version: str) -> str:
    from packaging.version import InvalidVersion, Version

    try:
        return str(Version(version))
    except InvalidVersion as error:
        raise UsageError("wrong-version", f"{version!r} is not a version") from error


def fetch(version: str) -> Path:
    """Download the wheel with pip, without its dependencies, and move it into the cache."""
    wanted = _normal(version)
    try:
        folder().mkdir(parents=True, exist_ok=True)
        return _fetched(wanted)
    except OSError as error:
        raise ConfigError(
            "unwritable", error.strerror or str(error), where=str(folder()),
            hint="wheels are kept there; XDG_CACHE_HOME names another place",
        ) from error  # fmt: skip


def _fetched(wanted: str) -> Path:
    said = ""
    with tempfile.TemporaryDirectory(dir=folder(), prefix=".fetch-") as temporary:
        for extra in [[], *(_for(platform, python) for platform, python in ELSEWHERE)]:
            said = said or _pip(wanted, temporary, extra)
            for wheel in Path(temporary).glob("*.whl"):
                return wheel.replace(folder() / wheel.name)
    raise _missing(wanted, said)


def _missing(wanted: str, said: str) -> RemoteError:
    """Return the fault, with the few of an index's versions that are near instead of all of them."""
    there = _THERE.search(said)
    versions = [v.strip() for v in there.group(1).split(",")] if there else []
    versions = [v for v in versions if v[:1].isdigit()]
    if versions:
        near = difflib.get_close_matches(wanted, versions, n=3)
        also = f"; near it are {', '.join(near)}" if near else ""
        return RemoteError(
            "no-wheel",
            f"sglang {wanted} could not be fetched: the index has {len(versions)} versions, and not this one",
            hint=f"the newest there is {versions[-1]}{also}",
        )
    lines = [line for line in said.strip().splitlines() if not line.startswith("WARNING")]
    return RemoteError(
        "no-wheel",
        f"sglang {wanted} could not be fetched",
        hint="see whether that version exists, and whether pip can reach its index",
        context=tuple(lines[-3:]),
    )


def _for(platform: str, python: str) -> list[str]:
    return [
        "--platform", platform, "--python-version", python,
        "--implementation", "cp", "--abi", f"cp{python}", "--abi", "abi3", "--abi", "none",
    ]  # fmt: skip


def _pip(version: str, target: str, extra: list[str]) -> str:
    """Run pip and return what it complained of."""
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
        "--disable-pip-version-check", "--no-input", "-d", target, *extra, f"sglang=={version}",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return f"pip: no end after {TIMEOUT:g} s"
    return "" if done.returncode == 0 else done.stderr
