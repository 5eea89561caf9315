"""Find the exceptions of one stream: tracebacks whole, cut, interleaved, chained, or without indentation."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from fleetctl.evidence import deaths, messages
from fleetctl.evidence import frames as spell
from fleetctl.evidence.deaths import HEADER
from fleetctl.evidence.exceptions import Raised, Stack
from fleetctl.evidence.record import APP, Record
from fleetctl.model.triage import Frame

_NAME = r"(?:[A-Za-z_]\w{0,80}\.){0,8}[A-Za-z_]\w{0,120}"
# After frames any dotted name can be the exception.
_AFTER_FRAMES = re.compile(r"(?P<type>" + _NAME + r")(?:: ?(?P<message>.*)|\s*)\Z", re.DOTALL)
_CARETS = re.compile(r"[\s^~]+\Z")
_REPEATED = re.compile(
    r"\s*\[Previous line repeated \d{1,9} more times?\]|\s*\.\.\.<\d{1,6} lines>\.\.\.\s*\Z"
)


@dataclass(slots=True)
class Parsed:
    """Exceptions and stacks of a stream, and the positions of the records that belong to them."""

    raised: list[Raised] = field(default_factory=list)
    stacks: list[Stack] = field(default_factory=list)
    consumed: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Head:
    rank: str
    text: str
    line: int


@dataclass(slots=True)
class _Block:
    """A traceback that is being read; several heads when ranks write into one stream at once."""

    chain: int
    heads: list[_Head] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    done: list[Raised] = field(default_factory=list)
    link: str = ""
    indent: int = -1
    header: bool = False
    member: bool = False
    site: str | None = None


class Parser:
    """Reads the records of one stream in order; :meth:`run` returns what it found."""

    def __init__(self, records: list[tuple[int, Record]], first_chain: int = 0) -> None:
        self._records = records
        self._chain = first_chain
        self._found = Parsed()
        self._block: _Block | None = None
        self._at = 0

    def run(self) -> Parsed:
        """Return the exceptions and stacks of the stream, in the order of the log."""
        while self._at < len(self._records):
            index, record = self._records[self._at]
            if record.origin != APP:
                self._at += 1
                continue
            self._at += self._step(index, record, record.text)
        self._close()
        return self._found

    @property
    def next_chain(self) -> int:
        """The first chain number that was not used."""
        return self._chain

    # ---- one line ------------------------------------------------------------------------------

    def _step(self, index: int, record: Record, text: str) -> int:
        """Handle the record at the cursor and return how many records were used, at least one."""
        bare = text.strip()
        if HEADER in text:
            return self._header(index, record, text)
        if bare.startswith("```"):
            self._close()
            return 1
        for sentence, link in messages.LINKS.items():
            if sentence in text:
                return self._link(index, link)
        if bare.startswith("File ") or (bare[:1] in "|+" and "File " in bare[:40]):
            frame = spell.python(text)
            if frame is not None:
                return self._frame(index, record, frame)
            joined = self._unwrapped_frame()
            if joined is not None:
                return joined
        if self._block is not None and self._block.frames and not self._ended(self._block):
            used = self._inside(index, record, text)
            if used:
                return used
        return self._outside(index, record, text, bare)

    def _outside(self, index: int, record: Record, text: str, bare: str) -> int:
        used = self._death(bare)
        if used:
            return used
        alone = messages.ALONE.match(self._unmargined(text))
        if alone is not None and record.level not in ("DEBUG", "INFO"):
            return self._exception(index, record, alone["type"], alone["message"] or "")
        if record.site is not None and bare:
            self._close()
        return 1

    def _death(self, bare: str) -> int:
        """Take what is no traceback but ends a process; return how many records it took, or 0."""
        found: tuple[Raised, int] | None = None
        if bare.startswith("usage: "):
            found = deaths.usage(self._ahead(deaths.MOST))
        elif "Fatal Python error" in bare:
            found = deaths.fault(self._ahead(deaths.STACK))
        elif "terminate called" in bare:
            found = deaths.terminate(self._ahead(deaths.STACK))
        elif bare.startswith("Thread "):
            rows = self._ahead(deaths.STACK)
            stack = deaths.pyspy(rows)
            if stack is not None:
                self._found.stacks.append(stack[0])
                self._found.consumed.update(i for i, _ in rows[: stack[1]])
                return stack[1]
        if found is None:
            return 0
        self._close()
        raised, used = found
        raised.chain = self._chain
        self._chain += 1
        self._found.raised.append(raised)
        self._found.consumed.update(i for i, _ in self._ahead(used))
        return used

    def _ahead(self, count: int) -> list[tuple[int, Record]]:
        return self._records[self._at : self._at + count]

    # ---- tracebacks ----------------------------------------------------------------------------

    def _header(self, index: int, record: Record, text: str) -> int:
        head = text.split(HEADER)[0].strip(" |+").removesuffix("Exception Group").strip()
        block = self._block
        goes_on = block is not None and (block.link or (block.member and not head))
        if block is None or (self._ended(block) and not goes_on):
            self._close()
            block = self._open()
            block.site = record.site
        block.header = True
        block.member = block.member or "Exception Group" in text
        nested = bool(block.heads) and not record.rank and not head  # a chain's next part
        if not nested:
            above = self._line_above() if not head else None
            rank = record.rank or (above.rank if above is not None else "")
            text = above.text.strip() if above is not None else head
            block.heads.append(_Head(rank, text, record.line))
        self._found.consumed.add(index)
        return 1

    def _line_above(self) -> Record | None:
        """Return the line above a bare header when it announces one ("Exception in ModelRpcClient:")."""
        if self._at == 0:
            return None
        index, above = self._records[self._at - 1]
        text = above.text.strip()
        if index in self._found.consumed or not text or len(text) > 300:
            return None
        said = "ailed" in text and (
            not text.endswith(".") or text.endswith("nitialization failed.")
        )
        if not (text.endswith(":") or "xception" in text or "rror" in text or said):
            return None
        self._found.consumed.add(index)
        return above

    def _frame(self, index: int, record: Record, frame: Frame) -> int:
        block = self._block
        if block is None or (
            self._ended(block) and not block.link and len(block.heads) < 2 and not block.member
        ):
            self._close()
            block = self._open()
            block.heads.append(_Head(record.rank, "", record.line))
        if (
            block.done
            and not block.frames
            and block.link == ""
            and len(block.heads) < 2
            and not block.member
        ):
            self._close()
            block = self._open()
        if not any(h.rank for h in block.heads) and record.rank and block.heads:
            block.heads[-1].rank = record.rank
        block.indent = len(record.text) - len(record.text.lstrip())
        if len(block.heads) < 2 or frame not in block.frames:
            block.frames.append(frame)
            block.sources.append("")
        self._found.consumed.add(index)
        return 1

    def _unwrapped_frame(self) -> int | None:
        """Read a frame whose line a narrow terminal broke in two or three."""
        index, record = self._records[self._at]
        text = record.text
        for count in (2, 3):
            more = self._records[self._at + 1 : self._at + count]
            if len(more) < count - 1 or any(r.site is not None for _, r in more):
                return None
            frame = spell.python(text + "".join(r.text.strip("\n") for _, r in more))
            if frame is not None and (frame.function or count == 3):
                self._frame(index, record, frame)
                self._found.consumed.update(i for i, _ in more)
                return count
        return None

    def _inside(self, index: int, record: Record, text: str) -> int:
        """Handle a line below a frame: source, carets, the exception; 0 when it is none of them."""
        block = self._block
        assert block is not None
        plain = self._unmargined(text)
        bare = plain.strip()
        if not bare or _CARETS.match(bare) or _REPEATED.match(plain):
            self._found.consumed.add(index)
            return 1
        indent = len(plain) - len(plain.lstrip())
        foreign = record.site is not None and record.site != block.site
        if foreign and not bare.startswith("raise "):
            alone = messages.ALONE.match(plain)
            if alone is None or indent:
                return 0
        match = _AFTER_FRAMES.match(bare)
        if match is not None and self._is_exception(match, indent, block):
            return self._exception(index, record, match["type"], match["message"] or "")
        if block.sources and not block.sources[-1] and (indent > 0 or block.indent <= 0):
            block.sources[-1] = bare[:400]
            self._found.consumed.add(index)
            return 1
        if indent > max(block.indent, 0):
            self._found.consumed.add(index)
            return 1
        return 0

    @staticmethod
    def _is_exception(match: re.Match[str], indent: int, block: _Block) -> bool:
        last = match["type"].rsplit(".", 1)[-1]
        named = last[:1].isupper() or last.endswith(("Error", "error", "Exception", "exception"))
        if not named or last in ("None", "True", "False"):
            return False
        if block.indent > 0:
            return indent < block.indent
        return (
            bool(block.sources[-1])
            or messages.ALONE.match(match.group(0)) is not None
            or "." in match["type"]
        )

    def _exception(self, index: int, record: Record, kind: str, message: str) -> int:
        """Take the exception line and the lines of its message."""
        block = self._block
        if block is None or (
            block.done and not block.frames and not block.link and len(block.heads) < 2
        ):
            self._close()
            block = self._open()
        # What the interpreter ignores at its end has one line; the next is another's.
        ignored = bool(block.heads) and block.heads[-1].text.startswith("Exception ignored in")
        rows = self._ahead(1 if ignored else messages.MOST)
        texts, used = messages.read(rows, message, member=block.member)
        raised = Raised(
            record.line, index, kind, "\n".join(texts), chain=block.chain, link=block.link
        )
        raised.frames, raised.sources = block.frames, block.sources
        raised.whole = block.header and bool(block.frames)
        raised.site = record.site or ""
        raised.level, raised.pid, raised.stream, raised.seconds = (
            record.level,
            record.pid,
            record.stream,
            record.seconds,
        )
        if block.heads:
            raised.head, raised.head_line = block.heads[-1].text, block.heads[-1].line
        if record.rank and not any(h.rank for h in block.heads):
            block.heads.append(_Head(record.rank, "", record.line))
        raised.last = self._records[self._at + used - 1][0]
        self._found.consumed.update(i for i, _ in self._records[self._at : self._at + used])
        block.done.append(raised)
        block.frames, block.sources, block.link, block.header = (
            [],
            [],
            "member" if block.member else "",
            False,
        )
        return used

    def _link(self, index: int, link: str) -> int:
        if self._block is not None:
            self._block.link = link
        else:
            self._open().link = link
        self._found.consumed.add(index)
        return 1

    # ---- blocks --------------------------------------------------------------------------------

    def _open(self) -> _Block:
        self._block = _Block(self._chain)
        self._chain += 1
        return self._block

    @staticmethod
    def _ended(block: _Block) -> bool:
        return bool(block.done) and not block.frames and not block.link

    def _close(self) -> None:
        block, self._block = self._block, None
        if block is None:
            return
        if not block.done and (block.frames or any(h.text for h in block.heads)):
            self._cut_off(block)
        _share_ranks(block)
        self._found.raised += block.done

    def _cut_off(self, block: _Block) -> None:
        """Keep a traceback whose exception line is missing: the frames still tell where."""
        head = block.heads[-1] if block.heads else _Head("", "", 0)
        index = self._records[min(self._at, len(self._records)) - 1][0]
        raised = Raised(
            head.line,
            index,
            "",
            "",
            head=head.text,
            head_line=head.line,
            chain=block.chain,
            last=index,
        )
        raised.frames, raised.sources = block.frames, block.sources
        block.done.append(raised)

    def _unmargined(self, text: str) -> str:
        inside = self._block is not None and self._block.member
        return messages.unmargined(text) if inside else text


def _share_ranks(block: _Block) -> None:
    """Give the exceptions of a block its ranks: one head, or several ranks that wrote at once."""
    ranks = list(dict.fromkeys(h.rank for h in block.heads if h.rank))
    firsts = [r for r in block.done if r.link in ("", "context", "cause")]
    same = len({(r.type, r.message) for r in firsts}) <= max(
        1, len(firsts) // max(1, len(block.heads))
    )
    for position, raised in enumerate(block.done):
        if len(ranks) > 1 and not same and len(block.done) == len(ranks):
            raised.ranks = [ranks[position]]
        else:
            raised.ranks = list(ranks)


def parse(records: list[Record]) -> Parsed:
    """Return the exceptions of all streams in the order of the log."""
    streams: dict[str, list[tuple[int, Record]]] = {}
    for index, record in enumerate(records):
        streams.setdefault(record.stream, []).append((index, record))
    whole = Parsed()
    chain = 0
    for stream in streams.values():
        parser = Parser(stream, chain)
        part = parser.run()
        chain = parser.next_chain
        whole.raised += part.raised
        whole.stacks += part.stacks
        whole.consumed |= part.consumed
    whole.raised.sort(key=lambda r: r.index)
    return whole
