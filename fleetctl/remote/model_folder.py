"""What a model folder on this host says of itself: config.json, and how much its weights weigh."""

from __future__ import annotations

import json
import os
from typing import Any

LIMIT = 64 * 1024 * 1024  # the index of a model of 200 shards is 10 MB
WEIGHTS = (".safetensors", ".bin", ".gguf", ".pt", ".pth")


def read(args: dict[str, Any], _session: Any = None) -> dict[str, Any]:
    """Return ``{path, exists, config, weights, shards, missing}`` of ``{path}``.

    ``config`` is None when there is no readable config.json; ``weights`` are bytes of the weight files
    (safetensors alone where there are any, as SGLang loads them); ``missing`` are shards that the index names
    and the folder lacks.
    """
    path = str(args["path"])
    found: dict[str, Any] = {"path": path, "exists": os.path.isdir(path), "config": None}
    sizes = _sizes(path)
    safe = {n: s for n, s in sizes.items() if n.endswith(".safetensors")}
    found["weights"] = sum((safe or sizes).values()) or None
    found["shards"] = len(safe or sizes)
    config = _json(os.path.join(path, "config.json"))
    found["config"] = config if isinstance(config, dict) else None
    index = _json(os.path.join(path, "model.safetensors.index.json"))
    shards = index.get("weight_map") if isinstance(index, dict) else None
    wanted = {str(s) for s in shards.values()} if isinstance(shards, dict) else set()
    found["missing"] = sorted(wanted - set(sizes))[:100]
    return found


def _sizes(path: str) -> dict[str, int]:
    try:
        with os.scandir(path) as entries:
            return {e.name: e.stat().st_size for e in entries if e.name.endswith(WEIGHTS)}
    except OSError:
        return {}


def _json(path: str) -> Any:
    try:
        if os.path.getsize(path) > LIMIT:
            return None
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


VERBS = {"read": read}
