"""A first inventory from ~/.ssh/config: the aliases that people already use."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from fleetctl.config.nodes import shown_path
from fleetctl.config.schema import NAME
from fleetctl.config.write import scalar, write_text
from fleetctl.errors import ConfigError, UsageError

INCLUDE_DEPTH = 16  # OpenSSH's own limit
FORGES = ("github.com", "gitlab.com", "bitbucket.org", "codeberg.org", "ssh.dev.azure.com")


def aliases(path: Path, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the names after ``Host`` in the order of the file, each with what speaks against it, or "".

    Includes are followed. Raises ConfigError where the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(
            "unreadable",
            error.strerror or str(error),
            where=shown_path(path),
            hint="name hosts on the command line instead: `fleetctl init HOST…`",
        ) from error
    for line in text.splitlines():
        words = _words(line)
        if words[:1] == ["include"] and depth < INCLUDE_DEPTH:
            for pattern in words[1:]:
                for found in _included(pattern, path):
                    yield from aliases(found, depth + 1)
        elif words[:1] == ["host"]:
            yield from ((word, unusable(word)) for word in words[1:])


def unusable(word: str) -> str:
    """Return why a word after ``Host`` cannot be a host of an inventory, or ""."""
    if word.startswith("!") or set(word) & set("*?"):
        return "a pattern"
    if word in FORGES:
        return "a git forge"
    return "" if NAME.fullmatch(word) else "letters, digits, . _ and - only"


def _words(line: str) -> list[str]:
    """Return a line's words; the keyword, in lower case, may be followed by ``=``."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        words = line.split()
    if not words:
        return []
    key, equals, rest = words[0].partition("=")
    tail = [rest] if equals and rest else []
    more = words[1:]
    if more[:1] == ["="]:
        more = more[1:]
    return [key.lower(), *tail, *more]


def _included(pattern: str, path: Path) -> list[Path]:
    """Return the files of an Include; a relative pattern is meant beside the file that has it."""
    full = path.parent / Path(pattern).expanduser()
    return sorted(
        p for p in Path(full.anchor).glob(str(full.relative_to(full.anchor))) if p.is_file()
    )


def write_inventory(
    folder: Path, hosts: Sequence[str], *, model: str = "", gpus: int = 0, sudo: bool = False
) -> list[Path]:
    """Write hosts.yaml, and a first profile where a model is given; return the files.

    User, port, key and jump host stay ssh_config's to say. Raises UsageError ``site-exists`` where
    there is an inventory already, ``no-host`` for no names.
    """
    inventory = folder / "hosts.yaml"
    if inventory.exists():
        raise UsageError(
            "site-exists", "there is an inventory already", where=shown_path(inventory),
            hint="edit it, or choose another --name",
        )  # fmt: skip
    if not hosts:
        raise UsageError(
            "no-host", "ssh_config names no host", hint="name them: `fleetctl init HOST…`"
        )
    wrong = [h for h in hosts if not NAME.fullmatch(h)]
    if wrong:
        raise UsageError("bad-host-name", f"{wrong[0]!r}: letters, digits, . _ and - only")
    defaults = {"become": "sudo"} if sudo else {}
    shared = ", ".join([*(f"{k}: {v}" for k, v in defaults.items()), f"gpus: {gpus}"])
    lines = [
        "# Users, ports, keys and jump hosts are taken from ssh_config, unless they are given here.",
        "# Every key is described in docs/reference/inventory.md.",
        f"defaults: {{{shared}}}",
        "hosts:",
        *(f"  {name}: {{}}" for name in dict.fromkeys(hosts)),
    ]
    write_text(inventory, "\n".join(lines) + "\n")
    written = [inventory]
    if model:
        written.append(folder / "profiles" / "first.yaml")
        flags = [f"  tp-size: {gpus}"] if gpus > 1 else ["  tp-size: 1"]
        profile = ["name: first", f"model: {scalar(model)}", "flags:", *flags]
        write_text(written[1], "\n".join(profile) + "\n")
    return written
