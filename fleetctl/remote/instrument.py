"""Blocks inserted into Python functions by source position: every other byte of the file is kept.

A block goes to the start of a function's body, after the docstring. Each inserted piece carries a
begin and an end comment, so that the text alone says what was inserted and how to take it out.
"""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
from typing import Any, Iterator, NamedTuple, Sequence

from fleetctl.remote import block_names

BEGIN = "# >>> fleetctl "
END = "# <<< fleetctl "
NEWLINE = re.compile(r"\r\n|\n|\r")
BLANK = " \t\f"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class InstrumentError(Exception):
    """The file cannot be changed this way; ``reference`` names the reason."""

    def __init__(self, reference: str, message: str) -> None:
        super().__init__(message)
        self.reference = reference
        self.message = message


class Edit(NamedTuple):
    """One block for one symbol; the empty symbol stands for the end of the module."""

    patch: str
    symbol: str
    block: str


class Patched(NamedTuple):
    """What came out: the bytes, the line map, and where each symbol was found (pristine lines)."""

    data: bytes
    line_map: list[list[int]]
    anchors: list[dict[str, Any]]


class Spot(NamedTuple):
    """Where a piece goes: an offset into the text, how it joins its line, and its indentation."""

    offset: int
    mode: str  # line | inline | eof
    indent: str


class Source:
    """A Python file as bytes, text and tree. Raises InstrumentError when it is not one."""

    def __init__(self, data: bytes) -> None:
        self.bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
            self.encoding = "utf-8" if encoding == "utf-8-sig" else encoding
            self.text = data[len(self.bom) :].decode(self.encoding)
            self.tree = ast.parse(self.text)
        except (SyntaxError, UnicodeDecodeError, LookupError, ValueError) as error:
            raise InstrumentError("not-python", "cannot be parsed: %s" % error)
        if self.encode(self.text) != data:
            raise InstrumentError(
                "encoding-not-kept", "%s does not give the same bytes again" % self.encoding
            )
        self.starts = [0] + [m.end() for m in NEWLINE.finditer(self.text)]
        first = NEWLINE.search(self.text)
        self.newline = first.group() if first else "\n"

    def encode(self, text: str) -> bytes:
        """Return the file's bytes for this text."""
        try:
            return self.bom + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise InstrumentError("not-encodable", "the block does not fit: %s" % error)

    def line(self, number: int) -> str:
        """Return line ``number`` (from 1) with its end."""
        end = self.starts[number] if number < len(self.starts) else len(self.text)
        return self.text[self.starts[number - 1] : end]

    def offset(self, line: int, column: int) -> int:
        """Return the offset of an ast position: its columns count UTF-8 bytes."""
        return self.starts[line - 1] + len(self.line(line).encode("utf-8")[:column].decode("utf-8"))

    def line_of(self, offset: int) -> int:
        """Return the line (from 1) that holds an offset."""
        low, high = 0, len(self.starts)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.starts[middle] <= offset else (low, middle)
        return low + 1

    def indentation(self, line: int) -> str:
        """Return the blank text at the start of a line that counts (a form feed resets it)."""
        text = self.line(line)
        blank = text[: len(text) - len(text.lstrip(BLANK))]
        return blank.rsplit("\f", 1)[-1]

    def opens_line(self, line: int, column: int) -> bool:
        """Return whether only blanks (or a decorator's sign) stand before this place."""
        before = self.text[self.starts[line - 1] : self.offset(line, column)]
        joined = line > 1 and self.line(line - 1).rstrip("\r\n").endswith("\\")
        return before.strip(BLANK) in ("", "@") and not joined


def definitions(tree: ast.AST, symbol: str) -> list[Any]:
    """Return every function of that qualified name, in the order of the source.

    ``*`` stands for any class or outer function. Definitions behind ``if``, ``try`` and the like
    count; stubs (typing overloads, a body of ``...``), which do nothing, do not.
    """
    parts = [p for p in symbol.split(".") if p != "<locals>"]
    scopes: list[Any] = [tree]
    for index, part in enumerate(parts):
        kinds = FUNCTIONS if index == len(parts) - 1 else SCOPES
        scopes = [
            n
            for s in scopes
            for n in _in_scope(s)
            if isinstance(n, kinds) and part in ("*", n.name)
        ]
    return [n for n in scopes if not _is_stub(n)]


def _in_scope(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, SCOPES):
            yield child
        elif isinstance(child, (ast.stmt, ast.ExceptHandler)) or hasattr(child, "guard"):
            yield from _in_scope(child)


def _is_stub(node: Any) -> bool:
    names = [getattr(d, "attr", None) or getattr(d, "id", None) for d in node.decorator_list]
    body = node.body[1:] if docstring(node) is not None else node.body
    alone = body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else None
    return "overload" in names or (isinstance(alone, ast.Constant) and alone.value is Ellipsis)


def docstring(node: Any) -> Any:
    """Return the statement that is the docstring of a function or module, or None."""
    first = node.body[0] if node.body else None
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        return first
    return None


def spots(source: Source, node: Any) -> list[tuple[Spot, bool]]:
    """Return where pieces go for one function: (spot, whether it takes the block)."""
    doc = docstring(node)
    rest = node.body[1:] if doc is not None else node.body
    found: list[tuple[Spot, bool]] = []
    if doc is not None:
        indent = source.indentation(doc.lineno)
        if not source.opens_line(doc.lineno, doc.col_offset):
            indent = _deeper(source, node)
            offset = source.offset(doc.lineno, doc.col_offset)
            found.append((Spot(offset, "inline", indent), False))
    else:
        indent = _deeper(source, node)
    if not rest:
        return [*found, (_after_line(source, doc.end_lineno, indent), True)]
    first = rest[0]
    line, column = min(
        (n.lineno, n.col_offset) for n in [first, *getattr(first, "decorator_list", [])]
    )
    if source.opens_line(line, column):
        spot = Spot(source.starts[line - 1], "line", source.indentation(line))
    else:
        spot = Spot(source.offset(line, column), "inline", indent)
    return [*found, (spot, True)]


def _deeper(source: Source, node: Any) -> str:
    """Return an indentation for the body of a function that is written on one line."""
    outer = source.indentation(node.lineno)
    return outer + ("\t" if outer.endswith("\t") else "    ")


def _after_line(source: Source, line: int, indent: str) -> Spot:
    if line < len(source.starts):
        return Spot(source.starts[line], "line", indent)
    return Spot(len(source.text), "eof", indent)


def end_of_module(source: Source) -> Spot:
    """Return the spot after the last line."""
    closed = not source.text or source.starts[-1] == len(source.text)
    return Spot(len(source.text), "line" if closed else "eof", "")


def piece(spot: Spot, patch: str, block: str, newline: str) -> str:
    """Return the text to insert at a spot."""
    code = [spot.indent + line if line.strip() else "" for line in lines_of(block)]
    mode = "" if spot.mode == "line" else " " + spot.mode
    head, tail = BEGIN + patch + mode, spot.indent + END + patch
    if spot.mode == "inline":
        return newline.join([head, *code, tail, spot.indent])
    body = newline.join([spot.indent + head, *code, tail])
    return body + newline if spot.mode == "line" else newline + body


def compose(data: bytes, edits: Sequence[Edit]) -> Patched:
    """Return the file with every edit in it, proven. ``data`` holds no inserted block.

    Edits of several patches are put in together, in their order, so that each can be taken out
    alone. Raises InstrumentError: symbol-not-found, or proof-failed when the result is not the
    original plus the blocks.
    """
    source = Source(data)
    sizes = {e: statements(e.block) for e in edits}
    insertions: list[tuple[Spot, str]] = []
    anchors: list[dict[str, Any]] = []
    for edit in sorted(edits, key=lambda e: not e.symbol):  # the end of the module comes last
        if not edit.symbol:
            spot = end_of_module(source)
            insertions.append((spot, piece(spot, edit.patch, edit.block, source.newline)))
            continue
        nodes = definitions(source.tree, edit.symbol)
        if not nodes:
            raise InstrumentError("symbol-not-found", "no function %s" % edit.symbol)
        for node in nodes:
            _require_names(source.tree, node, edit)
            anchors.append({"patch": edit.patch, "symbol": edit.symbol, "line": node.lineno})
            for spot, takes in spots(source, node):
                block = edit.block if takes else ""
                insertions.append((spot, piece(spot, edit.patch, block, source.newline)))
    insertions.sort(key=lambda i: i[0].offset)
    parts: list[str] = []
    at = 0
    for spot, text in insertions:
        parts += [source.text[at : spot.offset], text]
        at = spot.offset
    patched = source.encode("".join([*parts, source.text[at:]]))
    _prove(source, data, patched, sizes)
    return Patched(patched, _line_map(source, insertions), anchors)


def _require_names(tree: ast.AST, node: Any, edit: Edit) -> None:
    """Raise InstrumentError ``name-missing`` for a block that would fail in this function by itself."""
    lost = block_names.missing(_parsed(edit.block).body[0].body, node, tree)
    if lost:
        has = ", ".join(sorted(block_names.arguments(node))) or "no argument"
        raise InstrumentError(
            "name-missing",
            "the block reads %s, and %s (line %d) has %s"
            % (", ".join(lost), edit.symbol, node.lineno, has),
        )


def _prove(source: Source, data: bytes, patched: bytes, sizes: dict[Edit, int]) -> None:
    """The tree is the original plus the blocks, and taking the blocks out gives the bytes again."""
    try:
        tree = Source(patched).tree
    except InstrumentError as error:
        raise InstrumentError("proof-failed", "the result is no Python: %s" % error.message)
    module_end = sum(count for e, count in sizes.items() if not e.symbol)
    del tree.body[len(tree.body) - module_end :]
    inserted: dict[str, int] = {}
    for edit, count in sizes.items():
        if edit.symbol:
            inserted[edit.symbol] = inserted.get(edit.symbol, 0) + count
    for symbol, count in inserted.items():
        for node in definitions(tree, symbol):
            start = 0 if docstring(node) is None else 1
            del node.body[start : start + count]
    if ast.dump(tree) != ast.dump(source.tree):
        raise InstrumentError("proof-failed", "the tree differs by more than the blocks")
    rest = patched
    for patch in {e.patch for e in sizes}:
        rest = strip(rest, patch)
    if rest != data:
        raise InstrumentError("proof-failed", "taking the blocks out does not give the bytes again")


def lines_of(block: str) -> list[str]:
    """Return a block's lines without their ends; none for an empty block."""
    return NEWLINE.split(block.strip("\r\n")) if block.strip() else []


def statements(block: str) -> int:
    """Return how many statements a block is made of. Raises InstrumentError: bad-block."""
    try:
        tree = _parsed(block)
    except (SyntaxError, ValueError) as error:
        line = (getattr(error, "lineno", None) or 2) - 1
        raise InstrumentError("bad-block", "line %d: %s" % (line, getattr(error, "msg", error)))
    return len(tree.body[0].body) - 1


def _parsed(block: str) -> Any:
    body = "\n".join("    " + line for line in lines_of(block))
    return ast.parse("async def _():\n" + body + "\n    pass\n")


def strip(data: bytes, patch: str) -> bytes:
    """Return the file without the blocks of one patch, by the comments around them."""
    name = re.escape(patch.encode("ascii"))
    begin, end, nl = b"# >>> fleetctl " + name, b"# <<< fleetctl " + name, rb"(?:\r\n|\n|\r)"
    start = rb"(?:\A|(?<=\A\xef\xbb\xbf)|(?<=\n)|(?<=\r)(?!\n))"
    line = start + rb"[ \t]*" + begin + nl + rb".*?[ \t]*" + end + nl
    inline = begin + b" inline" + nl + rb"(?:.*?" + nl + rb")??([ \t]*)" + end + nl + rb"\1"
    eof = nl + rb"[ \t]*" + begin + b" eof" + nl + rb".*?[ \t]*" + end
    return re.sub(b"|".join((line, inline, eof)), b"", data, flags=re.DOTALL)


def patches_in(data: bytes) -> list[str]:
    """Return the names of the patches whose blocks a file holds, in the order of the text."""
    found = re.findall(rb"# >>> fleetctl ([a-z0-9][a-z0-9-]*)", data)
    return list(dict.fromkeys(n.decode("ascii") for n in found))


def _line_map(source: Source, insertions: Sequence[tuple[Spot, str]]) -> list[list[int]]:
    breaks = [[1, 1]]
    shift = 0
    for spot, text in insertions:
        line, count = source.line_of(spot.offset), len(NEWLINE.findall(text))
        if spot.mode == "line":
            breaks += [[line + shift, 0], [line + shift + count, line]]
        elif spot.mode == "inline":
            breaks += [[line + shift + 1, 0], [line + shift + count, line]]
        else:
            breaks += [[line + shift + 1, 0]]
        shift += count
    return [b for i, b in enumerate(breaks) if i + 1 == len(breaks) or breaks[i + 1][0] > b[0]]


def original_line(line_map: Sequence[Sequence[int]], line: int) -> int | None:
    """Return the line of the original for a line of the patched file; None inside a block."""
    found = None
    for patched, original in line_map:
        if patched > line:
            break
        found = original + line - patched if original else None
    return found
