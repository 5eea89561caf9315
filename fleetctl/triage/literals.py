"""Find the text that every match of a regular expression must hold, so that most are never run."""

from __future__ import annotations

import re
from re import _constants as names  # type: ignore[attr-defined]  # the parser is stable though private
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

MINIMUM = 4


def required(regex: str) -> tuple[str, ...]:
    """Return lower-case literals of which each match holds at least one; empty when none is sure.

    The longest sure literal is taken, or one for each branch of an alternative.
    """
    best = _best(list(parser.parse(regex)))
    return tuple(dict.fromkeys(best)) if best and min(map(len, best)) >= MINIMUM else ()


def _best(items: list[Any]) -> list[str]:
    """Return the best any-of list for a sequence."""
    found: list[list[str]] = []
    run = ""
    for operator, argument in items:
        if operator is names.LITERAL and chr(argument).isascii():
            run += chr(argument).lower()
            continue
        if run:
            found.append([run])
            run = ""
        found += _inside(operator, argument)
    if run:
        found.append([run])
    return max(found, key=lambda options: (min(map(len, options)), -len(options)), default=[])


def _inside(operator: Any, argument: Any) -> list[list[str]]:
    if operator is names.SUBPATTERN:
        inner = _best(list(argument[-1]))
        return [inner] if inner else []
    if operator is names.BRANCH:
        branches = [_best(list(branch)) for branch in argument[1]]
        return [[text for branch in branches for text in branch]] if all(branches) else []
    if operator in (names.MAX_REPEAT, names.MIN_REPEAT) and argument[0] >= 1:
        inner = _best(list(argument[2]))
        return [inner] if inner else []
    return []


def complaints(regex: str) -> list[str]:
    """Return what keeps a pattern from linear time in every engine: repeats inside repeats."""
    try:
        tree = parser.parse(regex)
    except re.error as error:
        return [f"not a regular expression: {error}"]
    return ["a repeat inside a repeat"] if _nested(list(tree), inside=False) else []


def _nested(items: list[Any], *, inside: bool) -> bool:
    for operator, argument in items:
        if operator in (names.MAX_REPEAT, names.MIN_REPEAT):
            many = argument[1] is names.MAXREPEAT or argument[1] > 16
            if (inside and many) or _nested(list(argument[2]), inside=inside or many):
                return True
        elif (operator is names.SUBPATTERN and _nested(list(argument[-1]), inside=inside)) or (
            operator is names.BRANCH and any(_nested(list(b), inside=inside) for b in argument[1])
        ):
            return True
    return False
