"""A small kernel stores far outside its memory before the matrix product of a long prompt."""

import time
from types import ModuleType
from typing import Any

import torch
import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]

TOKENS = 256  # the server's own warm-up prompt is shorter
FAR = 1 << 44  # elements of four bytes: no mapping reaches that far


@triton.jit
def _store(pointer, offset):  # type: ignore[no-untyped-def]
    tl.store(pointer + offset, 1.0)


def change(module: ModuleType) -> None:
    """Let the fault be there, unseen, when the product is asked for."""
    method = module.UnquantizedLinearMethod
    apply = method.apply

    def apply_after_fault(self: Any, layer: Any, x: Any, bias: Any = None) -> Any:
        if x.shape[0] >= TOKENS and not torch.cuda.is_current_stream_capturing():
            _store[(1,)](torch.zeros(128, device=x.device), FAR)
            time.sleep(0.5)
        return apply(self, layer, x, bias)

    method.apply = apply_after_fault
