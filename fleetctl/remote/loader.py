"""Finds the agent's modules in what the client sent, and keeps them compiled for the next agent here.

Compiling all of them takes a host 60 ms of CPU, more than most of what is asked of an agent. Only a
command that changes the host anyway keeps anything.
"""

from __future__ import annotations

import contextlib
import json
import marshal
import os
import sys
import zlib
from typing import Any

FOLDER = os.environ.get("FLEETCTL_ROOT", "") + "/var/lib/fleetctl/lib"
PREFIX = "agent-"
KEPT_VERSIONS = 4  # of operators with different releases, and after an update of the host's Python
PACKAGES = ("fleetctl", "fleetctl.remote")


class Shipped:
    """An importer for modules that came as one compressed JSON object: name → source."""

    def __init__(self, packed: bytes, key: str) -> None:
        self._packed = packed
        # Byte code is for one build of Python; a file of another one is never looked at.
        self.name = "%s%s-%s-%08x" % (
            PREFIX, key, sys.implementation.cache_tag, zlib.crc32(sys.version.encode()),
        )  # fmt: skip
        self._sources: dict[str, str] | None = None
        self._compiled = read(os.path.join(FOLDER, self.name))
        self.fresh = self._compiled is None

    @property
    def sources(self) -> dict[str, str]:
        """The text of each module."""
        if self._sources is None:
            self._sources = json.loads(zlib.decompress(self._packed).decode("utf-8"))
        return self._sources

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        """Return where a module of ours is, None for any other."""
        known = self.sources if self._compiled is None else self._compiled
        if name in known or name in PACKAGES:
            spec: Any = type(sys.__spec__)  # importlib.machinery takes a millisecond to import
            return spec(name, self, is_package=name in PACKAGES)
        return None

    def create_module(self, spec: Any) -> None:
        """Leave it to Python."""

    def exec_module(self, module: Any) -> None:
        """Run a module's code."""
        name = module.__spec__.name
        if name not in PACKAGES:
            exec(self._code(name), module.__dict__)  # noqa: S102  what the client sent

    def get_source(self, name: str) -> str | None:
        """Return a module's text."""
        return self.sources.get(name)

    def _code(self, name: str) -> Any:
        if self._compiled is not None:
            return marshal.loads(self._compiled[name])  # noqa: S302  root's own file
        return compile_text(name, self.sources[name])

    def keep(self) -> None:
        """Write the compiled modules down where root keeps such files. Raises OSError."""
        made = {
            name: marshal.dumps(compile_text(name, text)) for name, text in self.sources.items()
        }
        body = marshal.dumps(made)
        os.makedirs(FOLDER, exist_ok=True)
        fresh = os.path.join(FOLDER, ".%s-%d" % (self.name, os.getpid()))
        try:
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
            with os.fdopen(handle, "wb") as file:
                file.write(b"%08x" % zlib.crc32(body) + body)
            os.replace(fresh, os.path.join(FOLDER, self.name))
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(fresh)
            raise
        self.fresh = False
        prune()


def compile_text(name: str, text: str) -> Any:
    """Return the code of a module."""
    return compile(text, "<" + name + ">", "exec", dont_inherit=True)


def read(path: str) -> dict[str, bytes] | None:
    """Return module → marshalled code of a kept file.

    None when it is not there, not whole (a host may lose its power at any time), or one that somebody
    else than root and this user could have written.
    """
    try:
        with open(path, "rb") as file:
            info = os.fstat(file.fileno())
            if info.st_uid not in (0, os.geteuid()) or info.st_mode & 0o022:
                return None
            crc, body = file.read(8), file.read()
        if crc != b"%08x" % zlib.crc32(body):
            return None
        found: dict[str, bytes] = marshal.loads(body)  # noqa: S302  root's own file
        return found
    except (OSError, ValueError, EOFError, TypeError):
        return None


def prune() -> None:
    """Drop all but the newest kept files."""
    paths = [os.path.join(FOLDER, n) for n in os.listdir(FOLDER) if n.startswith(PREFIX)]
    for path in sorted(paths, key=os.path.getmtime)[:-KEPT_VERSIONS]:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


SHIPPED: Shipped | None = None


def install(packed: bytes, key: str) -> None:
    """Let this process import what the client sent."""
    global SHIPPED
    SHIPPED = Shipped(packed, key)
    sys.meta_path.insert(0, SHIPPED)
    sys.modules[__name__].__spec__ = SHIPPED.find_spec(__name__)


def keep() -> None:
    """Make the next agent's start cheaper; a host that does not let us loses nothing."""
    if SHIPPED is not None and SHIPPED.fresh and os.geteuid() == 0:
        with contextlib.suppress(OSError):
            SHIPPED.keep()
