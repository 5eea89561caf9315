"""Hosts with the same answer on one line: ``b300-[01-04,07],rtx-01``."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

K = TypeVar("K", bound=Hashable)

_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)", re.DOTALL)


def fold(answers: Iterable[tuple[str, K]]) -> list[tuple[K, list[str]]]:
    """Group names by equal answers: the answer of most hosts first, then in the order seen."""
    groups: dict[K, list[str]] = {}
    for name, answer in answers:
        groups.setdefault(answer, []).append(name)
    return sorted(groups.items(), key=lambda item: -len(item[1]))


def ranges(names: Iterable[str]) -> str:
    """Return the names with runs of numbers in brackets; the inventory's selectors read that back."""
    families: dict[tuple[str, str, int], list[str]] = {}
    unnumbered: list[str] = []
    unique = list(dict.fromkeys(names))
    padded = {
        (m[1], m[3]) for n in unique if (m := _match(n)) and m[2].startswith("0") and len(m[2]) > 1
    }
    for name in unique:
        match = _match(name)
        if match is None:
            unnumbered.append(name)
            continue
        # Leading zeros: 07 and 7 are two hosts, so each width is a run of its own.
        width = len(match[2]) if (match[1], match[3]) in padded else 0
        families.setdefault((match[1], match[3], width), []).append(match[2])
    texts = [_bracketed(*key[:2], numbers) for key, numbers in families.items()]
    return ",".join([*texts, *unnumbered])


def _match(name: str) -> re.Match[str] | None:
    """Split at the last number; brackets and commas in a name would read as a range."""
    return None if re.search(r"[\[\],]", name) else _NUMBERED.fullmatch(name)


def _bracketed(head: str, tail: str, numbers: Sequence[str]) -> str:
    if len(numbers) == 1:
        return f"{head}{numbers[0]}{tail}"
    parts: list[list[str]] = []
    for number in sorted(numbers, key=int):
        if parts and int(number) == int(parts[-1][-1]) + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    inside = ",".join(p[0] if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
    return f"{head}[{inside}]{tail}"
