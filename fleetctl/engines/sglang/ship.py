"""Makes the shipped schemas from wheels: ``python -m fleetctl.engines.sglang.ship WHEEL…``."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

from fleetctl.engines.sglang.reader import read_json

TARGET = Path(__file__).parent / "schemas"


def ship(wheel: Path, target: Path = TARGET) -> Path:
    """Write the schema of one wheel; the bytes depend on its contents alone."""
    body = read_json(wheel)
    text = json.dumps(body, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    path = target / f"{body['version']}.json.gz"
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    return path


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(ship(Path(name)).name)
