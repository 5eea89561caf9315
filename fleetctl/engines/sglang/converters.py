"""What argparse's ``type=`` callables of SGLang accept, and the words of their refusals.

Read from ``sglang/srt/utils/common.py`` and ``srt/model_executor/cuda_graph_config.py`` of 0.5.1 to 0.5.23.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Never

SI = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
IEC = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_HUMAN = re.compile(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)")
PHASES = ("decode", "prefill")


class RefusedValueError(ValueError):
    """A converter's own words (argparse shows an ArgumentTypeError's text as it is)."""


def convert(kind: str | None, text: str) -> Any:
    """Return the converted value.

    Raises ValueError for what argparse calls an invalid value (the message is argparse's). A converter
    that is not known here accepts everything: nothing is invented.
    """
    converter = CONVERTERS.get(kind or "str")
    if converter is None:
        return text
    try:
        return converter(text)
    except RefusedValueError:
        raise
    except ValueError as error:
        name = (kind or "str").rpartition(".")[2]
        raise ValueError(f"invalid {name} value: {text!r}") from error


def _human_readable_int(text: str) -> int:
    value = text.strip()
    match = _HUMAN.fullmatch(value)
    if match is None:
        try:
            return int(value)
        except ValueError as error:
            raise RefusedValueError(
                f"Invalid integer value: '{value}'. Use a plain integer, SI suffixes (1k, 1M), "
                "or IEC suffixes (1Ki, 1Mi). Suffixes are case-sensitive."
            ) from error
    number, suffix = match.groups()
    if suffix in SI:
        return int(Decimal(number) * SI[suffix])
    if "." in number:
        raise RefusedValueError(
            f"Decimals are not allowed with IEC suffixes like '{suffix}'. Use an integer IEC value such as "
            f"'{int(Decimal(number))}{suffix}', or an SI value such as '{number}{suffix[0]}'."
        )
    return int(number) * IEC[suffix]


def _no_constant(name: str) -> Never:
    raise ValueError(name)


def _json_list(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)  # orjson takes no NaN
    except ValueError as error:
        raise RefusedValueError(
            f"Invalid JSON list: {text}. Please provide a valid JSON list."
        ) from error


def _cuda_graph_config(text: str) -> Any:
    name = "--cuda-graph-config"
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise RefusedValueError(f"{name} must be JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise RefusedValueError(f"{name} must be a JSON object, got {type(parsed).__name__}")
    for phase, settings in parsed.items():
        if phase not in PHASES:
            raise RefusedValueError(f"{name}: unknown phase '{phase}', expected one of {PHASES}")
        if not isinstance(settings, dict):
            kind = type(settings).__name__
            raise RefusedValueError(f"{name}['{phase}'] must be a JSON object, got {kind}")
    return parsed


def _cuda_graph_backend(text: str) -> str:
    if text == "tc_piecewise":
        raise RefusedValueError("tc_piecewise was removed; select breakable, full, or disabled")
    return text


def _nullable(text: str) -> str | None:
    return None if not text or text == "None" else text


CONVERTERS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "json.loads": json.loads,
    "json_list_type": _json_list,
    "human_readable_int": _human_readable_int,
    "nullable_str": _nullable,
    "parse_cuda_graph_config_arg": _cuda_graph_config,
    "parse_cuda_graph_backend_arg": _cuda_graph_backend,
}
