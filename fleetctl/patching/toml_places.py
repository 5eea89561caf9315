"""TOML with a place for every key, so that a fault can say ``file:line:col``.

``tomllib`` reads the values; this walk only finds where their keys stand.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from fleetctl.config.nodes import Document, Path_, read_text, shown_path
from fleetctl.errors import ConfigError

_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED = rf"{_KEY}(?:[ \t]*\.[ \t]*{_KEY})*"
_TABLE = re.compile(rf"[ \t]*(\[\[?)[ \t]*({_DOTTED})[ \t]*\]\]?")
_PAIR = re.compile(rf"[ \t]*({_DOTTED})[ \t]*=[ \t]*")
_MULTI = re.compile(r'"""|\'\'\'')
_SKIP = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|#.*")


def load(path: Path) -> Document:
    """Return the document. Raises ConfigError ``unreadable``, ``not-utf8`` or ``toml-syntax``."""
    return parse(read_text(path, "utf-8"), path)


def parse(text: str, path: Path) -> Document:
    """Read TOML text as if it stood in ``path``."""
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        place = re.search(r" \(at line (\d+), column (\d+)\)", message)
        where = f":{place[1]}:{place[2]}" if place else ""
        message = re.sub(r" \(at .*\)$", "", message)
        raise ConfigError("toml-syntax", message, where=f"{shown_path(path)}{where}") from error
    document = Document(path, value)
    document.marks[()] = (1, 1)
    _walk(text, document)
    return document


def _walk(text: str, document: Document) -> None:
    table: Path_ = ()
    counts: dict[Path_, int] = {}
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        if head := _TABLE.match(line):
            table = _enter(head[1], _parts(head[2]), counts)
            _note(document, table, at + 1, head.start(2) + 1, head.start(2) + 1)
        elif pair := _PAIR.match(line):
            path = (*table, *_parts(pair[1]))
            _note(document, path, at + 1, pair.start(1) + 1, pair.end() + 1)
            at = _value_end(lines, at, pair.end())
        at += 1


def _enter(bracket: str, parts: Path_, counts: dict[Path_, int]) -> Path_:
    """Return the path of a table, with the index of the newest element of each array on the way."""
    path: Path_ = ()
    for number, part in enumerate(parts):
        path = (*path, part)
        last = number == len(parts) - 1
        if last and bracket == "[[":
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def _note(document: Document, path: Path_, line: int, key: int, value: int) -> None:
    document.key_marks[path] = (line, key)
    for end in range(1, len(path) + 1):
        document.marks.setdefault(path[:end], (line, value if end == len(path) else key))


def _parts(dotted: str) -> Path_:
    return tuple(p[1:-1] if p[0] in "\"'" else p for p in re.findall(_KEY, dotted))


def _value_end(lines: list[str], at: int, start: int) -> int:
    """Return the line in which a value ends: text and lists may go over several."""
    rest = lines[at][start:]
    if quote := _MULTI.match(rest):
        rest = rest[3:]
        while quote[0] not in rest and at + 1 < len(lines):
            at += 1
            rest = lines[at]
        return at
    depth = 0
    while True:
        plain = _SKIP.sub("", rest)
        depth += plain.count("[") + plain.count("{") - plain.count("]") - plain.count("}")
        if depth <= 0 or at + 1 >= len(lines):
            return at
        at += 1
        rest = lines[at]
