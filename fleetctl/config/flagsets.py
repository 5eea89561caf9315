"""Which flag schema a launch is held against: a shipped release's, a file's, or what a host has installed."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from fleetctl.config import places
from fleetctl.engines.sglang import schema as schemas
from fleetctl.engines.sglang.schema import Schema
from fleetctl.errors import ConfigError

INSTALLED = "installed"
_VERSION = re.compile(r"\d+(?:\.\w+)*")
_DIGEST = re.compile(r"[0-9a-f]{16}")


class Asker(Protocol):
    """A host's agent that has the module ``flags``."""

    def call(self, verb: str, args: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Run a verb there and return its result."""
        ...


def folder() -> Path:
    """Return where schemas that were read once are kept."""
    return places.cache() / "flags"


def named(text: str, fetch: Callable[[str], Path] | None = None) -> Schema:
    """Return the schema of a version, a wheel, an installed tree, a checkout or a schema file.

    A version that is not shipped comes from the cache, else from ``fetch(version)``, which returns
    its wheel. Raises ConfigError ``no-schema`` when there is none.
    """
    path = Path(text).expanduser()
    if "/" in text or path.suffix in (".json", ".gz", ".whl") or path.is_dir():
        if not path.exists():
            raise ConfigError("no-schema", "no such file", where=text)
        return schemas.read(path)
    text = text.removeprefix("v") if text[1:2].isdigit() else text
    if not _VERSION.fullmatch(text):
        raise ConfigError(
            "no-schema",
            f"{text!r} is neither a version nor a file",
            hint=f"versions {schemas.shipped()[0]} to {schemas.shipped()[-1]} are shipped",
        )
    if text in schemas.shipped():
        return schemas.load(text)
    kept = folder() / f"{text}.json.gz"
    if kept.is_file():
        return dataclasses.replace(schemas.read_file(kept), origin="tree")
    if fetch is None:
        return schemas.load(text)
    found = schemas.read(fetch(text))
    keep(kept, found)
    return dataclasses.replace(found, version=text)


def newest() -> Schema:
    """Return the newest shipped schema."""
    return schemas.load(schemas.shipped()[-1])


def of_host(agent: Asker, python: str, env: Mapping[str, str] | None = None) -> Schema:
    """Return the schema of what an interpreter of a host would import, fork or release.

    The host reads its sources only when their hash is a new one (0.3 s there). A tree that is a
    release byte for byte gets that release's shipped schema.
    """
    known = {p.name.removesuffix(".json.gz") for p in folder().glob("*.json.gz")}
    digests = sorted(d for d in known if _DIGEST.fullmatch(d))
    found = agent.call("flags.read", {"python": python, "env": dict(env or {}), "known": digests})
    version, digest = found.get("version"), str(found["digest"])
    if version in schemas.shipped() and schemas.load(version).digest == digest:
        return schemas.load(version)
    path = folder() / f"{digest if _DIGEST.fullmatch(digest) else 'unknown'}.json.gz"
    if found["body"] is None:
        return dataclasses.replace(schemas.read_file(path), origin="host")
    schema = Schema.from_json(found["body"], origin="host")
    keep(path, schema)
    return schema


def keep(path: Path, schema: Schema) -> None:
    """Write a schema into the cache in one step; a cache that cannot be written is no fault."""
    data = gzip.compress(json.dumps(schema.to_json(), separators=(",", ":")).encode(), mtime=0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(data)
        Path(file.name).replace(path)
    except OSError:
        return
