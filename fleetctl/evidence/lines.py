"""From bytes to lines: any encoding, carriage returns, colours, lines of any length."""

from __future__ import annotations

import re
from collections.abc import Iterator

LINE_LIMIT = 32_768  # characters of a line that are looked at; the rest is counted as truncated
_TAIL = 4_096  # of which this many come from its end, where a program puts the verdict
_ANSI = re.compile(
    r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,2048}(?:\x07|\x1b\\)?|[@-Z\\-_])"
)
_CARET_ANSI = re.compile(r"(?:\^\[|\\x1b|\\033|#033|\u241b)\[[0-9;]{0,20}m")


def physical(data: bytes, first: int = 1) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the bytes of each line, without its end."""
    start = 0
    number = first
    size = len(data)
    while start < size:
        end = data.find(b"\n", start)
        if end < 0:
            end = size
        yield number, data[start:end]
        number += 1
        start = end + 1


def clean(raw: bytes) -> tuple[str, bool]:
    """Return one line as text without colours and NULs, and whether it was cut.

    Invalid UTF-8 becomes U+FFFD. Of a line longer than ``LINE_LIMIT`` the head and the tail are kept.
    """
    cut = len(raw) > LINE_LIMIT
    if cut:
        raw = raw[: LINE_LIMIT - _TAIL] + b" ... " + raw[-_TAIL:]
    text = raw.decode("utf-8", "replace")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "[" in text and ("^[" in text or "\\x1b[" in text or "#033[" in text or "\\033[" in text):
        text = _CARET_ANSI.sub("", text)
    if "\x00" in text:
        text = text.replace("\x00", "")
    return text, cut


def unescaped(text: str) -> str:
    """Return a line that holds a whole traceback with its line ends spelled out as the lines it was."""
    if text.count("\\n") < 4 or not ("Traceback (most" in text or 'File \\"' in text):
        return text
    text = text.replace("\\r\\n", "\n").replace("\\n", "\n").replace("\\t", "\t")
    return text.replace('\\"', '"').replace("\\'", "'")


def parts(text: str) -> list[str]:
    """Return what a line holds between carriage returns: each redraw of a progress bar, or one text."""
    if "\r" not in text:
        return [text]
    pieces = [p for p in text.split("\r") if p.strip()]
    if len(pieces) > 8:
        # A bar redraws the same words; what differs in kind is what somebody printed over it.
        pieces = [p for p in pieces[:-1] if "it/s" not in p and "%|" not in p][:32] + pieces[-1:]
    return pieces or [""]
