"""What was worked out for one installation of SGLang is not worked out again for the next host.

The first host with an installation finds the places, builds, proves and compiles; the others with the
same installation, Python and patch get the bytes. Kept in the cache for the next push.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Ask = Callable[[dict[str, Any] | None], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Key:
    """One installation (the hash of its RECORD), one Python, one patch as rendered."""

    record: str | None
    python: list[int]
    digest: str

    def name(self) -> str:
        """Return a file name."""
        text = json.dumps([self.record, self.python, self.digest])
        return hashlib.sha256(text.encode()).hexdigest()[:32] + ".json"


class Ready:
    """Shared by the threads of one command."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known: dict[str, dict[str, Any]] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def use(self, key: Key, ask: Ask) -> dict[str, Any]:
        """Return the host's answer to ``ask``, which gets what is known, or None to work it out.

        Hosts of one key wait for the first of them; where that fails, the next one tries.
        """
        if key.record is None:
            return _without(ask(None))[0]
        name = key.name()
        with self._lock:
            own = self._locks.setdefault(name, threading.Lock())
        with own:
            known = self._known.get(name) or self._read(name)
            if known is None:
                answer, known = _without(ask(None))
                if known is not None:
                    self._known[name] = known
                    self._write(name, known)
                return answer
            self._known[name] = known
        return _without(ask(known))[0]

    def _read(self, name: str) -> dict[str, Any] | None:
        if self._folder is None:
            return None
        try:
            found = json.loads((self._folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def _write(self, name: str, known: dict[str, Any]) -> None:
        if self._folder is None:
            return
        with contextlib.suppress(OSError):  # a cache that cannot be written is no fault
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary = self._folder / f".{name}.{os.getpid()}"
            temporary.write_text(json.dumps(known), encoding="utf-8")
            temporary.replace(self._folder / name)


def _without(answer: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    prepared = answer.pop("prepared", None)
    return answer, prepared
