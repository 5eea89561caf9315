"""Which launches prove by a request of their own that they serve."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.engines.sglang.warmup import warms_up
from fleetctl.model.launch import LaunchConfig


@pytest.mark.parametrize(
    ("flags", "env", "proves"),
    [
        ({}, {}, True),
        ({"tp-size": 8, "skip-server-warmup": False}, {}, True),
        ({"disaggregation-mode": "null"}, {}, True),
        ({"skip-server-warmup": True}, {}, False),
        ({"disaggregation-mode": "prefill"}, {}, False),
        ({"disaggregation-mode": "decode"}, {}, False),
        ({"debug-tensor-dump-input-file": "/x.npy"}, {}, False),
        ({"tokenizer-worker-num": 4}, {}, False),
        ({"ep-join-mode": "scale"}, {}, False),
        ({"config": "/etc/sglang.yaml"}, {}, False),
        ({}, {"SGLANG_RUST_SERVER": "1"}, False),
        ({}, {"SGLANG_RUST_SERVER": "false"}, True),
    ],
)
def test_only_a_launch_that_asks_itself_does(
    flags: dict[str, Any], env: dict[str, str], proves: bool
) -> None:
    assert warms_up(LaunchConfig("p", "/m", flags=flags, env=env)) is proves


def test_a_launch_of_which_nothing_is_known_proves_nothing() -> None:
    assert not warms_up(LaunchConfig("", ""))
