"""Did you mean: the names nearest to a mistyped one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return up to ``count`` known names that look like the word, best first."""
    by_lower: dict[str, str] = {}
    for name in known:
        by_lower.setdefault(name.lower(), name)
    close = difflib.get_close_matches(word.lower(), by_lower, n=count, cutoff=0.6)
    return [by_lower[c] for c in close]


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return ``did you mean a, b?``, or the other text when nothing is near."""
    names = nearest(word, known)
    return f"did you mean {', '.join(names)}?" if names else otherwise
