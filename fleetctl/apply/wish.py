"""What a person asked for: the same for every host of one command."""

from __future__ import annotations

import json
import secrets as random_source
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetctl.config.secrets import Secrets
from fleetctl.errors import UsageError
from fleetctl.model.fleet import Profile
from fleetctl.model.revision import Revision

if TYPE_CHECKING:
    from fleetctl.patching.model import Patch

REQUEST_LIMIT = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Wish:
    """A deploy as it was asked for."""

    profile: Profile
    templates: Mapping[str, str] = field(default_factory=dict)
    secrets: Secrets | None = None
    allow: frozenset[str] = frozenset()  # options that override guards
    restart: bool = False  # also what is unchanged and active
    no_lint: frozenset[str] = frozenset()  # findings that were overridden by their ids
    reason: str = ""
    break_lock: str = ""
    requests: tuple[dict[str, Any], ...] = ()  # sent after ready: {path, body, timeout?}
    wait: bool = True
    timeout: float | None = None  # seconds for the whole wait
    stall: float | None = None  # seconds without any sign of life that count as a hang
    dry_run: bool = False
    masked: bool = True
    patches: tuple[Patch, ...] = ()  # those that the profile or --patch asks for
    revision: Revision | None = None  # bring this one back, with its own texts
    overrides: tuple[str, ...] = ()  # the --set and --unset of the command line, as they were typed
    again: bool = False  # a launch that was let through before: its flags are as they were
    lock_wait: float = 0.0  # seconds to wait for somebody else's lock

    def limits(self) -> dict[str, Any]:
        """Return the limits of the watch that were asked for."""
        found = {"timeout": self.timeout, "quiet": self.stall}
        return {k: v for k, v in found.items() if v is not None}


def token() -> str:
    """Return a name that nobody else has, for a lock or a launch."""
    return random_source.token_hex(6)


def read_requests(path: Path) -> tuple[dict[str, Any], ...]:
    """Return the requests of a file: one JSON body, a list of them, or JSON lines.

    Each is ``{"path": "/generate", "body": {…}, "timeout": 120}``, or a body alone: then
    ``/v1/chat/completions`` takes one with messages, ``/v1/completions`` one with a prompt, and
    ``/generate`` any other. Raises UsageError ``bad-request``.
    """
    try:
        if path.stat().st_size > REQUEST_LIMIT:
            raise UsageError("bad-request", "over 16 MiB", where=str(path))
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError("bad-request", reason, where=str(path)) from error
    found = tuple(_request(one, path) for one in _values(text, path))
    if not found:
        raise UsageError("bad-request", "it holds no request", where=str(path))
    return found


def _values(text: str, path: Path) -> list[Any]:
    try:
        value = json.loads(text)
        return value if isinstance(value, list) else [value]
    except ValueError:
        pass
    values = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                values.append(json.loads(line))
            except ValueError as error:
                raise UsageError(
                    "bad-request", f"not JSON: {error}", where=f"{path}:{number}",
                    hint="a JSON body, a list of them, or one a line",
                ) from error  # fmt: skip
    return values


def _request(value: Any, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError("bad-request", "a request is a JSON object", where=str(path))
    if isinstance(value.get("body"), dict):
        known = {k: value[k] for k in ("path", "body", "timeout") if k in value}
        return {"path": _path_of(value["body"])} | known
    return {"path": _path_of(value), "body": value}


def _path_of(body: Mapping[str, Any]) -> str:
    if "messages" in body:
        return "/v1/chat/completions"
    return "/v1/completions" if "prompt" in body else "/generate"
