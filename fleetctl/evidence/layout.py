"""Undo what carried a text: quoting, indentation of the whole, lines that a narrow terminal broke."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

BOX = "│"
_NARROW = range(40, 260)
_STARTS = re.compile(
    r"\s*File \"|Traceback |\[?\d{4}-\d\d-\d\d|\[\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:|\[rank"
    r"|(?:INFO|WARNING|ERROR)\b|\(\w+ pid=|[IWEF]\d{4} |usage: |NVRM|During handling|The above exception"
    r"|\S{1,60} +\| |\s*[\^~]+\s*\Z"
)


_WHOLE_FRAME = re.compile(r"\s*File \"[^\"]{1,400}\", line \d{1,9}, in [\w<>.]{1,120}\Z")


def margin(texts: list[str]) -> str:
    """Return what nearly every line starts with: a quoting mark, or white space; else ""."""
    filled = [t for t in texts if t.strip()]
    if len(filled) < 3:
        return ""
    for mark in ("> ", ">", "| ", BOX + " ", BOX):
        if sum(t.startswith(mark) for t in filled) >= 0.9 * len(filled):
            return mark
    return _common([t[: len(t) - len(t.lstrip(" \t"))] for t in filled])


def _common(margins: list[str]) -> str:
    """Return what all of them start with: the same for the first and the last in order."""
    first, last = min(margins), max(margins)
    same = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    return first if same is None else first[:same]


def double_spaced(texts: list[str]) -> bool:
    """Return whether a viewer put an empty line after nearly every line."""
    filled = sum(1 for t in texts if t.strip())
    if filled < 8 or filled > 0.6 * len(texts):
        return False
    together = sum(1 for a, b in pairwise(texts) if a.strip() and b.strip())
    return together <= 0.1 * filled


def without(text: str, mark: str) -> str:
    """Return a line without the margin, and without the right side of a box."""
    if mark.startswith(BOX):
        text = text.rstrip().removesuffix(BOX).rstrip()
    if text.startswith(mark):
        return text[len(mark) :]
    return text.removeprefix(mark.rstrip())


def width(texts: list[str]) -> int:
    """Return the width at which a terminal broke the lines, or 0 when nothing looks broken."""
    lengths = Counter(len(t) for t in texts)
    widest = max(lengths, default=0)
    if widest not in _NARROW or lengths[widest] < 2 or lengths[widest] < 0.04 * len(texts):
        return 0
    almost = sum(lengths[n] for n in range(widest - 8, widest))
    if almost > lengths[widest]:
        return 0  # lines of all lengths: the widest is only the widest
    broken = sum(goes_on(a, b, widest) for a, b in pairwise(texts))
    sure = 0.7 if broken >= 3 else 1.0
    return widest if broken >= 2 and broken >= sure * lengths[widest] else 0


def goes_on(text: str, following: str, limit: int) -> bool:
    """Return whether a line of full width is continued by the one below."""
    if len(text) != limit or not following or _STARTS.match(following):
        return False
    return following[:12] != text[:12] and _WHOLE_FRAME.match(text) is None
