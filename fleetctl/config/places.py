"""Where things are on the operator's machine: the site, the packaged data, the state, the cache."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from fleetctl.errors import ConfigError


def home() -> Path:
    """Return the folder of the operator's state (incidents.db, bundles/, bisect/, audit.jsonl).

    ``FLEETCTL_HOME``, else ``fleetctl`` in the XDG state folder. It need not exist yet.
    """
    chosen = os.environ.get("FLEETCTL_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return _xdg("XDG_STATE_HOME", ".local/state") / "fleetctl"


def cache() -> Path:
    """Return the folder for what can be fetched or built again. It need not exist yet."""
    return _xdg("XDG_CACHE_HOME", ".cache") / "fleetctl"


def _xdg(variable: str, default: str) -> Path:
    """Return a base folder; the XDG specification says to ignore a value that is not absolute."""
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path.home() / default


def packaged(name: str) -> Path:
    """Return a folder that is shipped with the program: templates, patches or inventories.

    In a wheel it lies in ``fleetctl/_data``, in a checkout beside the package.
    """
    package = Path(str(files("fleetctl")))
    inside = package / "_data" / name
    return inside if inside.is_dir() else package.parent / name


def site_folder(chosen: Path | None = None) -> Path:
    """Return the folder of the site: what holds ``hosts.yaml`` and ``profiles/``.

    ``chosen``, else ``FLEETCTL_SITE``, else the nearest parent of the working folder that has
    ``inventories/``, else the packaged example. A folder with ``inventories/`` stands for its only
    site, or for ``inventories/example`` where it holds several. Raises ConfigError ``no-site``
    when a chosen folder holds none.
    """
    named = chosen or (Path(value) if (value := os.environ.get("FLEETCTL_SITE")) else None)
    if named is not None:
        found = site_in(named.expanduser().absolute())
        if found is None:
            raise ConfigError(
                "no-site",
                "no hosts.yaml here, nor one site below inventories/",
                where=str(named),
                hint="`fleetctl init` writes a first inventory",
            )
        return found
    return _nearest() or packaged("inventories") / "example"


def only_example() -> bool:
    """Return whether nobody chose a site and none is near: ``site_folder`` is the packaged example then."""
    return not os.environ.get("FLEETCTL_SITE") and _nearest() is None


def _nearest() -> Path | None:
    here = Path.cwd()
    for parent in (here, *here.parents):
        if (parent / "inventories").is_dir() and (found := site_in(parent)) is not None:
            return found
    return None


def site_in(folder: Path) -> Path | None:
    """Return the site that a folder is or stands for, or None."""
    if (folder / "hosts.yaml").is_file():
        return folder
    sites = sorted(p.parent for p in (folder / "inventories").glob("*/hosts.yaml"))
    if len(sites) == 1:
        return sites[0]
    return next((s for s in sites if s.name == "example"), None)
