"""What argparse would make of a command line, from a schema alone: values, unknown words, refusals.

Follows ``argparse`` of Python 3.11 (``_parse_known_args``): unique prefixes, ``--flag=value``, nargs,
negative numbers, ``--``, and the order in which it finds faults. It goes on where argparse exits, so that
one run names every fault; the first one is what SGLang itself would print.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from fleetctl.engines.sglang.converters import convert

if TYPE_CHECKING:
    from fleetctl.engines.sglang.schema import Flag, Schema

_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")
_Nargs = dict[int | str | None, int | str | None]
_LEAST: _Nargs = {None: 1, "?": 0, "+": 1, "*": 0}
_MOST: _Nargs = {None: 1, "?": 1, "+": None, "*": None}
_EXPECTED: dict[int | str | None, str] = {
    None: "one argument",
    "?": "at most one argument",
    "+": "at least one argument",
}
HELP = ("-h", "--help")


class Kind(StrEnum):
    """What is wrong with a command line."""

    AMBIGUOUS = "ambiguous"
    COUNT = "count"  # too few values, or a value where none goes
    VALUE = "value"
    CHOICE = "choice"
    REMOVED = "removed"  # the flag is there only to refuse
    REQUIRED = "required"
    UNRECOGNIZED = "unrecognized"


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: its kind, the spelling used, its place in argv (-1 for none), argparse's words."""

    kind: Kind
    flag: str
    index: int
    message: str


@dataclass(frozen=True, slots=True)
class Use:
    """One flag on the command line: as written (without ``=value``), and the texts it was given."""

    flag: Flag
    spelling: str
    index: int
    values: tuple[str, ...]
    value: Any  # converted; True for a switch


@dataclass(slots=True)
class Parsed:
    """A command line as argparse sees it."""

    uses: list[Use] = field(default_factory=list)
    extras: list[tuple[int, str]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    help: bool = False  # -h stands on it: SGLang prints help and exits 0

    def values(self) -> dict[str, Any]:
        """Return destination → value, the last one winning; defaults are left out."""
        return {use.flag.dest: use.value for use in self.uses}


@dataclass(frozen=True, slots=True)
class _Option:
    flag: Flag | None
    spelling: str
    explicit: str | None


def parse(schema: Schema, argv: Sequence[str]) -> Parsed:
    """Return what argparse would make of ``argv`` (the words after the program's name)."""
    parsed = Parsed()
    options = _classify(schema, argv, parsed)
    position = 0
    while position < len(argv):
        option = options.get(position)
        if option is None:
            parsed.extras.append((position, argv[position]))
            position += 1
        elif option.spelling in HELP and option.explicit is None:
            parsed.help = True
            return parsed
        elif option.flag is None:
            position += 1
            if option.spelling:
                parsed.extras.append((position - 1, argv[position - 1]))
                continue
            while position < len(argv) and position not in options:
                position += 1  # the values of an ambiguous prefix, which was told already
        else:
            position = _consume(parsed, option, option.flag, argv, options, position)
    _finish(schema, parsed)
    return parsed


def _classify(schema: Schema, argv: Sequence[str], parsed: Parsed) -> dict[int, _Option]:
    """Return index → option for each word that argparse takes for one."""
    options: dict[int, _Option] = {}
    for index, word in enumerate(argv):
        if word == "--":
            break
        option = _option(schema, word, index, parsed)
        if option is not None:
            options[index] = option
    return options


def _option(schema: Schema, word: str, index: int, parsed: Parsed) -> _Option | None:
    if not word.startswith("-") or len(word) == 1:
        return None
    if word in HELP or word in schema.flags:
        return _Option(schema.flags.get(word, schema.help), word, None)
    name, equals, value = word.partition("=")
    explicit = value if equals else None
    if name in HELP or name in schema.flags:
        return _Option(schema.flags.get(name, schema.help), name, explicit)
    if word.startswith("-h"):
        return _Option(schema.help, "-h", word[2:])
    matches = schema.prefixed(name) if word.startswith("--") else []
    if word.startswith("--") and "--help".startswith(name):
        matches = [*matches, "--help"]
    if len(matches) > 1:
        shown = ", ".join(matches)
        parsed.problems.append(
            Problem(Kind.AMBIGUOUS, name, index, f"ambiguous option: {word} could match {shown}")
        )
        return _Option(None, "", None)
    if matches:
        return _Option(schema.flags.get(matches[0], schema.help), matches[0], explicit)
    if _NEGATIVE.fullmatch(word) or " " in word:
        return None
    return _Option(None, word, None)


def _consume(
    parsed: Parsed,
    option: _Option,
    flag: Flag,
    argv: Sequence[str],
    options: dict[int, _Option],
    index: int,
) -> int:
    """Take one option and its values; return the position after them."""
    if option.explicit is not None:
        words, stop = [option.explicit], index + 1
        if flag.nargs == 0:
            _count(parsed, flag, option, index, f"ignored explicit argument {option.explicit!r}")
            return stop
    else:
        most = _MOST.get(flag.nargs, flag.nargs)
        stop = index + 1
        while (
            stop < len(argv)
            and stop not in options
            and argv[stop] != "--"
            and (most is None or stop - index - 1 < int(most))
        ):
            stop += 1
        words = list(argv[index + 1 : stop])
    least = int(_LEAST.get(flag.nargs, flag.nargs) or 0)
    if len(words) < least:
        many = f"{least} argument" + ("" if least == 1 else "s")
        _count(parsed, flag, option, index, f"expected {_EXPECTED.get(flag.nargs, many)}")
        return stop
    _take(parsed, flag, option, index, words)
    return stop


def _count(parsed: Parsed, flag: Flag, option: _Option, index: int, text: str) -> None:
    parsed.problems.append(
        Problem(Kind.COUNT, option.spelling, index, f"{_argument(flag)}: {text}")
    )


def _argument(flag: Flag) -> str:
    return f"argument {'/'.join(flag.names)}"


def _take(parsed: Parsed, flag: Flag, option: _Option, index: int, words: list[str]) -> None:
    """Convert and check the values, then do what the flag's action does."""
    values = []
    for word in words:
        try:
            value = convert(flag.type, word)
        except ValueError as error:
            message = f"{_argument(flag)}: {error}"
            parsed.problems.append(Problem(Kind.VALUE, option.spelling, index, message))
            return
        if flag.choices is not None and value not in flag.choices:
            shown = ", ".join(repr(c) for c in flag.choices)
            message = f"{_argument(flag)}: invalid choice: {value!r} (choose from {shown})"
            parsed.problems.append(Problem(Kind.CHOICE, option.spelling, index, message))
            return
        values.append(value)
    refused = flag.fatal or (_lora_path(words) if flag.action == "LoRAPathAction" else None)
    if refused:
        kind = Kind.REMOVED if flag.fatal else Kind.VALUE
        parsed.problems.append(Problem(kind, option.spelling, index, refused))
        return
    parsed.uses.append(
        Use(flag, option.spelling, index, tuple(words), _stored(flag, option, values))
    )


def _stored(flag: Flag, option: _Option, values: list[Any]) -> Any:
    if flag.nargs == 0:
        if flag.action == "boolean_optional":
            return not option.spelling.startswith("--no-")
        if flag.action == "store_false":
            return False
        return True if flag.const is None else flag.const
    if flag.nargs in (None, "?"):
        return values[0] if values else flag.const
    return values


def _lora_path(words: list[str]) -> str | None:
    """Return why SGLang's LoRAPathAction would stop, or None."""
    for word in (w.strip() for w in words):
        if not (word.startswith("{") and word.endswith("}")):
            continue
        try:
            entry = json.loads(word)
        except ValueError as error:
            return f"--lora-paths: {word!r} is not JSON: {error}"
        if "lora_path" not in entry or "lora_name" not in entry:
            return f"--lora-paths: {word!r} lacks the keys 'lora_name' and 'lora_path'"
    return None


def _finish(schema: Schema, parsed: Parsed) -> None:
    """Add what argparse tells at the end: missing flags first, then the words left over."""
    # argparse finds ambiguous prefixes while it sorts the words, before it reads any value.
    parsed.problems.sort(key=lambda p: p.kind is not Kind.AMBIGUOUS)
    seen = {use.flag.names for use in parsed.uses} | {
        schema.flags[p.flag].names for p in parsed.problems if p.flag in schema.flags
    }
    missing = [f for f in schema.all if f.required and f.names not in seen]
    if missing:
        shown = ", ".join("/".join(f.names) for f in missing)
        message = f"the following arguments are required: {shown}"
        parsed.problems.append(Problem(Kind.REQUIRED, missing[0].names[0], -1, message))
    if parsed.extras:
        words = " ".join(word for _, word in parsed.extras)
        index, first = parsed.extras[0]
        message = f"unrecognized arguments: {words}"
        parsed.problems.append(Problem(Kind.UNRECOGNIZED, first, index, message))
