"""What changes in the files of a host, without any secret."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable

from fleetctl.model.facts import FileFacts, HostFacts
from fleetctl.model.plan import MASK, FileDiff, RemoveFile, WriteFile


def sha256(text: str) -> str:
    """Return the hash of a text as it will lie on disk."""
    return hashlib.sha256(text.encode()).hexdigest()


def differs(wanted: WriteFile, there: FileFacts, *, complete: bool) -> bool:
    """Return whether a file has to be written.

    A secret that was not fetched (``complete`` is False) is taken to be the same where a file is.
    """
    if not there.exists:
        return True
    if (there.mode, there.owner) != (wanted.mode, wanted.owner):
        return True
    if wanted.secret and not complete:
        return False
    return there.sha256 != sha256(wanted.content)


def file_diffs(steps: Iterable[WriteFile | RemoveFile], facts: HostFacts) -> tuple[FileDiff, ...]:
    """Return a unified diff for each file that the steps write or remove."""
    found = []
    for step in steps:
        if isinstance(step, WriteFile):
            found.append(_one(facts.file(step.path), step.content, step.secret))
        else:
            there = facts.file(step.path)
            found.append(_one(there, None, there.content is None))
    return tuple(found)


def _one(there: FileFacts, after: str | None, secret: bool) -> FileDiff:
    before = "" if not there.exists else MASK if secret else there.content or ""
    new = "" if after is None else f"{MASK} (new)" if secret else after
    lines = difflib.unified_diff(
        before.splitlines(),
        new.splitlines(),
        there.path if there.exists else "/dev/null",
        there.path if after is not None else "/dev/null",
        lineterm="",
    )
    return FileDiff(there.path, "\n".join(lines))
