"""The text of an exception: where its message ends, and the margins that exception groups draw."""

from __future__ import annotations

import re

from fleetctl.evidence.deaths import HEADER, NEW_MATTER, Rows
from fleetctl.evidence.record import APP, Record

LINKS = {
    "The above exception was the direct cause of": "cause",
    "During handling of the above exception, another": "context",
}
# An exception alone on a line is only what is named like one.
ALONE = re.compile(
    r"(?P<type>(?:[A-Za-z_]\w{0,80}\.){0,8}(?:Exception|[A-Za-z_]\w{0,100}?(?:Error|Exception|OutOfResources|Timeout|ExceptionGroup"
    r"|Interrupt|SystemExit)))(?:: ?(?P<message>.*)|\Z)",
    re.DOTALL,
)
_MARGIN = re.compile(r"\s*(?:\+-\+-|[|+])(?:[- ]{0,40}\d{1,4} -{2,40}| |-{4,80}|\Z)")
MOST = 400  # lines of a message


def unmargined(text: str) -> str:
    """Return the text without the margin of an exception group, however deep."""
    previous = None
    while previous != text and text.lstrip()[:1] in ("|", "+"):
        previous, text = text, _MARGIN.sub("", text, count=1)
    return text


def read(rows: Rows, first: str, *, member: bool) -> tuple[list[str], int]:
    """Return the lines of the message that starts on the first of rows, and how many rows it took.

    ``member`` says that it stands inside an exception group. A message that begins below the exception's
    name is a text of its own with empty lines between its parts.
    """
    record = rows[0][1]
    texts = [first]
    opened = not first.strip() and record.text.rstrip().endswith(":")
    blanks = 0
    for offset, (_, later) in enumerate(rows[1:], 1):
        text = unmargined(later.text) if member else later.text
        if _ends(record, later, text):
            return _trimmed(texts, blanks), offset - blanks
        if not text.strip():
            blanks += 1
            goes_on = opened or _resumes(rows[offset + 1 : offset + 14])
            if blanks > 2 or not goes_on:
                return _trimmed([*texts, ""], blanks), offset - blanks + 1
        else:
            blanks = 0
        texts.append(text)
    return _trimmed(texts, blanks), len(texts) - blanks


def _ends(record: Record, later: Record, text: str) -> bool:
    if later.origin != APP or HEADER in text or any(s in text for s in LINKS):
        return True
    if later.site is not None and (not later.site or later.site != record.site):
        return True
    bare = text.strip()
    if bare.startswith('File "') and "line " in bare:
        return True
    if later.rank and record.rank and later.rank != record.rank:
        return True
    another = later.site is not None and ALONE.match(text) is not None
    return another or NEW_MATTER.match(bare) is not None


def _resumes(rows: Rows) -> bool:
    """Return whether after a blank line the message goes on, up to a link or a stamped line."""
    for count, (_, later) in enumerate(rows):
        if any(s in later.text for s in LINKS):
            return True
        if later.site is not None or HEADER in later.text:
            return False
        if count > 0 and NEW_MATTER.match(later.text.strip()):
            return False
    return False


def _trimmed(texts: list[str], blanks: int) -> list[str]:
    return texts[: len(texts) - blanks] if blanks else texts
