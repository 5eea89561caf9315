"""The files of host keys that are known, as sshd(8) writes them down (SSH_KNOWN_HOSTS FILE FORMAT).

Files are read once a process and compared as text, without decoding every key in them.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import fcntl
import fnmatch
import hashlib
import hmac
import os
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fleetctl.errors import ConfigError


class Entry(NamedTuple):
    """One line of a known_hosts file."""

    marker: str  # "", "@revoked" or "@cert-authority"
    names: str
    kind: str
    key: str  # base64
    where: str  # file:line


@dataclass(slots=True)
class KnownHosts:
    """The lines of one file, those with plain names by name."""

    plain: dict[str, list[Entry]] = field(default_factory=dict)
    others: list[Entry] = field(default_factory=list)  # hashed, patterns

    def matching(self, name: str) -> Iterator[Entry]:
        """Return the lines for a name as known_hosts writes it."""
        yield from self.plain.get(name.lower(), ())
        yield from (e for e in self.others if _matches(e.names, name.lower()))


def fingerprint(key: str) -> str:
    """Return a base64 key's ``SHA256:…`` as ssh-keygen prints it."""
    digest = hashlib.sha256(base64.b64decode(key)).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


_read: dict[str, tuple[int, KnownHosts]] = {}
_lock = threading.Lock()


def load(path: str) -> KnownHosts:
    """Return a file's lines, read again only when it changed; a missing file has none."""
    try:
        stamp = os.stat(path).st_mtime_ns  # noqa: PTH116  on the path of every connection
    except FileNotFoundError:
        return KnownHosts()
    with _lock:
        cached = _read.get(path)
        if cached is None or cached[0] != stamp:
            cached = _read[path] = (stamp, parse(_text(path), path))
        return cached[1]


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError("known-hosts", error.strerror or str(error), where=path) from error


def parse(text: str, path: str = "") -> KnownHosts:
    """Return the lines of a known_hosts text; lines that are none are passed over, as ssh does."""
    known = KnownHosts()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#"):
            continue
        entry = Entry(marker, words[0], words[1], words[2], f"{path}:{number}")
        if any(c in entry.names for c in "|*?!"):
            known.others.append(entry)
        else:
            for name in entry.names.lower().split(","):
                known.plain.setdefault(name, []).append(entry)
    return known


def lookup(name: str, paths: Iterable[str]) -> list[Entry]:
    """Return all lines for a name, in the order of the files."""
    return [e for path in paths for e in load(path).matching(name)]


def _matches(names: str, name: str) -> bool:
    if names.startswith("|1|"):
        return _hashed(names, name)
    found = False
    for pattern in names.lower().split(","):
        # fnmatch's sets ([…]) do not exist here; "[host]:port" is written that way.
        glob = pattern.lstrip("!").replace("[", "[[]")
        if fnmatch.fnmatchcase(name, glob):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def _hashed(names: str, name: str) -> bool:
    try:
        _, _, salt, digest = names.split("|", 3)
        expected = base64.b64decode(digest)
        found = hmac.digest(base64.b64decode(salt), name.encode(), "sha1")
    except (ValueError, binascii.Error):
        return False
    return hmac.compare_digest(expected, found)


def add(path: str, line: str) -> None:
    """Append a line to a known_hosts file in one step, after the lines that others add meanwhile.

    The file is either the old or the new one, never between. ConfigError when it cannot be written.
    """
    target = Path(path).expanduser()
    try:
        target = target.resolve()  # a link stays a link
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _adding, _exclusive(target.parent):
            _replace(target, line)
    except OSError as error:
        raise ConfigError("known-hosts", error.strerror or str(error), where=str(target)) from error


_adding = threading.Lock()


@contextlib.contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Hold the folder, so that two of us do not each write over the other's line."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _replace(target: Path, line: str) -> None:
    old = target.read_text(encoding="utf-8", errors="surrogateescape") if target.exists() else ""
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
    if old and not old.endswith("\n"):
        old += "\n"
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", errors="surrogateescape", dir=target.parent,
        prefix=".known_hosts-", delete=False,
    ) as file:  # fmt: skip
        file.write(f"{old}{line}\n")
        file.flush()
        os.fsync(file.fileno())
    os.chmod(file.name, mode)  # noqa: PTH101
    os.replace(file.name, target)  # noqa: PTH105
