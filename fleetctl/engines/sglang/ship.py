"""Makes the shipped schemas from wheels: ``python -m fleetctl.engines.sglang.ship WHEEL…``."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fleetctl.engines.sglang.history import HISTORY
from fleetctl.engines.sglang.reader import read_json
from fleetctl.engines.sglang.schema import Schema, load, shipped

TARGET = Path(__file__).parent / "schemas"


def ship(wheel: Path, target: Path = TARGET) -> Path:
    """Write the schema of one wheel; the bytes depend on its contents alone."""
    body = read_json(wheel)
    return _write(target / f"{body['version']}.json.gz", body)


def history(schemas: Iterable[Schema]) -> dict[str, Any]:
    """Return when each flag and variable was there: ``{name: {"in": [[first, last]…], "use": …}}``."""
    ordered = list(schemas)
    versions = [str(s.version) for s in ordered]
    flags: dict[str, dict[str, Any]] = {}
    env: dict[str, dict[str, Any]] = {}
    for number, schema in enumerate(ordered):
        for name, flag in schema.flags.items():
            _seen(flags.setdefault(name, {"in": []}), number, versions)
            if flag.deprecated and flag.replacement:
                flags[name]["use"] = flag.replacement
        for name in schema.env_names:
            _seen(env.setdefault(name, {"in": []}), number, versions)
        for name, new in schema.env.get("deprecated", {}).items():
            if new:
                env[name]["use"] = new
    return {"versions": versions, "flags": flags, "env": env}


def _seen(entry: dict[str, Any], number: int, versions: list[str]) -> None:
    spans = entry["in"]
    if spans and versions.index(spans[-1][1]) == number - 1:
        spans[-1][1] = versions[number]
    elif not spans or spans[-1][1] != versions[number]:
        spans.append([versions[number], versions[number]])


def _write(path: Path, body: dict[str, Any]) -> Path:
    text = json.dumps(body, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    return path


def main(wheels: list[str]) -> None:
    """Write the schemas of the wheels, then the history of all that are shipped."""
    for name in wheels:
        print(ship(Path(name)).name)
    shipped.cache_clear()
    _write(TARGET / HISTORY, history(load(version) for version in shipped()))
    print(HISTORY)


if __name__ == "__main__":
    main(sys.argv[1:])
