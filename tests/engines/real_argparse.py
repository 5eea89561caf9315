"""A real ``argparse`` parser made from a schema, and random command lines for it."""

from __future__ import annotations

import argparse
import json
import random
from typing import Any, NoReturn

from fleetctl.engines.sglang.converters import RefusedValueError, convert
from fleetctl.engines.sglang.schema import Flag, Schema


class Refused(Exception):
    """What argparse would print before it exits."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused(message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise Refused("help")


class Removed(argparse.Action):
    """Stands for SGLang's action that stops the launch."""

    fatal = ""

    def __call__(self, parser: Any, *rest: Any) -> NoReturn:
        raise Refused(self.fatal)


def converter(kind: str) -> Any:
    def of(text: str) -> Any:
        try:
            return convert(kind, text)
        except RefusedValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    of.__name__ = kind.rpartition(".")[2]
    return of


def parser_of(schema: Schema) -> Parser:
    parser = Parser(prog="sglang serve")
    for flag in schema.all:
        _add(parser, flag)
    return parser


def _add(parser: Parser, flag: Flag) -> None:
    common: dict[str, Any] = {"dest": flag.dest}
    if flag.action == "boolean_optional":
        names = [n for n in flag.names if not n.startswith("--no-")]
        parser.add_argument(*names, action=argparse.BooleanOptionalAction, **common)
        return
    if flag.nargs == 0:
        common |= {"action": "store_true"}
        if flag.fatal:
            common |= {"action": type("Removed", (Removed,), {"fatal": flag.fatal}), "nargs": 0}
    else:
        common |= {"type": converter(flag.type or "str"), "nargs": flag.nargs}
        common |= {"const": flag.const} if flag.nargs == "?" else {}
        common |= {"choices": flag.choices, "required": flag.required}
    parser.add_argument(*flag.names, **common)


def verdict(parser: Parser, argv: list[str]) -> str | None:
    """Return what argparse refuses, None when it accepts, "help" for -h."""
    try:
        parser.parse_args(argv)
    except Refused as refused:
        return str(refused)
    return None


WORDS = [
    "8",
    "1",
    "-1",
    "0.9",
    "abc",
    "",
    "a b",
    "-",
    "--",
    "-x",
    "-0.5",
    "true",
    "None",
    "4k",
    "1.5Ki",
]
WORDS += [
    "[1,2]",
    '{"a": 1}',
    '{"decode": {}}',
    "NaN",
    "--no-such-flag",
    "--enable-nvls=1",
    "-h2",
    "auto",
]


def command_lines(
    schema: Schema, count: int, seed: int, *, tracebacks: bool = False
) -> list[list[str]]:
    """Return random command lines: right ones, mistyped ones, prefixes, ``=``, wrong values.

    ``tracebacks``: also flags whose own action fails with a traceback.
    """
    chance = random.Random(seed)
    flags = [f for f in schema.all if tracebacks or f.action != "LoRAPathAction"]
    return [_one(flags, chance) for _ in range(count)]


def _one(flags: list[Flag], chance: random.Random) -> list[str]:
    argv = ["--model-path", "/models/tiny"] if chance.random() < 0.95 else []
    for _ in range(chance.randrange(1, 6)):
        flag = chance.choice(flags)
        spelling = _spelling(chance, chance.choice(flag.names))
        values = _values(flag, chance)
        if values and values[0] != "--" and chance.random() < 0.25:
            argv += [f"{spelling}={values[0]}", *values[1:]]
        else:
            argv += [spelling, *values]
        if chance.random() < 0.06:
            argv.append(chance.choice(WORDS))
    return argv


def _spelling(chance: random.Random, name: str) -> str:
    dice = chance.random()
    if dice < 0.72:
        return name
    if dice < 0.84:
        return name[: chance.randrange(4, len(name) + 1)]
    place = chance.randrange(3, len(name))
    if dice < 0.90:
        return name[:place] + name[place + 1 :]
    if dice < 0.96:
        return name[:place] + chance.choice("abcxyz-_") + name[place:]
    return name.replace("-", "_").replace("__", "--", 1)


def _values(flag: Flag, chance: random.Random) -> list[str]:
    if flag.nargs == 0:
        return [] if chance.random() < 0.95 else [chance.choice(WORDS)]
    count = (
        chance.randrange(0, 4)
        if flag.many
        else (1 if chance.random() < 0.93 else chance.choice([0, 2]))
    )
    return [_value(flag, chance) for _ in range(count)]


def _value(flag: Flag, chance: random.Random) -> str:
    if chance.random() < 0.12:
        return chance.choice(WORDS)
    if flag.choices:
        return str(chance.choice(flag.choices))
    return {
        "int": "8",
        "float": "0.85",
        "json.loads": json.dumps({"a": 1}),
        "json_list_type": "[1, 2]",
        "human_readable_int": "32Ki",
        "parse_cuda_graph_config_arg": "{}",
    }.get(flag.type or "str", "text")
