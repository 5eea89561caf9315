"""What ssh_config(5) and the inventory say together about reaching a host.

The inventory wins over ssh_config, the person's file over the system's. paramiko reads both (Host,
Match with host, originalhost, user, localuser, exec, canonical and final); ``Include``, which it
does not know, is put in place before.
"""

from __future__ import annotations

import functools
import getpass
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fleetctl.errors import ConfigError
from fleetctl.model.fleet import Host
from fleetctl.transport.lean import paramiko

USER_CONFIG = Path("~/.ssh/config")
SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
DEFAULT_KEYS = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
USER_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
GLOBAL_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
INCLUDE_DEPTH = 16  # OpenSSH's own limit
_PERCENT = "\x01"
_WORD = re.compile(r"^\s*(\w+)(?:\s*=\s*|\s+)(.*?)\s*$")


@dataclass(frozen=True, slots=True)
class Settings:
    """How to reach one machine. ``jumps`` are the hosts on the way, outermost first."""

    address: str
    port: int
    user: str
    keys: tuple[str, ...]
    certificates: tuple[str, ...] = ()
    only_these_keys: bool = False
    agent: str | None = None  # a socket instead of SSH_AUTH_SOCK; "none": no agent
    jumps: tuple[Host, ...] = ()
    proxy_command: str | None = None
    original: str = ""  # the name that ssh_config was asked for
    host_key_name: str = ""
    user_known_hosts: tuple[str, ...] = ()
    global_known_hosts: tuple[str, ...] = ()
    strict: str = "ask"  # yes | ask | accept-new | no
    kex: tuple[str, ...] = ()
    ciphers: tuple[str, ...] = ()

    @property
    def known_as(self) -> str:
        """Return the name of the host in known_hosts files."""
        if self.host_key_name:
            return self.host_key_name
        return self.address if self.port == 22 else f"[{self.address}]:{self.port}"

    @property
    def proxy(self) -> str | None:
        """Return the ProxyCommand with its %-tokens filled in."""
        if not self.proxy_command:
            return None
        tokens = {
            "h": self.address,
            "p": str(self.port),
            "r": self.user,
            "n": self.original,
            "%": "%",
        }
        return re.sub(_PERCENT + "(.)", lambda m: tokens.get(m[1], "%" + m[1]), self.proxy_command)


def settings(host: Host) -> Settings:
    """Return how to reach a host of the inventory. ConfigError for an ssh_config that cannot be read."""
    found = _lookup(host.address)
    changes: dict[str, object] = {}
    if host.user:
        changes["user"] = host.user
    if host.port:
        changes["port"] = host.port
    if host.key:
        changes["keys"] = (_path(host.key), *found.keys)
    if host.known_hosts:
        changes["user_known_hosts"] = (_path(host.known_hosts),)
    if host.via:
        changes["jumps"] = (*settings(host.via).jumps, host.via)
    elif host.jump:
        changes["jumps"] = _jumps(host.jump)
    if host.jump:
        changes["proxy_command"] = None
    return replace(found, **changes)  # type: ignore[arg-type]


def destination(text: str) -> Host:
    """Return ``[user@]host[:port]`` (or an ssh:// URI) as a host without inventory entry."""
    text = text.removeprefix("ssh://").rstrip("/")
    user, _, place = text.rpartition("@")
    bracketed = re.fullmatch(r"\[(.+)\](?::(\d+))?|([^:]+):(\d+)", place)
    if bracketed is None:
        return Host(name=text, address=place, user=user or None)
    address, port = bracketed[1] or bracketed[3], bracketed[2] or bracketed[4]
    return Host(name=text, address=address, user=user or None, port=int(port) if port else None)


def _lookup(name: str) -> Settings:
    config = _parsed()
    try:
        options = config.lookup(name)
    except Exception as error:
        raise ConfigError(
            "ssh-config", f"{type(error).__name__}: {error}", where=f"ssh_config for {name}"
        ) from error
    get = options.get
    return Settings(
        address=str(get("hostname", name)),
        port=int(get("port", 22)),
        user=str(get("user") or _me()),
        keys=_keys(get("identityfile")),
        certificates=_paths(get("certificatefile")),
        only_these_keys=_yes(get("identitiesonly")),
        agent=get("identityagent"),
        jumps=_jumps(get("proxyjump")) if "proxyjump" in options else (),
        proxy_command=get("proxycommand") if "proxyjump" not in options else None,
        original=name,
        host_key_name=str(get("hostkeyalias", "")),
        user_known_hosts=_paths(get("userknownhostsfile", " ".join(USER_KNOWN_HOSTS))),
        global_known_hosts=_paths(get("globalknownhostsfile", " ".join(GLOBAL_KNOWN_HOSTS))),
        strict={"off": "no", "true": "yes", "false": "no"}.get(
            mode := str(get("stricthostkeychecking", "ask")).lower(), mode
        ),
        kex=_list(get("kexalgorithms")),
        ciphers=_list(get("ciphers")),
    )


@functools.cache
def _me() -> str:
    return getpass.getuser()


@functools.cache
def _parsed() -> paramiko.SSHConfig:
    """Return both files as one, the person's first: the first value found counts."""
    text = "\nHost *\n".join("\n".join(_lines(p, ())) for p in (USER_CONFIG, SYSTEM_CONFIG))
    try:
        return paramiko.SSHConfig.from_text(text)
    except Exception as error:
        raise ConfigError("ssh-config", str(error), where=str(USER_CONFIG)) from error


def reload() -> None:
    """Forget the files read so far."""
    for kept in (_parsed, _default_keys, _paths):
        kept.cache_clear()


def _lines(path: Path, above: tuple[Path, ...]) -> Iterator[str]:
    path = path.expanduser()
    if path in above or len(above) > INCLUDE_DEPTH:
        return
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError("ssh-config", error.strerror or str(error), where=str(path)) from error
    block = "Host *"
    for line in text.splitlines():
        word = _WORD.match(line)
        keyword = word[1].lower() if word else ""
        if keyword in ("host", "match"):
            block = line
        if keyword == "proxycommand":
            line = line.replace(
                "%", _PERCENT
            )  # expanded in proxy_command_for, with the inventory's port
        if word and keyword == "include":
            for part in _included(word[2], path):
                yield block
                yield from _lines(part, (*above, path))
            yield block
        else:
            yield line


def _included(value: str, path: Path) -> Iterator[Path]:
    """Return the files of an Include line; relative ones are in ~/.ssh or /etc/ssh."""
    base = SYSTEM_CONFIG.parent if path.is_relative_to("/etc/ssh") else USER_CONFIG.parent
    for pattern in shlex.split(value):
        place = base.expanduser() / Path(pattern).expanduser()
        yield from sorted(Path("/").glob(str(place).lstrip("/")))


@functools.cache
def _default_keys() -> tuple[str, ...]:
    return tuple(str(p) for k in DEFAULT_KEYS if (p := Path(k).expanduser()).exists())


def _keys(value: Any) -> tuple[str, ...]:
    if value:
        return tuple(_path(k) for k in value if k.lower() != "none")
    return _default_keys()


@functools.cache
def _paths(value: str | None) -> tuple[str, ...]:
    parts = shlex.split(value) if value else []
    return tuple(_path(p) for p in parts if p.lower() not in ("none", "/dev/null"))


def _path(text: str) -> str:
    return str(Path(text).expanduser())


def _jumps(value: str | None) -> tuple[Host, ...]:
    if not value or value.lower() == "none":
        return ()
    return tuple(destination(j.strip()) for j in value.split(",") if j.strip())


def _yes(value: str | None) -> bool:
    return str(value).lower() in ("yes", "true")


def _list(value: str | None) -> tuple[str, ...]:
    """Return a list of algorithms; OpenSSH's ``+``, ``-`` and ``^`` change its defaults, not ours."""
    if not value or value[0] in "+-^":
        return ()
    return tuple(value.split(","))
