"""``doctor.yaml`` of a site: what its hosts should be; ``fleetctl.doctor.expect`` says what the keys mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleetctl.config.nodes import as_json, load
from fleetctl.errors import ConfigError


def read(root: Path) -> tuple[dict[str, Any], str]:
    """Return what the file says and its path; empty when there is none. ConfigError for no mapping."""
    path = root / "doctor.yaml"
    if not path.is_file():
        return {}, str(path)
    document = load(path)
    value = as_json(document.value)
    if not isinstance(value, dict):
        raise ConfigError("bad-expectation", "a mapping is wanted", where=document.where())
    return value, str(path)
