"""A site: its inventory, its profiles, its own templates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fleetctl.config import aliases, overrides, places
from fleetctl.config.hosts import read_hosts
from fleetctl.config.nearest import did_you_mean
from fleetctl.config.nodes import load, shown_path
from fleetctl.config.profiles import Merge, chain, profile_files
from fleetctl.config.select import select
from fleetctl.errors import ConfigError, UsageError
from fleetctl.model.fleet import Host, Profile, Target

_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*([a-z.+-][A-Za-z0-9.+-]*)?")


@dataclass(frozen=True, slots=True)
class Site:
    """What people wrote for one set of machines. ``root`` holds hosts.yaml and profiles/."""

    root: Path
    hosts: dict[str, Host]
    _files: dict[str, Path] = field(default_factory=dict)

    def select(self, patterns: Sequence[str]) -> list[Target]:
        """Return the targets in inventory order; see ``fleetctl.config.select``."""
        return select(self.hosts, patterns)

    def groups(self) -> dict[str, list[str]]:
        """Return the names of hosts by group, both in inventory order."""
        found: dict[str, list[str]] = {}
        for host in self.hosts.values():
            for group in host.groups:
                found.setdefault(group, []).append(host.name)
        return found

    def profile_names(self) -> list[str]:
        """Return the names of the profiles, sorted."""
        return list(self._files)

    def profile_path(self, name: str) -> Path:
        """Return the file of a profile. Raises UsageError ``unknown-profile``."""
        if name not in self._files:
            there = ", ".join(self._files)
            raise UsageError(
                "unknown-profile",
                f"no profile is called {name}",
                where=shown_path(self.root / "profiles"),
                hint=did_you_mean(name, self._files, f"there are {there}" if there else ""),
            )
        return self._files[name]

    def lineage(self, name: str) -> list[str]:
        """Return the profiles that one is made of, the most basic first, itself last."""
        self.profile_path(name)
        return [layer.name for layer in chain(name, self._files)]

    def profile(self, name: str, sets: Sequence[str] = (), unsets: Sequence[str] = ()) -> Profile:
        """Return a profile merged through ``extends``, changed by ``--set`` and ``--unset`` texts.

        Raises UsageError for a name or option that is wrong, ConfigError or ManyErrors for files.
        """
        self.profile_path(name)
        merge = Merge()
        for layer in chain(name, self._files):
            merge.add(layer)
        overrides.apply(merge, tuple(sets), tuple(unsets))
        profile = merge.profile(name)
        self._check_python(profile)
        schema = self._schema(profile)
        aliases.settle(merge, schema)
        return replace(profile, schema=schema)

    def _check_python(self, profile: Profile) -> None:
        if not re.fullmatch(r"/[^\s%$\"'\\;]+", profile.python):
            origin = profile.origins.get("sglang.python")
            raise ConfigError(
                "bad-path",
                f"{profile.python!r} is no absolute path without blanks, quotes, % and $",
                where=origin.where if origin else "",
            )

    def _schema(self, profile: Profile) -> str:
        """Return ``installed``, a version, or the absolute path of a schema file of the site."""
        schema = profile.schema
        if schema == "installed" or _VERSION.fullmatch(schema):
            return schema
        path = self.root / Path(schema).expanduser()
        if not path.is_file():
            origin = profile.origins["sglang.schema"]
            raise ConfigError(
                "no-schema-file",
                f"{shown_path(path)} is not there",
                where=origin.where,
                hint="give installed, a version such as 0.5.12.post1, or a file of the site",
            )
        return str(path)

    def templates(self) -> dict[str, str]:
        """Return the site's own templates by path below templates/; they replace the shipped ones."""
        folder = self.root / "templates"
        return {
            str(p.relative_to(folder)): p.read_text(encoding="utf-8")
            for p in sorted(folder.rglob("*.j2"))
        }


def load_site(path: Path | None = None) -> Site:
    """Return the site at a path, at FLEETCTL_SITE, or found from the working folder.

    hosts.yaml is read and checked whole; a profile is read when it is asked for.
    Raises ConfigError, or ManyErrors for all faults of hosts.yaml at once.
    """
    root = places.site_folder(path)
    hosts = read_hosts(load(root / "hosts.yaml", keep_faults=True))
    return Site(root, hosts, profile_files(root / "profiles"))
