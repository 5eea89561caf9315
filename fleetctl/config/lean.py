"""Reads plain profiles without pydantic, for commands that answer in milliseconds.

It takes only what it is sure of; anything else (a fault, a rarer key) is left to ``fleetctl.config.profiles``,
which says what is wrong. ``tests/config/test_lean.py`` holds both to the same result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetctl.config.nodes import Document, as_bool, as_json, is_null, load
from fleetctl.errors import FleetError
from fleetctl.model.fleet import Origin, Profile

KEYS = frozenset({"name", "description", "extends", "model", "flags", "env", "sglang"})
OWN = frozenset({"model", "model-path", "port", "config"})  # flags that are keys of their own
_FLAG = re.compile(r"[a-z0-9][a-z0-9-]*")
_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\0\n\r]")


class Unsure(Exception):
    """Not for this reader."""


def read(name: str, files: Mapping[str, Path]) -> Profile | None:
    """Return the merged profile, None when the strict reader has to look at it."""
    try:
        return _Lean(files).read(name)
    except (Unsure, FleetError, OSError):
        return None


def rough(name: str, files: Mapping[str, Path]) -> Profile | None:
    """Return what can be made out of a profile with faults, to look at the rest; None for nothing at all."""
    try:
        return _Lean(files, rough=True).read(name)
    except (Unsure, FleetError, OSError):
        return None


class _Lean:
    """Merges depth first through ``extends``, each file once. ``rough`` leaves out what is not sure."""

    def __init__(self, files: Mapping[str, Path], *, rough: bool = False) -> None:
        self.files = files
        self.rough = rough
        self.profile = Profile(name="", model="")
        self.seen: set[str] = set()

    def read(self, name: str) -> Profile:
        self.add(name, ())
        return replace(self.profile, name=name)

    def add(self, name: str, above: tuple[str, ...]) -> None:
        if name in above or name not in self.files:
            raise Unsure
        if name in self.seen:
            return
        self.seen.add(name)
        document = load(self.files[name], keep_faults=True)
        body = document.value
        if not isinstance(body, dict):
            raise Unsure
        if not self.rough:
            if document.faults or not KEYS.issuperset(body):
                raise Unsure
            if "name" in body and _text(body["name"]) != name:
                raise Unsure
            if "description" in body:
                _text(body["description"])
        parents = body.get("extends", [])
        for parent in [parents] if isinstance(parents, str) else parents:
            with self._step():
                self.add(_text(parent), (*above, name))
        self._put(name, document, body)

    def _step(self) -> AbstractContextManager[None]:
        return suppress(Unsure, FleetError) if self.rough else nullcontext()

    def _put(self, name: str, document: Document, body: dict[str, Any]) -> None:
        def origin(*path: str) -> Origin:
            return Origin(document.where(path, key=True), name)

        profile = self.profile
        if "model" in body:
            with self._step():
                profile = replace(profile, model=_text(body["model"]))
                profile.origins["model"] = origin("model")
        for kind, table, pattern in (("flags", profile.flags, _FLAG), ("env", profile.env, _ENV)):
            for key, value in self._entries(body, kind):
                with self._step():
                    if not pattern.fullmatch(key) or (kind == "flags" and key in OWN):
                        raise Unsure
                    written = _flag(value) if kind == "flags" else _variable(value)
                    profile.origins.pop(f"{kind}.{key}", None)
                    table.pop(key, None)
                    if written is not None:
                        table[key] = written
                        profile.origins[f"{kind}.{key}"] = origin(kind, key)
        for key, value in self._entries(body, "sglang"):
            with self._step():
                if key not in ("python", "schema"):
                    raise Unsure
                changed: Any = {key: _text(value)}
                profile = replace(profile, **changed)
                profile.origins[f"sglang.{key}"] = origin("sglang", key)
        self.profile = profile

    def _entries(self, body: dict[str, Any], key: str) -> list[tuple[str, Any]]:
        with self._step():
            return list(_mapping(body.get(key, {})).items())
        return []


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Unsure
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or is_null(value) or _CONTROL.search(value):
        raise Unsure
    return str(value)


def _variable(value: Any) -> str | None:
    return None if is_null(value) else _text(value)


def _flag(value: Any) -> Any:
    """Return True, text as written, a tuple of texts, a dict for JSON; None takes the flag away."""
    if is_null(value) or as_bool(value) is False:
        return None
    if as_bool(value):
        return True
    if isinstance(value, dict):
        return as_json(value)
    if isinstance(value, list):
        if not value:
            raise Unsure
        return tuple(_text(v) for v in value)
    return _text(value)
