"""The inventory as it was read last, for commands that need nothing else of the site.

Checking hosts.yaml takes a quarter of a second of CPU, more than a login does. What was read is
kept in the cache and used as long as the file is the same (path, size, time, inode) and fleetctl is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import fleetctl
from fleetctl.config import places
from fleetctl.model.fleet import Host, Service


def hosts(path: Path | None = None) -> dict[str, Host]:
    """Return the hosts of the site by name, in the order of the file; see ``site.load_site``.

    Raises what ``load_site`` raises; nothing is kept of a file with faults.
    """
    file = places.site_folder(path) / "hosts.yaml"
    kept = places.cache() / "inventories" / _name(file)
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        body = json.loads(kept.read_text(encoding="utf-8"))
        if body["of"] == _stamp(file):
            return {h["name"]: _host(h) for h in body["hosts"]}
    stamp = _stamp(file)
    from fleetctl.config.site import load_site

    found = load_site(path).hosts
    if stamp is not None:
        _keep(kept, {"of": stamp, "hosts": [asdict(h) for h in found.values()]})
    return found


def _name(file: Path) -> str:
    return hashlib.sha256(str(file).encode()).hexdigest()[:16] + ".json"


def _stamp(file: Path) -> list[Any] | None:
    try:
        at = file.stat()
    except OSError:
        return None
    return [fleetctl.__version__, str(file), at.st_size, at.st_mtime_ns, at.st_ino]


def _keep(kept: Path, body: dict[str, Any]) -> None:
    """Write it in one step; a cache that cannot be written is no fault."""
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile("w", dir=kept.parent, delete=False) as file:
            json.dump(body, file)
        os.replace(file.name, kept)  # noqa: PTH105


def _host(fields: dict[str, Any]) -> Host:
    services = tuple(Service(**_tuples(s)) for s in fields.pop("services"))
    via = fields.pop("via")
    return Host(services=services, via=_host(via) if via else None, **_tuples(fields))


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with tuples again for JSON's lists."""
    return {name: _tupled(value) for name, value in fields.items()}


def _tupled(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_tupled(v) for v in value)
    return _tuples(value) if isinstance(value, dict) else value
