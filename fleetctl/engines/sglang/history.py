"""When a flag or a variable came and went, over the releases whose schemas are shipped."""

from __future__ import annotations

import functools
import gzip
import importlib.resources
import json
from dataclasses import dataclass
from typing import Any

from fleetctl.engines.sglang.schema import DATA, sort_key

HISTORY = "history.json.gz"


@dataclass(frozen=True, slots=True)
class Life:
    """The releases that have a name: spans of first and last, oldest first, and what SGLang says to use."""

    spans: tuple[tuple[str, str], ...]
    use: str | None = None

    def came_after(self, version: str) -> str | None:
        """Return the first release that has it, when that is newer than ``version``."""
        first = self.spans[0][0]
        return first if sort_key(first) > sort_key(version) else None

    def gone_before(self, version: str) -> str | None:
        """Return the last release before ``version`` that had it."""
        last = [end for _, end in self.spans if sort_key(end) < sort_key(version)]
        return last[-1] if last else None

    def __str__(self) -> str:
        return ", ".join(a if a == b else f"{a} to {b}" for a, b in self.spans)


@functools.cache
def _table() -> dict[str, Any]:
    path = importlib.resources.files(DATA).joinpath(HISTORY)
    body: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return body


def flag(spelling: str) -> Life | None:
    """Return the life of a spelling (with dashes); None when no shipped release has it."""
    return _life(_table()["flags"].get(spelling))


def variable(name: str) -> Life | None:
    """Return the life of an environment variable; None when no shipped release reads it."""
    return _life(_table()["env"].get(name))


def _life(entry: dict[str, Any] | None) -> Life | None:
    if entry is None:
        return None
    return Life(tuple((a, b) for a, b in entry["in"]), entry.get("use"))
