"""A lever: run the CUDA graph runner's input copy on the CPU, and let one prompt crash it for real.

No graph is replayed on the CPU, so SGLang's ``DecodeInputBuffers.populate_from_forward_batch`` never runs
there. This calls it before each forward pass. A prompt that holds token 511 passes
``num_token_non_padded=None``: the AttributeError then comes from SGLang's own ``_grouped_foreach_copy_``.
The None is this lever's; it shows the crash, not what caused it anywhere else.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import inspect
import sys

TRIGGER = 511
RUNNER = "sglang.srt.model_executor.model_runner"
HOMES = (
    "sglang.srt.model_executor.cuda_graph_runner",
    "sglang.srt.model_executor.runner_utils.buffers",
)
COPIED = ("input_ids", "req_pool_indices", "seq_lens", "out_cache_loc", "positions", "seq_lens_cpu")


class View:
    """A batch of which only the copied tensors are there; whatever else a release asks for is None."""

    def __init__(self, **tensors):
        self.__dict__.update(tensors)

    def __getattr__(self, name):
        return None


def buffers_class():
    """Return DecodeInputBuffers from wherever this release keeps it."""
    for home in HOMES:
        try:
            return importlib.import_module(home).DecodeInputBuffers
        except (ImportError, AttributeError):
            continue
    raise ImportError("no DecodeInputBuffers in " + " or ".join(HOMES))


def accepted(function, arguments: dict) -> dict:
    """Return those arguments that this release's function has."""
    names = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in names}


def copy_inputs(batch) -> None:
    """Copy one batch into graph buffers, as the decode graph runner does before a replay."""
    import torch

    tokens, size = int(batch.input_ids.numel()), batch.batch_size
    make = buffers_class().create
    sizes = {
        "device": torch.device("cpu"),
        "max_bs": max(size, 1),
        "max_num_token": tokens,
        "hidden_size": 8,
        "vocab_size": 16,
        "dtype": torch.bfloat16,
        "dp_size": 1,
        "pp_size": 1,
        "is_encoder_decoder": False,
        "require_mlp_tp_gather": False,
        "seq_len_fill_value": 1,
        "encoder_len_fill_value": 0,
        "num_tokens_per_bs": 1,
        "cache_loc_dtype": torch.int64,
        "enable_mamba_track": False,
        "next_token_logits_buffer": torch.zeros(1),  # 0.5.15; not copied
    }
    buffers = make(**accepted(make, sizes))
    poisoned = bool((batch.input_ids == TRIGGER).any())
    count = None if poisoned else torch.tensor([tokens], dtype=torch.int32)
    view = View(num_token_non_padded=count, **{name: getattr(batch, name, None) for name in COPIED})
    fill = buffers.populate_from_forward_batch
    values = {
        "forward_batch": view,
        "raw_bs": size,
        "raw_num_token": tokens,
        "bs": size,
        "seq_len_fill_value": 1,
        "require_gathered_buffer": False,
        "num_tokens_per_bs": 1,
        "nsa_enable_prefill_cp": False,
        "dsa_enable_prefill_cp": False,  # its name from 0.5.15
        "enable_num_token_non_padded_flag": True,
    }
    fill(**accepted(fill, values))


def wrap(module) -> None:
    """Let the model runner copy its inputs before each forward pass."""
    runner = module.ModelRunner
    forward = runner.forward

    def forward_after_copy(self, forward_batch, *args, **kwargs):
        copy_inputs(forward_batch)
        return forward(self, forward_batch, *args, **kwargs)

    runner.forward = forward_after_copy


class Hook(importlib.abc.MetaPathFinder):
    """Wraps the model runner's module as it is imported."""

    def find_spec(self, name, path, target=None):
        """Return the usual spec with a loader that wraps afterwards, for that module alone."""
        if name != RUNNER:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def exec_module(module) -> None:
            execute(module)
            wrap(module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Hook())
