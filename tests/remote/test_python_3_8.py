"""Everything that is sent to hosts: Python 3.8, the standard library, and its own siblings."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REMOTE = Path(__file__).parents[2] / "fleetctl" / "remote"
FILES = sorted(REMOTE.glob("*.py"))
# Names that came with 3.9 or later and are easily taken for older ones.
LATER = {"removeprefix", "removesuffix", "pairwise", "bit_count", "is_relative_to", "to_thread",
         "UTC", "file_digest", "batched", "TaskGroup", "StrEnum", "lcm", "hardlink_to"}  # fmt: skip
LATER_WORDS = {
    ("zip", "strict"),
    ("dataclass", "slots"),
    ("dataclass", "kw_only"),
    ("open_code", "x"),
}
LATER_MODULES = {"tomllib", "zoneinfo", "graphlib"}


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path), feature_version=(3, 8))


def imported(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_is_sent_to_a_host_is_python_3_8(path: Path) -> None:
    module = tree(path)
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute):
            assert node.attr not in LATER, f"{path.name}:{node.lineno}: {node.attr}"
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            for word in node.keywords:
                assert (name, word.arg) not in LATER_WORDS, f"{path.name}:{node.lineno}: {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_needs_the_standard_library_alone(path: Path) -> None:
    for module, name in imported(tree(path)):
        root = module.split(".", 1)[0]
        assert root not in LATER_MODULES, f"{path.name}: {module}"
        if root == "fleetctl":
            assert module.startswith("fleetctl.remote"), f"{path.name}: {module}"
            assert name, "siblings are imported by name"
        else:
            assert root in sys.stdlib_module_names, f"{path.name}: {module}"


@pytest.mark.parametrize("path", [p for p in FILES if p.stem != "__init__"], ids=lambda p: p.stem)
def test_its_annotations_are_not_evaluated(path: Path) -> None:
    assert ("__future__", "annotations") in set(imported(tree(path)))
