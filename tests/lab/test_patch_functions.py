"""The shipped blocks inside SGLang's real functions, run on the CPU with the real torch of a lab host."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleetctl.lab.box import Box
from fleetctl.patching import catalog, snippets, wheels
from fleetctl.remote import patch_files, patch_marker
from fleetctl.transport import connect

pytestmark = pytest.mark.sglang
VERSIONS = ("0.5.10", "0.5.12.post1", "0.5.15", "0.5.23")

HEAD = """
import ast, contextlib, json, os, sys, tempfile, types, typing
import torch

def function(source, name, owner=None, **names):
    body = ast.parse(source).body
    if owner:
        body = next(n for n in body if isinstance(n, ast.ClassDef) and n.name == owner).body
    node = next(n for n in body if isinstance(n, ast.FunctionDef) and n.name == name)
    node.decorator_list, node.returns = [], None
    for arg in [*node.args.args, *node.args.kwonlyargs]:
        arg.annotation = None
    space = {"torch": torch, "_has_foreach_copy": True, **vars(typing), **names}
    exec(compile(ast.Module([node], []), "<real>", "exec"), space)
    return space[name]

def said(call, *args, **options):
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            try:
                result = call(*args, **options)
                error = None
            except Exception as caught:
                result, error = None, "%s: %s" % (type(caught).__name__, caught)
        finally:
            os.dup2(kept, 2)
        file.seek(0)
        return result, error, file.read().decode().splitlines()

given = json.load(sys.stdin)
"""


def inside(box: Box, program: str, given: dict[str, Any]) -> Any:
    """Run a program with the host's SGLang interpreter and return the JSON that it prints."""
    connection = connect(box.target())
    try:
        python = "/opt/sglang/.venv/bin/python"
        connection.exec("cat > /tmp/program.py", stdin=(HEAD + program).encode())
        done = connection.exec(
            f"CUDA_VISIBLE_DEVICES= {python} /tmp/program.py",
            stdin=json.dumps(given).encode(),
            timeout=120,
        )
    finally:
        connection.close()
    assert done.rc == 0, done.stderr.decode()[-3000:]
    return json.loads(done.stdout)


def sources(name: str, version: str) -> dict[str, dict[str, str]]:
    """Return each anchored file of a version, original and patched."""
    tree = wheels.tree(version)
    rendered = snippets.render(catalog.find(name, None), version).to_json()
    places = patch_files.locate(tree, rendered)
    return {
        path: {
            "original": data.decode(),
            "patched": patch_files.build(data, [places.work(path, rendered)]).data.decode(),
        }
        for path, data in places.files.items()
    }


COPY = """
def lists():
    dsts = [torch.zeros(4, dtype=t) for t in (torch.int64, torch.int32, torch.float32, torch.int64)]
    srcs = [torch.arange(n, n + 4).to(d.dtype) for n, d in enumerate(dsts)]
    srcs[1] = srcs[1].to(torch.int64)
    return dsts, srcs

class Buffers:
    def __init__(self, dsts):
        self.input_ids, self.seq_lens, self.scores, self.positions = dsts

def populate_replay(self, forward_batch, call, dsts, srcs, raw_bs):
    call([d[:raw_bs] if d is not None else None for d in dsts], srcs)

class Slots:
    def __init__(self, dsts):
        names = ("input_ids", "seq_lens", "scores", "positions")
        self._slots = {n: types.SimpleNamespace(buffer=d) for n, d in zip(names, dsts)}

out = {}
for path, texts in given.items():
    rows = out[path] = {}
    real, patched = (function(texts[k], "_grouped_foreach_copy_") for k in ("original", "patched"))
    (d1, s1), (d2, s2) = lists(), lists()
    real(d1, s1)
    rows["good"] = [said(patched, d2, s2)[1:], all(torch.equal(a, b) for a, b in zip(d1, d2))]
    rows["empty"] = said(patched, [], [])[1:]
    for side in ("src", "dst"):
        for index in (0, 2):
            for owner in (Buffers, Slots):
                d, s = lists()
                holder = owner(d)
                batch = types.SimpleNamespace(input_ids=s[0], seq_lens=s[1], scores=s[2], positions=s[3],
                                              batch_size=2, forward_mode=types.SimpleNamespace(name="DECODE"))
                (s if side == "src" else d)[index] = None
                end = []
                for call in (real, patched):
                    end.append(said(populate_replay, holder, batch, call, d, [x if x is None else x[:2] for x in s] if side == "src" else s, 2)[1:])
                rows["%s %d %s" % (side, index, owner.__name__)] = end
print(json.dumps(out))
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_none_in_the_grouped_copy_is_named_and_good_calls_are_unchanged(
    version: str, sglang_host: Box
) -> None:
    found = inside(sglang_host, COPY, sources("none-in-foreach-copy", version))
    assert len(found) == (1 if version in ("0.5.10", "0.5.12.post1") else 2)
    for rows in found.values():
        assert rows.pop("good") == [[None, []], True]
        assert rows.pop("empty") == [None, []]
        assert len(rows) == 8
        for case, ((error, quiet), (same, lines)) in rows.items():
            side, index, _ = case.split()
            assert error == same, "the exception is the original's"
            assert "'NoneType' object has no attribute" in error
            assert quiet == []
            marker = patch_marker.parse(lines[-1])
            assert marker is not None
            fields = marker.fields
            name = ("input_ids", "seq_lens", "scores", "positions")[int(index)]
            assert (fields["index"], fields["of"], fields["side"]) == (int(index), 4, side)
            assert fields["field"] == name or side == "dst"
            assert fields["message"].startswith(f"pair {index} of 4, {side} None")
            there = fields["dst"] if side == "src" else fields["src"]
            assert there["device"] == "cpu"
            assert (fields["batch_size"], fields["step"]) == (2, "replay")
            assert fields["forward_mode"] == "DECODE"
            assert "populate_replay" in fields["caller"]


GUARD = """
out = {}
class Backend:
    _cuda_graph_runner, _reuse_output_buffer = None, False
    class _precarve:
        measure = staticmethod(contextlib.nullcontext)
    class _device_module:
        synchronize = staticmethod(lambda: None)
    class _tp_group:
        barrier = staticmethod(lambda: None)

def fails():
    return torch.zeros(2) @ torch.zeros(3)

def unhappy():
    raise RuntimeError("CUBLAS_STATUS_NOT_INITIALIZED when calling cublasCreate")

for path, texts in given.items():
    for kind in ("patched", "original"):
        name = "capture_one" if "capture_one" in texts[kind] else "_capture_graph"
        owner = next(n.name for n in ast.parse(texts[kind]).body if isinstance(n, ast.ClassDef)
                     and any(getattr(m, "name", "") == name for m in n.body))
        call = function(texts[kind], name, owner)
        for run in (fails, unhappy):
            bs = 8
            if name == "capture_one":
                end = said(call, Backend(), "ShapeKey(size=8)", run)
            else:
                class graph:
                    def __init__(self, *a, **k): pass
                    def __enter__(self): return self
                    def __exit__(self, *a): return False
                torch.cuda.graph = graph
                end = said(call, types.SimpleNamespace(device_module=types.SimpleNamespace(graph=graph),
                    model_runner=types.SimpleNamespace(server_args=types.SimpleNamespace(
                        enable_memory_saver=False, debug_cuda_graph=False))), None, None, None, run)
            out.setdefault(path, {}).setdefault(run.__name__, {})[kind] = end[1:]
print(json.dumps(out))
"""


@pytest.mark.parametrize("version", ["0.5.15", "0.5.23"])
@pytest.mark.parametrize("name", ["capture-guard", "cublas-handle"])
def test_what_fails_inside_a_capture_is_described_and_goes_on(
    name: str, version: str, sglang_host: Box
) -> None:
    found = inside(sglang_host, GUARD, sources(name, version))
    assert found
    for rows in found.values():
        for run, ends in rows.items():
            (error, lines), (same, quiet) = ends["patched"], ends["original"]
            assert error == same
            assert quiet == []
            said = [m for m in map(patch_marker.parse, lines) if m is not None]
            assert {m.patch for m in said} == {name}
            fields = said[-1].fields
            if name == "capture-guard":
                assert f" {run}" in fields["call"]
                assert fields["error"] == error.splitlines()[0]
                assert (fields["batch_size"], fields["size"]) == (8, "ShapeKey(size=8)")
            elif run == "unhappy":
                assert [m.fields["when"] for m in said] == ["before", "failed"]
                assert "CUBLAS_STATUS" in fields["error"]
            else:
                assert [m.fields["when"] for m in said] == ["before"]


AUDIT = """
class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2))
        self.register_parameter("bias", None)
        self.register_buffer("scale", None)
        self.register_buffer("ghost", torch.zeros(2, device="meta"))
model = torch.nn.Sequential(Inner(), Inner())
out = {}
for path, texts in given["audit"].items():
    call = function(texts["patched"], "configure_kv_cache_dtype", "ModelRunner")
    runner = types.SimpleNamespace(model=model, is_draft_worker=True)
    out["audit"] = said(call, runner)[2]
for path, texts in given["dump"].items():
    call = function(texts["patched"], "forward", "ModelRunner")
    runner = types.SimpleNamespace(is_draft_worker=False)
    mode = types.SimpleNamespace(name="EXTEND")
    batch = types.SimpleNamespace(forward_mode=mode, batch_size=3, input_ids=torch.zeros(5),
                                  encoder_lens=None, secret="prompt text")
    out["dump"] = [said(call, runner, batch)[2] for _ in range(3)]
for path, texts in given["rank"].items():
    call = function(texts["patched"], "run_scheduler_process")
    names = call.__code__.co_varnames[: call.__code__.co_argcount]
    out["rank"] = said(call, **{n: 1 for n in names})[2]
print(json.dumps(out))
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_the_audits_say_what_they_see_and_no_values(version: str, sglang_host: Box) -> None:
    found = inside(
        sglang_host,
        AUDIT,
        {
            "audit": sources("init-none-audit", version),
            "dump": sources("forward-batch-dump", version),
            "rank": sources("rank-beacon", version),
        },
    )
    audit = patch_marker.parse(found["audit"][0])
    assert audit is not None
    assert audit.fields["none"] == ["0.scale", "1.scale"]
    assert audit.fields["meta"] == ["0.ghost", "1.ghost"]
    assert (audit.fields["expected_none"], audit.fields["tensors"]) == (2, 8)
    assert audit.fields["worker"] == "draft"
    first, *rest = found["dump"]
    dump = patch_marker.parse(first[0])
    assert dump is not None
    assert all(line == [] for line in rest), "one line in ten seconds"
    assert dump.fields["none"] == ["encoder_lens"]
    assert dump.fields["tensors"] == {"input_ids": [[5], "torch.float32", "cpu"]}
    assert dump.fields["other"]["secret"] == "str"
    assert "prompt text" not in first[0]
    rank = patch_marker.parse(found["rank"][0])
    assert rank is not None
    assert rank.fields["ranks"]["tp_rank"] == 1
    assert rank.fields["versions"]["sglang"] == "0.5.12.post1"
