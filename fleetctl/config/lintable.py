"""Profiles as lint takes them: by name from the site, or a bare file with no inventory beside it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fleetctl.config import lean, places
from fleetctl.config.nodes import shown_path
from fleetctl.errors import ConfigError, UsageError
from fleetctl.model.fleet import Origin, Profile


def profile(text: str) -> Profile:
    """Return the profile of a name or a file. ``extends`` of a file is looked up beside it.

    Raises UsageError ``unknown-profile``, ConfigError or ManyErrors for what the files hold.
    """
    name, files = _found(text)
    read = lean.read(name, files)
    read = read if read is not None else _strict(name, files)
    if not read.origins:  # an empty file: what it lacks is missing in that file
        read.origins["name"] = Origin(f"{shown_path(files[name])}:1:1", name)
    return read


def rough(text: str) -> Profile | None:
    """Return what can be made out of a profile whose files have faults, to lint the rest; None for nothing."""
    return lean.rough(*_found(text))


def _found(text: str) -> tuple[str, dict[str, Path]]:
    """Return the profile's name, and the files that it and its parents are looked up in."""
    path = Path(text)
    if path.suffix in (".yaml", ".yml") or "/" in text:
        if not path.is_file():
            what = "is a folder: name a profile's file" if path.is_dir() else "no such file"
            raise ConfigError("unreadable", what, where=text)
        folder, name = path.parent, path.stem
    else:
        folder, name = places.site_folder() / "profiles", text
    files = {p.stem: p for ending in ("yml", "yaml") for p in sorted(folder.glob(f"*.{ending}"))}
    if path.is_file():
        files[name] = path
    if name not in files:
        from fleetctl.config.nearest import did_you_mean

        there = f"there are {', '.join(sorted(files))}" if files else ""
        raise UsageError(
            "unknown-profile",
            f"no profile is called {name}",
            where=shown_path(folder),
            hint=did_you_mean(name, files, there),
        )
    return name, files


def _strict(name: str, files: dict[str, Path]) -> Profile:
    from fleetctl.config.profiles import Merge, chain

    merge = Merge()
    for layer in chain(name, files):
        merge.add(layer)
    return merge.profile(name)


def texts(profiles: Iterable[Profile]) -> dict[str, str]:
    """Return path → text of the files that values of profiles were written in, for inline remarks."""
    places_ = {
        origin.where.rsplit(":", 2)[0]
        for one in profiles
        for origin in one.origins.values()
        if origin.where.count(":") >= 2
    }
    found = {}
    for place in places_:
        path = Path(place)
        if path.is_file():
            found[place] = path.read_text(encoding="utf-8", errors="replace")
    return found
