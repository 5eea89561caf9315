"""One bug is one group: whatever rank, host, restart, path, line or small release it shows on."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import pytest

from fleetctl.model.triage import Triage
from fleetctl.triage import fingerprint, triage_text

ROOTS = (
    "/sgl-workspace/sglang/python/sglang",
    "/opt/venv/lib/python3.12/site-packages/sglang",
    "/usr/local/lib/python3.10/dist-packages/sglang",
)
DECORATOR = '  File "/opt/venv/lib/python3.12/site-packages/torch/utils/_contextlib.py", line {n}, in decorate_context\n    return func(*args, **kwargs)\n'
LOOP = (
    ("srt/managers/scheduler.py", "run_scheduler_process", "scheduler.event_loop_overlap()"),
    ("srt/managers/scheduler.py", "event_loop_overlap", "result = self.run_batch(batch)"),
    ("srt/managers/tp_worker.py", "forward_batch_generation", "self.model_runner.forward(batch)"),
)
START = (
    ("srt/managers/scheduler.py", "run_scheduler_process", "scheduler = Scheduler("),
    (
        "srt/model_executor/model_runner.py",
        "init_device_graphs",
        "self.graph_runner = CudaGraphRunner(self)",
    ),
    ("srt/model_executor/cuda_graph_runner.py", "capture_one_batch_size", "run_once()"),
)
COPY = (
    (
        "srt/model_executor/cuda_graph_runner.py",
        "populate_from_forward_batch",
        "_grouped_foreach_copy_(dsts, srcs)",
    ),
    (
        "srt/model_executor/cuda_graph_runner.py",
        "_grouped_foreach_copy_",
        "key = (dst.dtype, src.dtype)",
    ),
)
REPLAY = (
    *LOOP,
    (
        "srt/model_executor/cuda_graph_runner.py",
        "replay_prepare",
        "self.buffers.populate_from_forward_batch(",
    ),
)


@dataclass(frozen=True)
class Bug:
    """Frames, and the exceptions under which releases show it."""

    name: str
    frames: tuple[tuple[str, str, str], ...]
    texts: tuple[str, ...]


BUGS = (
    Bug("copy-at-capture", (*START, *COPY), ("AttributeError: 'NoneType' object has no attribute 'dtype'", "AttributeError: 'NoneType' object has no attribute 'is_cuda'")),
    Bug("copy-at-replay", (*REPLAY, *COPY), ("AttributeError: 'NoneType' object has no attribute 'is_cuda'", "AttributeError: 'NoneType' object has no attribute 'dtype'")),
    Bug("illegal-access", (*LOOP, ("srt/layers/moe/topk.py", "forward", "torch.cuda.synchronize()")), ("RuntimeError: CUDA error: an illegal memory access was encountered", "torch.AcceleratorError: CUDA error: an illegal memory access was encountered")),
    Bug("shape-in-sampler", (*LOOP, ("srt/layers/sampler.py", "forward", "probs.view(bs, -1)")), ("RuntimeError: shape '[{n}, -1]' is invalid for input of size {m}",)),
    Bug("key-in-session", (*LOOP, ("srt/managers/session_controller.py", "create_req", "req = self.req_nodes[req_id]")), ("KeyError: '{hex}'",)),
    Bug("missing-weight", (*START[:1], ("srt/models/deepseek_v2.py", "load_weights", "param = params_dict[name]")), ("KeyError: 'model.layers.{n}.mlp.experts.w2_weight_scale'",)),
)  # fmt: skip


def log(bug: Bug, chance: random.Random, root: str, rank: int) -> str:
    """One crash of a bug, as another run on another machine would print it."""
    shift = chance.randrange(1, 90)
    stamp = f"2026-0{chance.randrange(1, 9)}-1{chance.randrange(9)} 10:0{chance.randrange(9)}:11"
    lines = [f"[{stamp} TP{rank}] Scheduler hit an exception: Traceback (most recent call last):"]
    for place, (file, function, source) in enumerate(bug.frames):
        lines += [
            f'  File "{root}/{file}", line {100 * place + shift}, in {function}',
            f"    {source}",
        ]
        if place == 0 and chance.random() < 0.5:
            lines.append(DECORATOR.format(n=chance.randrange(100, 130)).rstrip("\n"))
    text = chance.choice(bug.texts)
    lines.append(
        text.format(
            n=chance.randrange(1, 61),
            m=chance.randrange(1000, 9000),
            hex=f"{chance.getrandbits(64):016x}",
        )
    )
    lines += [
        "",
        f"[{stamp}] Received sigquit from a child process. It usually means the child failed.",
    ]
    return "\n".join(lines) + "\n"


def variants() -> list[tuple[str, Triage]]:
    chance = random.Random(20261129)  # not for secrets
    runs = itertools.product(BUGS, range(8), range(5))
    return [
        (bug.name, triage_text(log(bug, chance, ROOTS[run % 3], rank).encode()))
        for bug, rank, run in runs
    ]


def test_240_variants_of_six_bugs_are_six_groups_and_none_is_mixed() -> None:
    found = variants()
    assert len(found) == 240
    groups: dict[str, set[str]] = {}
    for bug, triage in found:
        groups.setdefault(triage.fingerprint, set()).add(bug)
    assert sorted(groups.values(), key=str) == sorted(({bug.name} for bug in BUGS), key=str)


def test_none_into_the_copy_is_one_group_at_capture_and_another_at_replay() -> None:
    chance = random.Random(1)
    capture, replay = (triage_text(log(bug, chance, ROOTS[0], 0).encode()) for bug in BUGS[:2])
    assert capture.root is not None
    assert replay.root is not None
    assert (capture.root.step, replay.root.step) == ("capture", "replay")
    assert capture.fingerprint != replay.fingerprint
    assert {capture.captured["attribute"], replay.captured["attribute"]} <= {"dtype", "is_cuda"}


def test_a_diagnostic_patch_does_not_move_a_bug_to_another_group() -> None:
    marker = "RuntimeError: fleetctl: _grouped_foreach_copy_ pair 5 of 6: dst=torch.Size([1]) src=None none_dsts=[] none_srcs=[5]"
    plain = BUGS[1]
    patched = Bug("patched", plain.frames, (marker,))
    one, two = (
        triage_text(log(b, random.Random(2), ROOTS[1], 3).encode()) for b in (plain, patched)
    )
    assert one.fingerprint == two.fingerprint
    assert (two.captured["pair"], two.captured["src"], two.captured["none_srcs"]) == (
        "5",
        "None",
        "[5]",
    )


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Tried to allocate 1.19 GiB. GPU 3", "Tried to allocate <size>. <device>"),
        ("expected 1015 but got 1024", "expected <int> but got <int>"),
        ("model.layers.13.mlp.w2", "model.layers.<int>.mlp.w2"),
        ("at 0x7f54615dd5e8 in /opt/x/y.so", "at <addr> in <path>"),
        ("connect to 10.0.0.82:38455 failed", "connect to <ip> failed"),
        ("run 2b1f0c3d9e8a7766 of step -1.5e-3", "run <hex> of step <float>"),
        ("see https://h/x?y=1 now", "see <url> now"),
        ("ran for 600020 ms", "ran for <time>"),
        ("fp8e4nv of sm_90a stays", "fp8e4nv of sm_90a stays"),
    ],
)
def test_what_differs_between_runs_is_masked(text: str, masked: str) -> None:
    assert fingerprint.mask(text) == masked


def test_the_fingerprint_names_its_version_and_the_signature_can_be_read() -> None:
    found = triage_text(log(BUGS[4], random.Random(3), ROOTS[0], 0).encode())
    assert found.fingerprint.startswith("v1:")
    assert found.signature.startswith(
        "KeyError '<hex>' | sglang.srt.managers.session_controller:create_req < "
    )
