"""A parameter of the first layer is None once the weights are loaded."""

from types import ModuleType
from typing import Any


def change(module: ModuleType) -> None:
    """Take the weight of the first layer's norm away at the end of the load."""
    runner = module.ModelRunner
    load = runner.load_model

    def load_and_lose(self: Any) -> None:
        load(self)
        self.model.model.layers[0].input_layernorm.weight = None

    runner.load_model = load_and_lose
