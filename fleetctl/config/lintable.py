"""Profiles as lint takes them: by name from the site, or a bare file with no inventory beside it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fleetctl.config import lean, places
from fleetctl.config.nodes import shown_path
from fleetctl.errors import ConfigError, UsageError
from fleetctl.model.fleet import Profile


def profile(text: str) -> Profile:
    """Return the profile of a name or a file. ``extends`` of a file is looked up beside it.

    Raises UsageError ``unknown-profile``, ConfigError or ManyErrors for what the files hold.
    """
    path = Path(text)
    if path.suffix in (".yaml", ".yml") or "/" in text:
        if not path.is_file():
            raise ConfigError("unreadable", "no such file", where=text)
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
    found = lean.read(name, files)
    return found if found is not None else _strict(name, files)


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
