"""Real failures on demand, for hosts of the GPU run: ``FLEETCTL_GPU_LEVER`` names one lever.

A lever changes one function of SGLang just after its module was imported. What fails then is SGLang,
PyTorch and CUDA themselves: no message is made up.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

VARIABLE = "FLEETCTL_GPU_LEVER"
# What each changes; the levers themselves import torch, so each is loaded behind that module.
LEVERS = {
    "cublas-capture": "sglang.srt.model_executor.cuda_graph_runner",
    "foreach-none": "sglang.srt.model_executor.cuda_graph_runner",
    "illegal-access": "sglang.srt.layers.quantization.unquant",
    "init-none": "sglang.srt.model_executor.model_runner",
}


class AfterImport(importlib.abc.MetaPathFinder):
    """Runs ``change`` on one module when whoever is responsible for it has loaded it."""

    def __init__(self, module: str, change: Callable[[ModuleType], None]) -> None:
        self.module = module
        self.change = change

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec that the other finders have for the module, with the change behind it."""
        if name != self.module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def then_change(module: ModuleType) -> None:
            execute(module)
            self.change(module)

        vars(spec.loader)["exec_module"] = then_change
        return spec


def pull(name: str) -> None:
    """Arm a lever in this process. Raises ValueError for one that is not there."""
    if name not in LEVERS:
        raise ValueError(f"{VARIABLE}={name}: the levers are {', '.join(LEVERS)}")

    def change(module: ModuleType) -> None:
        importlib.import_module(f"{__name__}.{name.replace('-', '_')}").change(module)

    sys.meta_path.insert(0, AfterImport(LEVERS[name], change))


def pull_what_the_unit_says() -> None:
    """Arm the lever that the environment names, if any."""
    if name := os.environ.get(VARIABLE):
        pull(name)
