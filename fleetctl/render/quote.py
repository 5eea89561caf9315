"""Quoting by systemd's rules, so that a value is one word and never a directive.

Sources: systemd.service(5) "Command lines", systemd.syntax(7) "Quoting", systemd.exec(5)
EnvironmentFile=. The tests read the results back with systemd's own functions where they are there.
"""

from __future__ import annotations

import re

from fleetctl.errors import ConfigError

_SAFE_WORD = re.compile(r"[A-Za-z0-9_@+=:,./-]+")
_SAFE_VALUE = re.compile(r"[A-Za-z0-9_@+=:,./-]*")
# systemd ends a line at each of these, quoted or not.
_LINE_ENDS = "\0\n\r"


class Lines(str):
    """Text of several lines that was quoted here, and may stand in a unit as it is."""

    __slots__ = ()


def one_line(text: str, what: str) -> str:
    """Return the text. Raises ConfigError ``bad-value`` where it cannot stand on a line of a unit."""
    bad = next((c for c in text if c in _LINE_ENDS or 0xD800 <= ord(c) < 0xE000), None)
    if bad is None:
        return text
    name = {"\n": "a line break", "\r": "a carriage return", "\0": "a NUL"}.get(bad, "no UTF-8")
    raise ConfigError("bad-value", f"{what} has {name} in it; systemd takes one line only")


def argument(text: str, what: str) -> str:
    """Return one argument of ExecStart=: specifiers, variables, quotes and escapes made plain."""
    one_line(text, what)
    if _SAFE_WORD.fullmatch(text):
        return text
    return specifier('"' + "".join(_escaped(c) for c in text) + '"').replace("$", "$$")


def is_plain_path(text: str) -> bool:
    """Return whether the text is an absolute path that needs no quoting anywhere."""
    return text.startswith("/") and bool(_SAFE_WORD.fullmatch(text))


def specifier(text: str) -> str:
    """Return a setting's text with ``%`` doubled."""
    return text.replace("%", "%%")


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if ord(char) < 0x20 or ord(char) == 0x7F:
        return f"\\x{ord(char):02x}"
    return char


def command(words: list[str]) -> Lines:
    """Return ExecStart= with one option a line, which makes a diff readable."""
    lines: list[list[str]] = [[]]
    for n, word in enumerate(words):
        if word.startswith("--") and n:
            lines.append([])
        lines[-1].append(argument(word, f"argument {n}"))
    return Lines(" \\\n    ".join(" ".join(line) for line in lines))


def variable(name: str, value: str) -> str:
    """Return a line of an EnvironmentFile=. systemd drops a value with control characters but tab."""
    one_line(value, name)
    if any((ord(c) < 0x20 and c != "\t") or ord(c) == 0x7F for c in value):
        raise ConfigError("bad-value", f"{name} has a control character in it; systemd drops those")
    if _SAFE_VALUE.fullmatch(value):
        return f"{name}={value}"
    escaped = re.sub(r'(["\\$`])', r"\\\1", value)
    return f'{name}="{escaped}"'
