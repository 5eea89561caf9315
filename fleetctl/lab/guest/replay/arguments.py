"""SGLang's command line, from the flag schema of one release: real argparse, so its rules and its words."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any, NoReturn

PROGRAM = "sglang serve"
CONVERTERS = {"int": int, "float": float, "json.loads": json.loads}
_HUMAN = re.compile(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|K|M|G|T)?$")
_UNITS = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


class Parser(argparse.ArgumentParser):
    """argparse with SGLang's name in its last line."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the fault, and exit with 2, as SGLang's own parser does."""
        self.print_usage()
        self.exit(2, f"{PROGRAM}: error: {message}\n")


def human_integer(text: str) -> int:
    """Return the number of ``4096``, ``128k`` or ``1M``; raise ValueError."""
    match = _HUMAN.match(text)
    if not match:
        raise ValueError(text)
    unit = match[2] or ""
    factor = 2 ** (10 * (1 + "KMGT".index(unit[0].upper()))) if unit.endswith("i") else None
    return int(float(match[1]) * (factor or _UNITS.get(unit, 1)))


def parser(schema: dict[str, Any]) -> Parser:
    """Return the parser of the release whose flags these are (``fleetctl.flags/1``)."""
    made = Parser(prog=PROGRAM)
    for flag in schema["flags"]:
        options: dict[str, Any] = {"dest": flag["dest"], "default": flag.get("default")}
        action = flag.get("action", "store")
        if flag.get("required"):
            options["required"] = True
        if action == "boolean_optional":
            options["action"] = argparse.BooleanOptionalAction
        elif flag.get("nargs") == 0:
            options |= {"action": "store_const", "const": flag.get("const", True)}
        else:
            options |= _valued(flag)
        made.add_argument(*flag["names"], **options)
    return made


def _valued(flag: dict[str, Any]) -> dict[str, Any]:
    kind = flag.get("type")
    convert = human_integer if kind == "human_readable_int" else CONVERTERS.get(kind, str)
    options = {"type": convert, "nargs": flag.get("nargs"), "choices": flag.get("choices")}
    return {key: value for key, value in options.items() if value is not None}


def from_file(path: Path) -> list[str]:
    """Return the words of a ``--config`` file: JSON, or YAML's plain ``key: value`` lines."""
    text = path.read_text(encoding="utf-8")
    try:
        pairs = json.loads(text)
    except ValueError:
        pairs = dict(_yaml_lines(text))
    words: list[str] = []
    for key, value in pairs.items():
        if value is True:
            words.append(f"--{key}")
        elif isinstance(value, list):
            words += [f"--{key}", *map(str, value)]
        elif value is not False and value is not None:
            words += [f"--{key}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return words


def _yaml_lines(text: str) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if not colon or line.lstrip().startswith("#"):
            continue
        bare = value.strip()
        try:
            pairs.append((key.strip().strip("'\""), json.loads(bare)))
        except ValueError:
            pairs.append((key.strip().strip("'\""), bare.strip("'")))
    return pairs


def expand(argv: list[str]) -> list[str]:
    """Return the words with those of a ``--config`` file in front, so that the command line wins."""
    for index, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name == "--config":
            path = value if equals else "".join(argv[index + 1 : index + 2])
            rest = argv[:index] + argv[index + (1 if equals else 2) :]
            return [*from_file(Path(path)), *rest]
    return argv


def resolve(schema: dict[str, Any], argv: list[str]) -> dict[str, Any]:
    """Return every flag's value by each of its spellings without the dashes; exit as argparse does."""
    found = vars(parser(schema).parse_args(expand(argv)))
    return {
        name.lstrip("-"): found[flag["dest"]] for flag in schema["flags"] for name in flag["names"]
    }
