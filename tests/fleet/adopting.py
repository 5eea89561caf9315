"""Case files of ``adopt``: the files of a host and its running words, as ``remote.adopt`` would answer."""

from __future__ import annotations

import json
import re
from typing import Any

from fleetctl.remote import adopt


def answer_of(text: str) -> dict[str, Any]:
    """Return the agent's answer for a case file."""
    parts = re.split(r"^=== (.*)\n", text, flags=re.MULTILINE)[1:]
    blocks = dict(zip(parts[::2], parts[1::2], strict=True))
    blocks = {k: v for k, v in blocks.items() if k != "expect"}
    running = json.loads(blocks.pop("running")) if "running" in blocks else None
    named = next((k[5:] for k in blocks if k.startswith("unit ")), None)
    files = {k: adopt._text(v) for k, v in blocks.items() if k.startswith("/")}
    unit_files = [f for f in files if f.startswith("/etc/systemd/system/")]
    fragment = next((f for f in unit_files if ".d/" not in f), "")
    return {
        "unit": named or fragment.rpartition("/")[2],
        "properties": {
            "FragmentPath": fragment,
            "DropInPaths": " ".join(f for f in unit_files if ".d/" in f),
            "UnitFileState": "enabled" if "[Install]" in files.get(fragment, "") else "static",
        },
        "files": files,
        "unreadable": {},
        "running": running,
    }
