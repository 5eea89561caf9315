r"""The regular expressions that every scanner can run: linear-time, and the same for all of them.

Rules may use literals, classes, ``.``, groups, alternation, bounded and unbounded repeats, ``^ $ \b``
and a leading ``(?i)``. Look-around, back-references and possessive forms are refused, since
hyperscan and RE2 do not know them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_REFUSED = (
    (re.compile(r"\(\?(?:<?[=!])"), "look-around"),
    (re.compile(r"\(\?P="), "back-reference"),
    (re.compile(r"(?<!\\)(?:\\\\)*\\[1-9]"), "back-reference"),
    (re.compile(r"\(\?>|[*+?}]\+"), "possessive or atomic form"),
    (re.compile(r"\\[AZz]"), "absolute anchor"),
)
_TOKEN = re.compile(
    r"\\[pPx](?:\{[^}]*\}|..)|\\.|\{\d+(?:,\d*)?\}|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?P<\w+>|.",
    re.DOTALL,
)


def refusals(pattern: str) -> list[str]:
    """Return why a pattern cannot be run by every scanner; empty when it can."""
    found = [why for test, why in _REFUSED if test.search(pattern)]
    try:
        compiled = re.compile(scoped(pattern).encode())
    except (re.error, UnicodeEncodeError) as error:
        return [*found, f"not a regular expression: {error}"]
    if compiled.search(b""):
        found.append("matches an empty line")
    return found


def scoped(pattern: str) -> str:
    """Return the pattern with a leading ``(?i)`` turned into a group, so that patterns can be joined."""
    return f"(?i:{pattern[4:]})" if pattern.startswith("(?i)") else f"(?:{pattern})"


def without_captures(pattern: str) -> str:
    """Return the pattern with its capturing groups made plain, as set matchers want them."""
    parts = []
    for match in _TOKEN.finditer(pattern):
        part = match.group()
        named = part.startswith("(?P<")
        numbered = part == "(" and pattern[match.end() : match.end() + 1] != "?"
        parts.append("(?:" if named or numbered else part)
    return "".join(parts)


def joined(patterns: Iterable[str]) -> re.Pattern[bytes]:
    """Return one expression that finds any of the patterns in a line of bytes."""
    return re.compile("|".join(scoped(p) for p in patterns).encode())


def any_digit(pattern: str) -> str:
    """Return a pattern that also finds every line with other digits in place of those it wants.

    Used on text whose digits were all made equal: where this finds nothing, the pattern itself
    finds nothing in any line of that shape.
    """
    parts = []
    for part in _TOKEN.findall(pattern):
        if len(part) == 1 and part.isdigit():
            parts.append(r"\d")
        elif part.startswith("[^") and re.search(r"\\d|\d", part):
            parts.append(r"(?s:.)")
        elif part.startswith("[") and re.search(r"\d", part):
            parts.append(part[:-1] + r"\d]")
        else:
            parts.append(part)
    return "".join(parts)
