"""The first cuBLAS call of a thread happens while a stream is capturing, where a handle cannot be made."""

from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import torch


def change(module: ModuleType) -> None:
    """Let the function that is captured begin with a product of two matrices in a new thread."""
    runner = module.CudaGraphRunner
    capture = runner._capture_graph

    def capture_with_new_thread(
        self: Any, graph: Any, pool: Any, stream: Any, run_once_fn: Any
    ) -> Any:
        matrix = torch.ones((16, 16), device=self.device, dtype=torch.bfloat16)
        torch.cuda.synchronize()

        def multiply() -> None:
            with torch.cuda.stream(stream):
                torch.mm(matrix, matrix)

        def run_once() -> Any:
            with ThreadPoolExecutor(1) as threads:
                threads.submit(multiply).result()
            return run_once_fn()

        return capture(self, graph, pool, stream, run_once)

    runner._capture_graph = capture_with_new_thread
