"""Imports point down the table of docs/adr/0001-rooms-and-arrows.md."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALWAYS = {"errors", "model"}


def table() -> dict[str, set[str]]:
    """Return what each room may import, from the decision record."""
    rooms: dict[str, set[str]] = {}
    for line in (ROOT / "docs/adr/0001-rooms-and-arrows.md").read_text().splitlines():
        cells = [c.strip() for c in line.split("|")[1:-1]]
        if len(cells) == 3 and cells[2] in ("yes", "no"):
            rooms[cells[0]] = {c.strip() for c in cells[1].split(",") if c.strip()}
    return rooms


ROOMS = table()


def imports(path: Path) -> set[str]:
    """Return the rooms that a module imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = (
                [f"{node.module}.{a.name}" for a in node.names]
                if node.module == "fleetctl"
                else [node.module]
            )
        found |= {n.split(".")[1] for n in names if n.startswith("fleetctl.")}
    return found


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_a_room_imports_only_what_its_row_allows(room: str) -> None:
    base = ROOT / "fleetctl" / room
    files = list(base.rglob("*.py")) if base.is_dir() else [base.with_suffix(".py")]
    assert files, f"no such room: {room}"
    if "everything" in ROOMS[room]:
        return
    allowed = ALWAYS | ROOMS[room] | {room}
    wrong = {str(f.relative_to(ROOT)): sorted(imports(f) - allowed) for f in files}
    assert {f: bad for f, bad in wrong.items() if bad} == {}


def test_every_room_has_a_row() -> None:
    rooms = {p.stem for p in (ROOT / "fleetctl").iterdir() if p.is_dir() or p.suffix == ".py"}
    assert rooms - set(ROOMS) - {"__init__", "__main__", "__pycache__", "_data"} == set()
