"""The quick reader agrees with the strict one, or leaves the file to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.config.lean import read
from fleetctl.config.profiles import Merge, chain, profile_files

ROOT = Path(__file__).parent.parent.parent
SHIPPED = sorted(ROOT.glob("inventories/*/profiles/*.yaml"))

SAME = {
    "scalars stay as written": "model: /m\nflags: {tp-size: 8, mem-fraction-static: 0.80, x: 007}",
    "true is a switch, false and null take away": "model: /m\nflags: {a: true, b: false, c: null, d: ~}",
    "quoted words are text": "model: /m\nflags: {a: 'true', b: \"null\"}",
    "a list, a mapping": "model: /m\nflags: {bs: [1, 2], json: {a: 1, b: [true, null, 0.5]}}",
    "variables": "model: /m\nenv: {NCCL_DEBUG: WARN, N: 1, GONE: null}",
    "no model": "flags: {tp-size: 8}",
    "the interpreter and the schema": "sglang: {python: /opt/p, schema: 0.5.23}",
}
LEFT = {
    "an unknown key": "modle: /m",
    "a secret": "secrets: {env: {HF_TOKEN: {file: /x}}}",
    "dashes before a flag": "flags: {--tp-size: 8}",
    "underscores": "flags: {tp_size: 8}",
    "the port": "flags: {port: 1}",
    "an empty list": "flags: {a: []}",
    "a unit setting": "unit: {timeout_stop: 5}",
    "a cycle": "extends: one",
    "a missing parent": "extends: nobody",
    "a wrong name": "name: two",
    "no mapping": "- a",
    "a repeated key": "flags: {a: 1, a: 2}",
    "a control character": 'model: "/m\\n"',
}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_shipped_profiles_read_the_same(path: Path) -> None:
    files = profile_files(path.parent)
    quick = read(path.stem, files)
    assert quick is None or quick == strict(path.stem, files)


@pytest.mark.parametrize("name", SAME)
def test_the_same(tmp_path: Path, name: str) -> None:
    (tmp_path / "one.yaml").write_text(SAME[name])
    files = profile_files(tmp_path)
    assert read("one", files) == strict("one", files)


@pytest.mark.parametrize("name", LEFT)
def test_left_to_the_strict_reader(tmp_path: Path, name: str) -> None:
    (tmp_path / "one.yaml").write_text(LEFT[name])
    assert read("one", profile_files(tmp_path)) is None


def test_parents_merge_in_order_and_a_shared_one_counts_once(tmp_path: Path) -> None:
    texts = {
        "base": "model: /m\nflags: {a: 1, b: 1, c: 1}",
        "left": "extends: base\nflags: {a: 2, c: null}",
        "right": "extends: base\nflags: {b: 3}",
        "one": "extends: [left, right]\nflags: {d: 4}",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    files = profile_files(tmp_path)
    assert read("one", files) == strict("one", files)


def strict(name: str, files: dict[str, Path]) -> object:
    merge = Merge()
    for layer in chain(name, files):
        merge.add(layer)
    return merge.profile(name)
