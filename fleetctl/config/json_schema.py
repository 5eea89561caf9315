"""JSON schemas of the files that people write, for editors."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from fleetctl.config.schema import HostsFile, ProfileFile

FILES: dict[str, type[BaseModel]] = {"hosts": HostsFile, "profile": ProfileFile}


def json_schema(name: str) -> dict[str, Any]:
    """Return the schema of ``hosts`` (hosts.yaml) or ``profile`` (profiles/*.yaml)."""
    head: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return head | FILES[name].model_json_schema(by_alias=True)
