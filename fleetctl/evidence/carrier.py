"""Find what a carrier that nobody knows put before every line: a task's name, a number, columns of a table.

Only what stands on nearly every line counts, and only where the lines make more sense without it.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from fleetctl.evidence import prefix
from fleetctl.evidence.record import Record

_SAMPLE = 400
_LONGEST = 120
_NUMBER = re.compile(r"\d+")
_ENDS = ' |:\t,>-]")*'
_SENSE = re.compile(
    r"\s*File \"|Traceback \(most|\[?\d{4}-\d\d-\d\d[ T]\d|\[\d\d:\d\d|\(\w+ pid=|\[rank\d"
    r"|[A-Z]\w{2,40}Error: |[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d |(?:INFO|WARNING|ERROR): |Fatal Python error"
)
_MARKUP = ("&quot;", "&#x27;", "&#39;", "&lt;module&gt;")


def without_markup(texts: list[str]) -> list[str]:
    """Return lines that were copied out of a page's source as they were before."""
    if not any(mark in text for text in texts[:_SAMPLE] for mark in _MARKUP):
        return texts
    return [html.unescape(text) if "&" in text else text for text in texts]


def without_carrier(texts: list[str]) -> list[str]:
    """Return the lines without what an unknown carrier put before them; the lines as they are if none did."""
    pattern = _found([t for t in texts[: 3 * _SAMPLE] if t.strip()][:_SAMPLE])
    if pattern is None:
        return texts
    quoted = pattern.pattern.endswith('"')
    return [_taken(pattern, text, quoted=quoted) for text in texts]


def _taken(pattern: re.Pattern[str], text: str, *, quoted: bool) -> str:
    match = pattern.match(text)
    if match is None:
        return text if text.strip() != pattern.pattern else ""
    rest = text[match.end() :]
    return rest.removesuffix('"').replace('""', '"') if quoted else rest


def _found(sample: Sequence[str]) -> re.Pattern[str] | None:
    if len(sample) < 6:
        return None
    shared = _shared([_NUMBER.sub("0", text.lstrip(" ")[:_LONGEST]) for text in sample])
    ends = [at + 1 for at, char in enumerate(shared) if char in _ENDS and at]
    if not ends or _known(sample):
        return None
    patterns = [re.compile(" *" + re.escape(shared[:n]).replace("0", r"\d{1,30}")) for n in ends]
    best = max(patterns, key=lambda pattern: _sense(sample, pattern))
    before = sum(_SENSE.match(text) is not None for text in sample)
    return best if _sense(sample, best) >= max(2, 3 * before) else None


def _sense(sample: Sequence[str], pattern: re.Pattern[str]) -> int:
    """Return how many lines start as a server's lines do once a carrier's part is taken off."""
    rests = (text[match.end() :] for text in sample if (match := pattern.match(text)) is not None)
    return sum(_SENSE.match(rest) is not None for rest in rests)


def _shared(shapes: list[str]) -> str:
    """Return what all but 5 of 100 shapes start with; two may differ at the least."""
    least = len(shapes) - max(0.05 * len(shapes), 2 if len(shapes) >= 8 else 0)
    found = ""
    for at in range(_LONGEST):
        char, count = Counter(s[at : at + 1] for s in shapes).most_common(1)[0]
        if not char or count < least:
            break
        shapes = [s for s in shapes if s[at : at + 1] == char]
        found += char
    return found


def _known(sample: Sequence[str]) -> bool:
    """Return whether half of the lines have a wrapping that is known already."""
    if prefix.looks_like_srun(list(sample)) and not _counting(sample):
        return True
    peeled = sum(prefix.peel(Record(1, text)).text != text for text in sample[:60])
    return peeled > 0.5 * min(len(sample), 60)


def _counting(sample: Sequence[str]) -> bool:
    """Return whether the numbers before lines only count them."""
    numbers = [int(m[0]) for m in map(_NUMBER.search, sample) if m is not None]
    steps = [b - a for a, b in pairwise(numbers)]
    return len(steps) > 2 and sum(0 < step < 4 for step in steps) > 0.9 * len(steps)
