"""A batch of two or more reaches a graph's replay without the count that its copy list asks for."""

from types import ModuleType
from typing import Any

BATCH = 2  # the server's own warm-up request is a batch of one


def change(module: ModuleType) -> None:
    """Set ``num_token_non_padded`` to None where the buffers are told to copy it."""
    buffers = module.DecodeInputBuffers
    populate = buffers.populate_from_forward_batch

    def populate_without_count(self: Any, *, forward_batch: Any, raw_bs: int, **rest: Any) -> Any:
        if raw_bs >= BATCH:
            forward_batch.num_token_non_padded = None
            rest["enable_num_token_non_padded_flag"] = True
        return populate(self, forward_batch=forward_batch, raw_bs=raw_bs, **rest)

    buffers.populate_from_forward_batch = populate_without_count
