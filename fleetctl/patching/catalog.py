"""Where patches are: the site's own folder first, then those that are shipped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fleetctl.config import places
from fleetctl.config.nearest import did_you_mean
from fleetctl.errors import ConfigError, FleetError, UsageError
from fleetctl.patching.loader import load
from fleetctl.patching.model import NAME, Patch


def folders(site: Path | None) -> list[Path]:
    """Return the folders that hold patches, the first one to look at first."""
    own = [] if site is None else [site / "patches"]
    return [f for f in [*own, places.packaged("patches")] if f.is_dir()]


def names(site: Path | None) -> list[str]:
    """Return the name of every patch, sorted; one of the site hides a shipped one of its name."""
    return sorted({p.parent.name for f in folders(site) for p in f.glob("*/patch.toml")})


def find(name: str, site: Path | None) -> Patch:
    """Return one patch. Raises UsageError ``unknown-patch``, or what is wrong with its folder."""
    if not NAME.match(name):
        raise UsageError(
            "wrong-name", f"{name!r} cannot be the name of a patch", hint="a-z, 0-9, -"
        )
    for folder in folders(site):
        if (folder / name / "patch.toml").is_file():
            return load(folder / name)
    known = names(site)
    raise UsageError(
        "unknown-patch",
        f"there is no patch {name!r}",
        hint=did_you_mean(name, known, f"there are {', '.join(known)}"),
    )


def each(site: Path | None) -> Iterator[tuple[str, Patch | FleetError]]:
    """Yield every patch by name, or what is wrong with it."""
    for name in names(site):
        try:
            yield name, find(name, site)
        except FleetError as error:
            yield name, error


def shipped(patch: Patch) -> bool:
    """Return whether a patch comes with fleetctl."""
    return patch.folder.parent == places.packaged("patches")


def require_new(name: str, site: Path | None) -> None:
    """Raise ConfigError ``patch-exists`` when the site already has a patch of that name."""
    own = folders(site)[:1] if site is not None else []
    if any((f / name).exists() for f in own):
        raise ConfigError("patch-exists", f"{own[0] / name} is there already")
