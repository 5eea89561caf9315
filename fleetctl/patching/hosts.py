"""Patches on hosts: what to ask the agent of one host, and what its answers mean.

The functions take a ``call`` (verb, arguments → result), so that a deploy can push a patch through the
session and under the lock that it has already.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import secrets
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from fleetctl.errors import FleetError, RefusedError, RemoteError
from fleetctl.model.fleet import Host, Target
from fleetctl.patching import snippets, wheels
from fleetctl.patching.model import AtExpiry, Patch, Rendered, Rung
from fleetctl.patching.ready import Key, Ready
from fleetctl.remote import unidiff
from fleetctl.transport import connect
from fleetctl.transport.agent import Agent
from fleetctl.transport.base import Connection

MODULES = ("patching",)
RESTART_SECONDS = 3700.0  # a clean stop may drain for as long as the unit allows

Call = Callable[..., dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Wish:
    """Who changes what, and why: the same for every host of one command."""

    who: str
    command: str = ""
    why: str = ""
    restart: bool = False
    break_lock: str = ""
    python: str = ""  # the interpreter, where the unit does not tell
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    lock_wait: float = 0.0  # seconds to wait for somebody else's lock

    def lock(self) -> dict[str, str]:
        """Return what the host's lock says of its holder."""
        return {"token": self.token, "who": self.who, "why": self.why, "command": self.command}


class Link:
    """One target with its agent, started when first used. Use as a context manager."""

    def __init__(
        self, target: Target, timeout: float, open_connection: Callable[[Host, float], Connection]
    ) -> None:
        self.target = target
        self._timeout = timeout
        self._open = open_connection
        self._connection: Connection | None = None
        self._agent: Agent | None = None
        self._opening = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def call(
        self, verb: str, args: dict[str, Any], timeout: float | None = 120.0
    ) -> dict[str, Any]:
        """Run one verb there."""
        return self.agent().call(verb, args, timeout=timeout)

    def agent(self) -> Agent:
        """Return the running agent, started when there is none."""
        with self._opening:
            if self._agent is None:
                self._connection = self._open(self.target.host, self._timeout)
                self._agent = Agent(self._connection, MODULES)
            return self._agent

    def open_soon(self) -> None:
        """Start the agent in the background; a fault comes with the first call."""

        def begin() -> None:
            with contextlib.suppress(FleetError):
                self.agent()

        threading.Thread(target=begin, daemon=True).start()

    def close(self) -> None:
        """End agent and connection."""
        with self._opening:
            agent, self._agent = self._agent, None
            connection, self._connection = self._connection, None
        for end in (agent, connection):
            if end is not None:
                try:
                    end.close()
                except (FleetError, OSError, EOFError):
                    continue


def link(
    target: Target,
    timeout: float = 10.0,
    open_connection: Callable[[Host, float], Connection] = connect,
) -> Link:
    """Return the way to one target; nothing is opened yet."""
    return Link(target, timeout, open_connection)


def place(target: Target) -> dict[str, str]:
    """Return the arguments that name a target on its host."""
    return {"service": target.service.name, "unit": target.service.unit}


def resolve(call: Call, target: Target, wish: Wish) -> dict[str, Any]:
    """Return what the target's unit runs: interpreter, package, version, other copies, patches."""
    return call("patching.resolve", {**place(target), "python": wish.python})


def push(
    call: Call,
    target: Target,
    patch: Patch,
    wish: Wish,
    *,
    seen: dict[str, Any] | None = None,
    given: dict[str, str] | None = None,
    rung: Rung | None = None,
    expire: float | None = None,
    at_expiry: AtExpiry | None = None,
    version: str = "",
    ready: Ready | None = None,
    planned: bool = False,
) -> dict[str, Any]:
    """Apply a patch to one target and return what changed there.

    ``planned``: the unit is about to be installed. ``ready`` holds what other hosts of the same
    installation have worked out already. ``seen`` is the
    answer of ``resolve``; ``version`` stands in where the package has no metadata.
    Raises RefusedError ``version-not-meant``, ``no-version``, ``wrong-rung``, or the host's own fault:
    nothing has changed there then.
    """
    seen = seen or resolve(call, target, wish)
    found = version or seen["version"]
    where = str(target)
    if not found:
        raise RefusedError(
            "no-version",
            f"sglang at {seen['root']} does not say its version",
            where=where,
            hint="name it with --sglang VERSION",
        )
    if not snippets.allows(patch.sglang, found):
        raise RefusedError(
            "version-not-meant",
            f"sglang {found} is there, {patch.name} is for {patch.sglang}",
            where=where,
            hint="--sglang VERSION says which version to take it for",
        )
    chosen = _rung(patch, rung, where)
    rendered = _rendered(patch, found, tuple(sorted((given or {}).items())))
    if not (rendered.edits or rendered.diffs or rendered.environment):
        raise RefusedError(
            "version-not-meant", f"{patch.name} has nothing for sglang {found}", where=where
        )
    args = {
        **place(target),
        "python": wish.python,
        "patch": rendered.to_json(),
        "bases": dict(rendered.bases),
        "originals": _originals(rendered, found),
        "rung": str(chosen),
        "version": seen["version"],
        "expire": patch.expire if expire is None else expire,
        "at_expiry": str(at_expiry or patch.at_expiry),
        "summary": patch.summary,
        "silent": patch.marker.silent,
        "captures": dict(patch.marker.captures),
        "regex": patch.marker.regex,
        "restart": wish.restart,
        "planned": planned,
        "lock": wish.lock(),
        "break_lock": wish.break_lock,
        "lock_wait": wish.lock_wait,
    }
    limit = (RESTART_SECONDS if wish.restart else 120.0) + wish.lock_wait

    def ask(prepared: dict[str, Any] | None) -> dict[str, Any]:
        return call("patching.push", {**args, "prepared": prepared}, timeout=limit)

    digest = rendered.digest()
    result = (ready or Ready(None)).use(Key(seen["record"], seen["python"], digest), ask)
    head = {"patch": patch.name, "digest": digest, "rung": str(chosen), "version": found}
    return head | result


@functools.lru_cache(maxsize=64)
def _rendered(patch: Patch, version: str, given: tuple[tuple[str, str], ...]) -> Rendered:
    """Render once for all hosts of a version."""
    return snippets.render(patch, version, dict(given))


def _originals(rendered: Rendered, version: str) -> dict[str, str]:
    """Return the released files that diffs change, so that a host can say how its own differ."""
    if not rendered.diffs or wheels.cached(version) is None:
        return {}
    tree = wheels.tree(version)
    paths = {f.path for text in rendered.diffs for f in unidiff.parse(text)}
    return {
        p: base64.b64encode(zlib.compress(tree.read(p))).decode()
        for p in sorted(paths & set(tree.names))
    }


def _rung(patch: Patch, rung: Rung | None, where: str) -> Rung:
    if rung is None or rung == patch.rung:
        return patch.rung
    if Rung.ENVIRONMENT in (rung, patch.rung):
        raise RefusedError(
            "wrong-rung", f"{patch.name} works by {patch.rung}, not by {rung}", where=where
        )
    return rung


def revert(
    call: Call, target: Target, names: list[str], wish: Wish, *, leave: bool = False
) -> dict[str, Any]:
    """Take patches out of one target: the named ones, or all of them.

    Raises the host's fault ``orphaned`` with both differences where an edited file changed since.
    """
    return call(
        "patching.revert",
        {
            **place(target), "names": names, "leave": leave, "restart": wish.restart,
            "lock": wish.lock(), "break_lock": wish.break_lock, "lock_wait": wish.lock_wait,
        },
        timeout=(RESTART_SECONDS if wish.restart else 120.0) + wish.lock_wait,
    )  # fmt: skip


def status(call: Call, target: Target) -> list[dict[str, Any]]:
    """Return each patch of one target with its proof."""
    found: list[dict[str, Any]] = call("patching.status", place(target))["patches"]
    return found


def history(call: Call, target: Target, limit: int = 200) -> list[dict[str, Any]]:
    """Return what was pushed and reverted there, the oldest first."""
    found: list[dict[str, Any]] = call("patching.history", {**place(target), "limit": limit})[
        "history"
    ]
    return found


def fetch(call: Call, target: Target, sha256: str) -> bytes:
    """Return kept bytes (an original or a patched file) of one target."""
    from fleetctl.remote.patch_store import sha

    packed = call("patching.fetch", {**place(target), "sha256": sha256})["data"]
    data = zlib.decompressobj().decompress(base64.b64decode(packed), 16 * 1024 * 1024)
    if sha(data) != sha256:
        raise RemoteError("bytes-differ", f"{sha256[:12]} came as other bytes", where=str(target))
    return data
