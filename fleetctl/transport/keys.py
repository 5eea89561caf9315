"""Keys to show to a server, in OpenSSH's order: from files (with certificates), from the agent."""

from __future__ import annotations

import base64
import binascii
import contextlib
import copy
import functools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fleetctl.transport import prompts
from fleetctl.transport.deadline import Deadline
from fleetctl.transport.lean import paramiko
from fleetctl.transport.sshconfig import Settings

ENCRYPTED = b"-----BEGIN ENCRYPTED", b"Proc-Type: 4,ENCRYPTED"
PASSPHRASE_TRIES = 3


class AgentKeys:
    """The keys of one agent socket; its requests go one by one."""

    def __init__(self, socket_path: str | None) -> None:
        import os

        self._lock = threading.Lock()
        path = (
            os.environ.get("SSH_AUTH_SOCK")
            if socket_path in (None, "SSH_AUTH_SOCK")
            else socket_path
        )
        self.keys: tuple[paramiko.AgentKey, ...] = ()
        self._agent: paramiko.Agent | None = None
        if not path or path == "none":
            return
        with contextlib.suppress(paramiko.SSHException, OSError):
            self._agent = _agent_at(str(Path(path).expanduser()))
            self.keys = tuple(self._agent.get_keys())
        for key in self.keys:
            key.sign_ssh_data = functools.partial(self._sign, key.sign_ssh_data)  # type: ignore[method-assign]

    def close(self) -> None:
        """End the session with the agent."""
        if self._agent is not None:
            self._agent.close()

    def _sign(self, sign: Any, data: bytes, algorithm: str | None = None) -> Any:
        with self._lock:
            return sign(data, algorithm)


def _agent_at(path: str) -> paramiko.Agent:
    import socket

    agent = paramiko.Agent.__new__(paramiko.Agent)
    paramiko.agent.AgentSSH.__init__(agent)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.settimeout(10.0)
    link.connect(path)
    agent._connect(link)  # type: ignore[attr-defined]
    return agent


_agents: dict[str | None, AgentKeys] = {}
_files: dict[str, paramiko.PKey | str] = {}
_lock = threading.Lock()


def agent_keys(settings: Settings) -> tuple[paramiko.AgentKey, ...]:
    """Return the agent's keys, asked once a process."""
    with _lock:
        if settings.agent not in _agents:
            _agents[settings.agent] = AgentKeys(settings.agent)
        return _agents[settings.agent].keys


def candidates(settings: Settings, deadline: Deadline, tried: list[str]) -> Iterator[paramiko.PKey]:
    """Yield keys to try. ``tried`` gets a word on each, also on those that cannot be used."""
    locked: list[str] = []
    for path in settings.keys:
        key = key_file(path)
        if isinstance(key, paramiko.PKey):
            tried.append(path)
            yield from _certified(key, settings.certificates)
        elif key == "locked":
            locked.append(path)
        else:
            tried.append(f"{path} ({key})")
    wanted = {blob for path in locked if (blob := _public(path)) is not None}
    agent = agent_keys(settings) if locked or not settings.only_these_keys else ()
    chosen = sorted(agent, key=lambda k: k.asbytes() not in wanted)
    for agent_key in chosen:
        if agent_key.asbytes() in wanted or not settings.only_these_keys:
            tried.append(f"agent key {agent_key.comment or agent_key.get_name()}")
            yield agent_key
    held = {k.asbytes() for k in agent}
    for path in locked:
        if _public(path) in held:
            continue
        opened = _unlock(path, deadline)
        tried.append(path if opened else f"{path} (locked by a passphrase)")
        if opened:
            yield from _certified(opened, settings.certificates)


def key_file(path: str) -> paramiko.PKey | str:
    """Return the key of a file with its certificate, or a word on why not (``locked`` …)."""
    with _lock:
        if path not in _files:
            _files[path] = _load(path, None)
        return _files[path]


def _load(path: str, passphrase: str | None) -> paramiko.PKey | str:
    try:
        secret: Any = passphrase.encode() if passphrase is not None else None
        key = paramiko.PKey.from_path(path, password=secret)
    except FileNotFoundError:
        return "not there"
    except OSError as error:
        return error.strerror or "cannot be read"
    except (paramiko.PasswordRequiredException, TypeError):
        return "locked"
    except (ValueError, paramiko.SSHException) as error:
        return "locked" if passphrase is not None else _why(path, error)
    except paramiko.pkey.UnknownKeyType:
        return "a kind of key that is not known"
    key.asbytes = functools.partial(bytes, key.asbytes())  # type: ignore[method-assign]  # each login asks
    return key


def _why(path: str, error: Exception) -> str:
    """Tell a locked key from a broken one: the libraries raise the same for some of both."""
    with contextlib.suppress(OSError):
        text = Path(path).read_bytes()
        if any(mark in text for mark in ENCRYPTED) or "password" in str(error).lower():
            return "locked"
    return "not a private key"


def _certified(key: paramiko.PKey, certificates: tuple[str, ...]) -> Iterator[paramiko.PKey]:
    """Yield the key with each certificate that is for it, then bare, as ssh does."""
    if key.public_blob is not None:
        yield key
    elif not certificates:
        yield key
        return
    bare = copy.copy(key)
    bare.public_blob = None
    for path in certificates:
        with contextlib.suppress(OSError, ValueError, paramiko.SSHException):
            if _certifies(path, bare):
                certified = copy.copy(bare)
                certified.load_certificate(path)
                yield certified
    yield bare


def _certifies(path: str, key: paramiko.PKey) -> bool:
    from cryptography.hazmat.primitives import serialization as s

    identity = s.load_ssh_public_identity(Path(path).read_bytes())
    if not isinstance(identity, s.SSHCertificate):
        return False
    public = identity.public_key().public_bytes(s.Encoding.OpenSSH, s.PublicFormat.OpenSSH)
    return public.split()[1].decode() == key.get_base64()


def _unlock(path: str, deadline: Deadline) -> paramiko.PKey | None:
    """Ask for the passphrase, once for all threads; None when it cannot be had."""
    topic = ("passphrase", path)
    for _ in range(PASSPHRASE_TRIES):
        passphrase = prompts.secret(topic, f"Passphrase for {path}: ", deadline)
        if passphrase is None:
            return None
        with _lock:
            if isinstance(_files[path], str):
                _files[path] = _load(path, passphrase)
            key = _files[path]
        if isinstance(key, paramiko.PKey):
            return key
        prompts.forget(topic)
    return None


def _public(path: str) -> bytes | None:
    """Return the public half beside a private key file, as the agent writes it."""
    with contextlib.suppress(OSError, IndexError, binascii.Error, ValueError):
        return base64.b64decode(Path(path + ".pub").read_text(encoding="utf-8").split()[1])
    return None


def reload() -> None:
    """Forget the files and agents read so far."""
    with _lock:
        _files.clear()
        for agent in _agents.values():
            agent.close()
        _agents.clear()
