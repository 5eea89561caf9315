"""Host ranges: ``b300-[01-04,07]`` stands for five names."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_PART = re.compile(r"([0-9]+)(?:-([0-9]+))?")
LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class Named:
    """One name out of a range; ``number`` is what stands for ``{n}``, without leading zeros."""

    name: str
    number: int | None = None


def has_range(text: str) -> bool:
    """Return whether the text holds brackets."""
    return "[" in text or "]" in text


def expand(text: str) -> list[Named]:
    """Return every name, in the order written. ValueError says what is wrong with the range."""
    if not has_range(text):
        return [Named(text)]
    found = _BRACKETS.findall(text)
    if len(found) != 1 or text.count("[") != 1 or text.count("]") != 1:
        raise ValueError("one pair of brackets, as in b300-[01-04]")
    head, tail = _BRACKETS.split(text)[::2]
    names: list[Named] = []
    for part in found[0].split(","):
        names += [Named(f"{head}{text}{tail}", int(text)) for text in _numbers(part.strip())]
        if len(names) > LIMIT:
            raise ValueError(f"more than {LIMIT} hosts")
    return names


def _numbers(part: str) -> list[str]:
    match = _PART.fullmatch(part)
    if match is None:
        raise ValueError(f"{part!r} is no range of numbers, as in 01-04")
    first, last = match[1], match[2] or match[1]
    if int(last) < int(first):
        raise ValueError(f"{part!r} runs backwards")
    if int(last) - int(first) > LIMIT:
        raise ValueError(f"more than {LIMIT} hosts")
    width = len(first) if first.startswith("0") or len(first) == len(last) else 0
    return [str(n).zfill(width) for n in range(int(first), int(last) + 1)]
