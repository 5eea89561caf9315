"""Console blocks of the documentation: what a reader would type, in order."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Typed:
    """One command line of a page."""

    page: str
    line: int
    text: str

    @property
    def words(self) -> list[str]:
        """Return the words before the first pipe, redirection or comment."""
        lexer = shlex.shlex(self.text, posix=True, punctuation_chars="|<>;&")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in lexer:
            if set(word) <= set("|<>;&"):
                break
            words.append(word)
        return words

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def pages() -> list[Path]:
    """Return every page that people read."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def typed(page: Path) -> list[Typed]:
    """Return the lines after a ``$`` prompt, continuations joined."""
    text = page.read_text(encoding="utf-8")
    found = []
    for block in _BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1)) + 1
        lines = block.group(1).split("\n")
        for number, line in enumerate(lines):
            if line.startswith("$ "):
                whole, at = line[2:], number
                while whole.endswith("\\"):
                    at += 1
                    whole = whole[:-1].rstrip() + " " + lines[at].strip()
                found.append(Typed(str(page.relative_to(ROOT)), first + number, whole))
    return found


def all_typed() -> list[Typed]:
    """Return every command line of every page."""
    return [t for page in pages() for t in typed(page)]
