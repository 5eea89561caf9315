"""What a host keeps of each launch so that it can come back, and which of them a rollback means. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fleetctl.model.codec import decode
from fleetctl.model.fleet import Profile
from fleetctl.model.launch import LaunchConfig

SCHEMA = "fleetctl.revision/1"


@dataclass(frozen=True, slots=True)
class RevisionFile:
    """One file of a launch. ``content`` is None for a secret one and where contents were not asked for."""

    path: str
    sha256: str
    mode: int = 0o644
    owner: str = "root:root"
    secret: bool = False
    content: str | None = None


@dataclass(frozen=True, slots=True)
class Revision:
    """One launch as it was installed on a host."""

    number: int
    launch: str
    config: LaunchConfig
    profile: dict[str, Any]
    at: str = ""
    by: str = ""
    reason: str = ""
    restores: int | None = None  # the revision that this one brought back
    files: tuple[RevisionFile, ...] = ()
    absent: tuple[str, ...] = ()
    result: dict[str, Any] = field(default_factory=dict)
    ready: bool = False

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Revision:
        """Return a revision from a host's answer. Raises TypeError or ValueError."""
        return decode(cls, value)

    @property
    def outcome(self) -> str:
        """Return what became of it, in the words of deploy's result."""
        return str(self.result.get("outcome") or "unknown")

    def to_json(self, host: str, service: str) -> dict[str, Any]:
        """Return the line of ``fleetctl history --json``."""
        return {
            "schema": SCHEMA,
            "host": host,
            "service": service,
            "number": self.number,
            "launch_id": self.launch,
            "at": self.at,
            "by": self.by,
            "reason": self.reason,
            "restores": self.restores,
            "profile": self.config.profile,
            "model": self.config.model,
            "versions": self.config.versions,
            "patches": self.config.patches,
            "digest": self.config.digest(),
            "files": [{k: v for k, v in asdict(f).items() if k != "content"} for f in self.files],
            "ready": self.ready,
            "result": self.result,
        }


def choose(revisions: Sequence[Revision], to: int | None) -> Revision | str:
    """Return the revision to bring back, or why there is none. ``revisions``: the newest first.

    Without a number it is the newest one that became ready and is not what runs now.
    """
    if not revisions:
        return "no revision is kept there"
    if to is not None:
        kept = ", ".join(str(r.number) for r in revisions)
        found = next((r for r in revisions if r.number == to), None)
        return found or f"revision {to} is not kept there; these are: {kept}"
    now = revisions[0]
    for one in revisions[1:]:
        if one.ready and one.config.digest() != now.config.digest():
            return one
    return "no earlier revision became ready with another configuration"


def profile_to_json(profile: Profile) -> dict[str, Any]:
    """Return a merged profile as it is kept: with references to secrets, without where it was written."""
    body = asdict(replace(profile, origins={}))
    del body["origins"]
    kept: dict[str, Any] = json.loads(json.dumps(body))
    return kept


def profile_from_json(value: Mapping[str, Any]) -> Profile:
    """Return the profile of a revision."""
    flags = {
        k: tuple(v) if isinstance(v, list) else v for k, v in (value.get("flags") or {}).items()
    }
    return replace(decode(Profile, value), flags=flags)
