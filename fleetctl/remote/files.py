"""Files that are either old or new, never half: temporary file, fsync, rename, fsync of the folder."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
from typing import Any, Callable

from fleetctl.remote.fault import AgentError


def sha256(path: str) -> str | None:
    """Return the hash of a file's bytes, or None when it is not there."""
    import hashlib  # OpenSSL comes along, 2 ms that not every program needs

    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for chunk in iter(lambda: file.read(1 << 20), b""):
                digest.update(chunk)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return digest.hexdigest()


def owner_ids(owner: str) -> tuple[int, int]:
    """Return uid and gid of ``user:group``; AgentError unknown-owner."""
    user, _, group = owner.partition(":")
    try:
        entry = pwd.getpwnam(user)
        return entry.pw_uid, grp.getgrnam(group).gr_gid if group else entry.pw_gid
    except KeyError as error:
        raise AgentError("unknown-owner", "no such user or group: %s" % owner) from error


def owner_name(info: os.stat_result) -> str:
    """Return ``user:group`` of a file, with numbers where the host has no name."""
    try:
        user = pwd.getpwuid(info.st_uid).pw_name
    except KeyError:
        user = str(info.st_uid)
    try:
        group = grp.getgrgid(info.st_gid).gr_name
    except KeyError:
        group = str(info.st_gid)
    return user + ":" + group


def sync_folder(folder: str) -> None:
    """Make renames in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def stage(path: str, content: str, mode: int, owner: str | None = None, whose: str = "") -> str:
    """Write content beside ``path`` and return the temporary file's name; nothing shows yet.

    The mode is set before any byte is written, so that a secret is never readable in between.
    ``whose``: a service, by which ``sweep`` knows the file again.
    """
    folder = os.path.dirname(path)
    temporary = os.path.join(folder, _prefix(whose) + os.urandom(6).hex())
    handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), stat.S_IRUSR | stat.S_IWUSR)
            if owner is not None and os.geteuid() == 0:
                os.fchown(file.fileno(), *owner_ids(owner))
            os.fchmod(file.fileno(), mode)
            file.write(content.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        forget(temporary)
        error.filename = path
        raise
    except BaseException:
        forget(temporary)
        raise
    return temporary


def write_atomic(path: str, content: str, mode: int = 0o644, owner: str | None = None) -> None:
    """Replace one file in one step."""
    os.replace(stage(path, content, mode, owner), path)
    sync_folder(os.path.dirname(path))


def _prefix(whose: str) -> str:
    return ".fleetctl-" + (whose + "@" if whose else "")


def forget(path: str) -> None:
    """Remove a file; one that is not there is fine."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(path)


def sweep(path: str, whose: str) -> None:
    """Remove what a service's dead agent staged beside a path; its folder too, when nothing else is there."""
    folder = os.path.dirname(path)
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(_prefix(whose)):
                forget(os.path.join(folder, name))
        os.rmdir(folder)


def kept_name(path: str) -> str:
    """Return the second name under which a file is kept while a new one takes its place."""
    return os.path.join(os.path.dirname(path), ".fleetctl-old-" + os.path.basename(path))


def bring_back(path: str, *, was_there: bool) -> None:
    """Put a file back as it was before a change, whether or not the change has come to it."""
    kept = kept_name(path)
    if os.path.lexists(kept):
        os.replace(kept, path)
        forget(kept)  # two names of one file: rename does nothing then
    elif not was_there:
        forget(path)


class Change:
    """Several files that become visible together, or not at all.

    ``write`` and ``remove`` only stage. ``commit`` renames; a fault in between takes the renames back.
    """

    def __init__(self, whose: str = "") -> None:
        self._whose = whose
        self._staged: list[tuple[str, str | None]] = []
        self._undo: list[tuple[str, bool]] = []
        self._folders: list[str] = []

    def write(self, path: str, content: str, mode: int, owner: str) -> None:
        """Stage a file; missing folders are made (0755)."""
        self._make(os.path.dirname(path))
        self._staged.append((path, stage(path, content, mode, owner, self._whose)))

    def remove(self, path: str) -> None:
        """Stage the removal of a file."""
        self._staged.append((path, None))

    def commit(self, ours: Callable[[], None] = lambda: None) -> None:
        """Make every staged change visible.

        ``ours`` is called right before each. What it raises ends the change there, and nothing is taken
        back: the files may be somebody else's by now.
        """
        for path, temporary in self._staged:
            ours()
            self._show(path, temporary)
        self._sync()
        self._staged = []

    def _show(self, path: str, temporary: str | None) -> None:
        try:
            self._undo.append((path, self._keep(path)))
            if temporary is None:
                forget(path)
            else:
                os.replace(temporary, path)
        except BaseException:
            self.rollback()
            raise

    def _sync(self) -> None:
        try:
            for folder in sorted({os.path.dirname(p) for p, _ in self._staged}):
                if os.path.isdir(folder):
                    sync_folder(folder)
        except BaseException:
            self.rollback()
            raise

    def rollback(self) -> None:
        """Bring back what was there, from a commit that went through or from the middle of one."""
        for path, was_there in reversed(self._undo):
            bring_back(path, was_there=was_there)
        self._undo = []
        self.discard()

    def finish(self) -> None:
        """Drop the copies that a rollback would have needed."""
        for path, _ in self._undo:
            forget(kept_name(path))
        self._undo = []

    def abandon(self) -> None:
        """Drop what was staged and touch nothing else: the files are somebody else's by now."""
        self._undo = []
        self.discard()

    def discard(self) -> None:
        """Drop what was staged, and the folders made for it."""
        for _, temporary in self._staged:
            if temporary is not None:
                forget(temporary)
        self._staged = []
        for folder in reversed(self._folders):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        self._folders = []

    def _keep(self, path: str) -> bool:
        """Give the file as it is now a second name; return whether there is one."""
        kept = kept_name(path)
        forget(kept)
        try:
            os.link(path, kept, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _make(self, folder: str) -> None:
        missing = []
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for one in reversed(missing):
            os.mkdir(one, 0o755)
            os.chmod(one, 0o755)  # noqa: S103  whatever the umask: unit files are read by anybody
            self._folders.append(one)


def free_bytes(folder: str) -> int:
    """Return how many bytes of a folder's disk anybody may take. Raises OSError."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def remove_tree(folder: str) -> None:
    """Remove a folder with all that is in it, as far as that can be done."""
    import shutil  # compression libraries come along: not for every agent

    shutil.rmtree(folder, ignore_errors=True)


def facts(path: str, content: bool, limit: int = 1 << 20) -> dict[str, Any]:
    """Return what is known of one file, its text only when wanted and of at most 1 MiB."""
    try:
        info = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return {"path": path, "exists": False}
    found: dict[str, Any] = {
        "path": path,
        "exists": True,
        "sha256": sha256(path),
        "size": info.st_size,
        "mode": stat.S_IMODE(info.st_mode),
        "owner": owner_name(info),
        "mtime": info.st_mtime,
    }
    if content and info.st_size <= limit:
        with open(path, "rb") as file:
            found["content"] = file.read().decode("utf-8", "replace")
    return found
