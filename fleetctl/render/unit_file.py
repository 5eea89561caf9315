"""Reads a systemd unit as systemd does: sections, resets, drop-ins, quoting, variables, specifiers.

Sources: systemd.syntax(7), systemd.service(5) "Command lines", systemd.exec(5) "EnvironmentFile=".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

LISTS = ("ExecStart", "ExecStartPre", "ExecStartPost", "ExecStop", "ExecStopPost", "Environment",
         "EnvironmentFile", "PassEnvironment", "UnsetEnvironment", "ExecCondition", "ExecReload")  # fmt: skip
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)\}")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


@dataclass
class UnitFile:
    """What fragment and drop-ins say together: (section, key) → values; lists keep all, others the last."""

    values: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def last(self, key: str, section: str = "Service") -> str | None:
        """Return the value that counts, None for none."""
        found = self.values.get((section, key))
        return found[-1] if found else None

    def all(self, key: str, section: str = "Service") -> list[str]:
        """Return the values of a list since its last reset."""
        return list(self.values.get((section, key), []))


def read(texts: Iterable[str]) -> UnitFile:
    """Return the settings of a fragment and its drop-ins, in that order."""
    found = UnitFile()
    for text in texts:
        section = ""
        for line in _lines(text):
            if line.startswith("[") and line.endswith("]"):
                section = line[1:-1]
                continue
            key, equals, value = line.partition("=")
            if not equals:
                continue
            name, value = (section, key.strip()), value.strip()
            if name[1] in LISTS and value:
                found.values.setdefault(name, []).append(value)
            else:
                found.values[name] = [value] if value else []
    return found


def _lines(text: str) -> list[str]:
    """Return logical lines: comments out, lines that end in a backslash joined by a space."""
    found: list[str] = []
    joined = ""
    for raw in text.split("\n"):
        line = raw.strip()
        if joined and line[:1] in ("#", ";"):
            continue  # a comment between continued lines
        if not joined and (not line or line[0] in "#;"):
            continue
        joined += line
        if joined.endswith("\\"):
            joined = joined[:-1] + " "
            continue
        found.append(joined)
        joined = ""
    return [*found, joined] if joined else found


def words(text: str) -> list[str]:
    """Return a line's words: quotes taken away, escapes made plain."""
    found: list[str] = []
    current: list[str] | None = None
    quote = ""
    position = 0
    while position < len(text):
        char = text[position]
        if char == "\\" and position + 1 < len(text):
            piece, position = _escape(text, position + 1)
            current = [*(current or []), piece]
            continue
        position += 1
        if quote:
            if char == quote:
                quote = ""
            else:
                current = [*(current or []), char]
        elif char in "\"'":
            quote, current = char, current or []
        elif char.isspace():
            if current is not None:
                found.append("".join(current))
            current = None
        else:
            current = [*(current or []), char]
    return found if current is None else [*found, "".join(current)]


def _escape(text: str, at: int) -> tuple[str, int]:
    char = text[at]
    if char in _ESCAPES:
        return _ESCAPES[char], at + 1
    number = re.compile(r"x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})").match(text, at)
    if number:
        digits, base = next((g, b) for g, b in zip(number.groups(), (16, 8, 16), strict=True) if g)
        return chr(int(digits, base)), number.end()
    return (char if char in "\\\"' " else "\\" + char), at + 1


def specifiers(text: str, unit: str) -> str:
    """Return the text with the specifiers of a system unit filled in; unknown ones stay."""
    prefix, _, instance = unit.rpartition(".")[0].partition("@")
    table = {
        "%": "%", "n": unit, "N": unit.rpartition(".")[0], "p": prefix, "i": instance, "I": instance,
        "h": "/root", "u": "root", "t": "/run", "S": "/var/lib", "C": "/var/cache", "L": "/var/log",
    }  # fmt: skip
    return re.sub(r"%(.)", lambda m: table.get(m[1], m[0]), text)


def command(text: str, unit: str, env: Mapping[str, str]) -> list[str]:
    """Return the words of an Exec line as the program gets them.

    ``${NAME}`` is replaced within a word; a word ``$NAME`` becomes the value's own words.
    """
    found: list[str] = []
    for word in words(specifiers(text.lstrip("-@:+!"), unit)):
        whole = re.fullmatch(r"\$([A-Za-z_]\w*)", word)
        if whole:
            found += words(env.get(whole[1], ""))
        else:
            found.append(_VARIABLE.sub(lambda m: "$" if m[1] is None else env.get(m[1], ""), word))
    return found


def environment(lines: Iterable[str], unit: str) -> dict[str, str]:
    """Return the variables of Environment= lines."""
    pairs = [w for line in lines for w in words(specifiers(line, unit)) if _ASSIGNMENT.fullmatch(w)]
    return dict(pair.split("=", 1) for pair in pairs)


def environment_file(text: str) -> dict[str, str]:
    """Return the variables of an EnvironmentFile=: shell-like quotes, no expansion, no ``export``."""
    found: dict[str, str] = {}
    for raw in re.sub(r"\\\n", "", text).split("\n"):
        line = raw.strip()
        name, equals, value = line.partition("=")
        if not equals or line[:1] in "#;" or not re.fullmatch(r"[A-Za-z_]\w*", name.strip()):
            continue
        found[name.strip()] = _unquoted(value.strip())
    return found


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return re.sub(r'\\(["\\$`])', r"\1", value[1:-1])
    if len(value) >= 2 and value[0] == value[-1] == "'":
        return value[1:-1]
    return re.sub(r"\\(.)", r"\1", value)


def seconds(text: str) -> int | None:
    """Return a time span in seconds, None for infinity or what is none."""
    if text in ("infinity", "0"):
        return None
    units = {
        "": 1.0,
        "s": 1,
        "sec": 1,
        "min": 60,
        "m": 60,
        "h": 3600,
        "hr": 3600,
        "ms": 0.001,
        "d": 86400,
    }
    total, rest = 0.0, text.strip()
    while rest:
        match = re.match(r"(\d+(?:\.\d+)?)\s*([a-z]*)\s*", rest)
        if match is None or match[2] not in units:
            return None
        total += float(match[1]) * units[match[2]]
        rest = rest[match.end() :]
    return int(total)
