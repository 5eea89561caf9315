"""Flags as SGLang's argument vector."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fleetctl.errors import ConfigError


def flag_words(flags: Mapping[str, Any]) -> list[str]:
    """Return the words of all flags, sorted by name, so that equal sets give equal lines."""
    words: list[str] = []
    for name in sorted(flags):
        words += _words(name, flags[name])
    return words


def _words(name: str, value: Any) -> list[str]:
    option = f"--{name}"
    if value is True:
        return [option]
    if isinstance(value, tuple | list):
        texts = [str(v) for v in value]
        if any(_looks_like_option(t) for t in texts):
            raise ConfigError("bad-value", f"{option}: a value of a list begins with a dash")
        return [option, *texts]
    text = value if isinstance(value, str) else as_text(value)
    # argparse takes a word with a leading dash for the next option.
    return [f"{option}={text}"] if text.startswith("-") else [option, text]


def _looks_like_option(text: str) -> bool:
    return text.startswith("-") and not text[1:].replace(".", "", 1).isdigit()


def as_text(value: Any) -> str:
    """Return a mapping as compact JSON, a number as Python writes it."""
    if isinstance(value, dict):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return str(value)
