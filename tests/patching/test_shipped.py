"""The shipped patches on the real sources of the versions that they were tried on."""

from __future__ import annotations

import os

import pytest

from fleetctl.errors import RemoteError
from fleetctl.patching import anchors, catalog, snippets, wheels
from fleetctl.remote import instrument, patch_files
from fleetctl.remote.source_tree import WheelTree

VERSIONS = ("0.5.10", "0.5.12.post1", "0.5.15", "0.5.23")
NAMES = catalog.names(None)
FUNCTION = {  # where the function of the founding incident is, counted by hand
    "0.5.10": {"cuda_graph_runner.py": 99},
    "0.5.12.post1": {"cuda_graph_runner.py": 112},
    "0.5.15": {"runner_utils/buffers.py": 42, "cuda_graph_buffer_registry.py": 44},
    "0.5.23": {"runner_utils/buffers.py": 40, "cuda_graph_buffer_registry.py": 48},
}


@pytest.fixture(scope="module", params=VERSIONS)
def source(request: pytest.FixtureRequest) -> tuple[str, WheelTree]:
    """A version's wheel; fetched once into the cache (2 to 40 MB each)."""
    version: str = request.param
    try:
        return version, wheels.tree(version)
    except RemoteError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_patch_fits(name: str, source: tuple[str, WheelTree]) -> None:
    version, tree = source
    patch = catalog.find(name, None)
    checked = anchors.check(patch, version, tree)
    assert checked.ok, checked
    assert version in patch.tried
    assert patch.environment or checked.anchors


@pytest.mark.parametrize("name", NAMES)
def test_taking_it_out_of_the_real_files_gives_their_bytes(
    name: str, source: tuple[str, WheelTree]
) -> None:
    version, tree = source
    rendered = snippets.render(catalog.find(name, None), version).to_json()
    places = patch_files.locate(tree, rendered)
    for path, data in places.files.items():
        built = patch_files.build(data, [places.work(path, rendered)])
        assert instrument.strip(built.data, name) == data
        again = patch_files.build(instrument.strip(built.data, name), [places.work(path, rendered)])
        assert again.data == built.data
        last = data.count(b"\n")
        assert patch_files.original_line(built.line_maps, 1) == 1
        shift = built.data.count(b"\n") - data.count(b"\n")
        beacon_lines = 3 if rendered["beacon"] else 0
        assert patch_files.original_line(built.line_maps, last + shift - beacon_lines) == last


def test_both_definitions_of_the_founding_incident_are_found(source: tuple[str, WheelTree]) -> None:
    version, tree = source
    checked = anchors.check(catalog.find("none-in-foreach-copy", None), version, tree)
    prefix = "sglang/srt/model_executor/"
    assert {a.file.removeprefix(prefix): a.line for a in checked.anchors} == FUNCTION[version]


def test_two_shipped_patches_share_a_file(source: tuple[str, WheelTree]) -> None:
    version, tree = source
    both = [
        snippets.render(catalog.find(n, None), version).to_json()
        for n in ("capture-guard", "cublas-handle")
    ]
    places = [patch_files.locate(tree, p) for p in both]
    shared = set(places[0].files) & set(places[1].files)
    assert shared
    for path in shared:
        works = [p.work(path, one) for p, one in zip(places, both, strict=True)]
        built = patch_files.build(places[0].files[path], works)
        compile(built.data, path, "exec")
        alone = patch_files.build(places[0].files[path], works[1:])
        assert instrument.strip(built.data, "capture-guard") == alone.data
