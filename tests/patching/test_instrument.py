"""Blocks go in by source position: each case file comes out as its own bytes plus the block.

A case is a file ``cases/functions/<what>@<symbol>.py``.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fleetctl.remote import instrument
from fleetctl.remote.instrument import Edit, InstrumentError

CASES = sorted((Path(__file__).parent / "cases/functions").glob("*.py"))
BLOCK = "if len('seen') == 0:\n    raise SystemExit('x')"
A_ONLY = [("a", BLOCK, True)]
A_AND_B = [("a", BLOCK, True), ("b", "_b = 3", True)]


def edits(symbol: str, patches: list[tuple[str, str, bool]]) -> list[Edit]:
    out = []
    for name, block, beacon in patches:
        out.append(Edit(name, symbol, block))
        if beacon:
            out.append(Edit(name, "", f"print({name!r})"))
    return out


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.stem)
@pytest.mark.parametrize("patches", [A_ONLY, A_AND_B], ids=["one", "two"])
class TestEveryShapeOfAFunction:
    def test_taking_the_blocks_out_gives_the_bytes_again(
        self, case: Path, patches: list[tuple[str, str, bool]]
    ) -> None:
        data = case.read_bytes()
        patched = instrument.compose(data, edits(case.stem.split("@")[1], patches)).data
        assert patched != data
        for name, _, _ in patches:
            patched = instrument.strip(patched, name)
        assert patched == data

    def test_the_block_is_the_first_thing_that_runs(
        self, case: Path, patches: list[tuple[str, str, bool]]
    ) -> None:
        symbol = case.stem.split("@")[1]
        data = case.read_bytes()
        patched = instrument.compose(data, edits(symbol, patches)).data
        tree = ast.parse(instrument.Source(patched).text)
        found = instrument.definitions(tree, symbol)
        assert len(found) == len(instrument.definitions(instrument.Source(data).tree, symbol))
        for node in found:
            body = node.body[1:] if instrument.docstring(node) is not None else node.body
            assert ast.unparse(body[0]).startswith("if len('seen') == 0")

    def test_every_original_line_is_found_again_by_the_line_map(
        self, case: Path, patches: list[tuple[str, str, bool]]
    ) -> None:
        data = case.read_bytes()
        done = instrument.compose(data, edits(case.stem.split("@")[1], patches))
        old, new = instrument.Source(data), instrument.Source(done.data)
        lines = range(1, len(new.starts) + 1)
        mapped = {n: instrument.original_line(done.line_map, n) for n in lines}
        assert {m for m in mapped.values() if m} == set(range(1, len(old.starts) + 1))
        for number, original in mapped.items():
            text = new.line(number).strip()
            if original and text and "fleetctl" not in text:
                assert text in old.line(original)

    def test_one_patch_can_be_taken_out_alone(
        self, case: Path, patches: list[tuple[str, str, bool]]
    ) -> None:
        symbol = case.stem.split("@")[1]
        both = instrument.compose(case.read_bytes(), edits(symbol, A_AND_B)).data
        assert instrument.patches_in(both) == ["a", "b"]
        left = instrument.strip(both, "a")
        assert left == instrument.compose(case.read_bytes(), edits(symbol, A_AND_B[1:])).data
        compile(left, "left.py", "exec")


def test_an_overload_stub_gets_no_block() -> None:
    data = next(c for c in CASES if c.stem.startswith("overloads")).read_bytes()
    assert len(instrument.compose(data, edits("f", A_ONLY)).anchors) == 1


def test_two_definitions_are_both_anchored() -> None:
    data = next(c for c in CASES if c.stem.startswith("two-definitions")).read_bytes()
    assert [a["line"] for a in instrument.compose(data, edits("f", A_ONLY)).anchors] == [3, 6]


@pytest.mark.parametrize(
    ("data", "block", "reference"),
    [
        (b"def g(): pass\n", "pass", "symbol-not-found"),
        (b"def f(:\n", "pass", "not-python"),
        (b"def f(): pass\x00", "pass", "not-python"),
        (b"# coding: nonsense\ndef f(): pass\n", "pass", "not-python"),
        (b"def f():\n    pass\n", "if (:", "bad-block"),
        (b"# coding: latin-1\ndef f():\n    pass\n", "x = '\u20ac'", "not-encodable"),
        (b"def f():\n    pass\n", "# <<< fleetctl a\nx = 1", "proof-failed"),
        (b"def f():\n    pass\n", "# only a comment", None),
        (b"# coding: utf-7\ndef f():\n    x = '+AGE-'\n", "pass", "encoding-not-kept"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(
    data: bytes, block: str, reference: str | None
) -> None:
    if reference is None:
        instrument.compose(data, [Edit("a", "f", block)])
        return
    with pytest.raises(InstrumentError) as caught:
        instrument.compose(data, [Edit("a", "f", block)])
    assert caught.value.reference == reference


@pytest.mark.parametrize(
    ("source", "symbol", "block", "lost"),
    [
        ("def f(a, b):\n    pass\n", "f", "if srcs is None:\n    pass", "srcs"),
        ("def f(srcs):\n    pass\ndef g(a):\n    pass\n", "g", "print(srcs)", "srcs"),
        ("class C:\n    x = 1\n    def f(self):\n        pass\n", "C.f", "print(x)", "x"),
        ("def f(a):\n    b = 1\n", "f", "print(b)", "b"),
        ("def f(a):\n    pass\n", "f", "def _fc_g(v=gone):\n    return later\n", "gone"),
        ("def f(a, *r, k=1, **o):\n    pass\n", "f", "print(a, r, k, o)", ""),
        ("import os as o\ndef f():\n    pass\n", "f", "print(o, __name__, __file__)", ""),
        ("def g():\n    global G\n    G = 1\ndef f():\n    pass\n", "f", "print(G)", ""),
        ("from x import *\ndef f():\n    pass\n", "f", "print(anything)", ""),
        ("def f(a):\n    b = 1\n    def g(c):\n        pass\n", "f.g", "print(a, b, c)", ""),
        ("def f(a):\n    pass\n", "f", "for _fc_i in a:\n    print(_fc_i)", ""),
        ("def f(a):\n    pass\n", "f", "_fc_x = [i for i in a]", ""),
    ],
)  # fmt: skip
def test_a_block_that_reads_what_a_function_has_not_is_refused(
    source: str, symbol: str, block: str, lost: str
) -> None:
    edit = Edit("a", symbol, block)
    if not lost:
        instrument.compose(source.encode(), [edit])
        return
    with pytest.raises(InstrumentError) as caught:
        instrument.compose(source.encode(), [edit])
    assert caught.value.reference == "name-missing"
    assert caught.value.message.startswith(f"the block reads {lost}, and {symbol} (line ")
