"""Which compiled parts fit a release."""

from __future__ import annotations

import pytest

from fleetctl.remote import engine
from fleetctl.remote.agent import AgentError


@pytest.mark.parametrize(
    ("need", "have", "wrong"),
    [
        ("torch==2.9.1", {"torch": "2.9.1+cu129"}, []),
        ("torch==2.9.1", {"torch": "2.8.0"}, ["torch is 2.8.0, sglang asks for 2.9.1"]),
        ("sgl_kernel (==0.3.20)", {"sgl-kernel": "0.3.19"},
         ["sgl-kernel is 0.3.19, sglang asks for 0.3.20"]),
        ("torch>=2", {"torch": "2.8.0"}, []),
        ('torch==2.9.1; extra == "xpu"', {"torch": "2.8.0"}, []),
        ("requests==1", {"requests": "2"}, []),
        ("torch==2.9.1", {}, []),
    ],
)  # fmt: skip
def test_compiled_parts_have_to_be_the_exact_release(
    need: str, have: dict[str, str], wrong: list[str]
) -> None:
    assert engine.mismatches([need], have) == wrong


@pytest.mark.parametrize("name", ["../x", "", "..", ".", "a/b", "-rf"])
def test_a_name_cannot_leave_its_folder(name: str) -> None:
    with pytest.raises(AgentError):
        engine.folder_of(name)
