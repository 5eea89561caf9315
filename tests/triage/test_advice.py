"""Commands of advice hold what the log shows, and say what to put in where it does not."""

from __future__ import annotations

import pytest

from fleetctl.cli.triage_text import render
from fleetctl.evidence import reader
from fleetctl.triage import triage_text
from fleetctl.triage.engine import Explained, examine
from fleetctl.triage.rule import builtin

_ARGS = "[2026-01-01 10:00:00] server_args=ServerArgs(model_path='{model}', tp_size=8)\n"
_NO_WEIGHTS = "RuntimeError: Cannot find any model weights with `{model}`\n"
_HUNG = (
    "[2026-01-01 10:00:00 TP1] Pyspy dump for PID 4411:\n"
    "[2026-01-01 10:00:01 TP1] Watchdog timeout (self.watchdog_timeout=300)\n"
)
_IN_USE = (
    "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): "
    "address already in use\n"
)
_KILLED = (
    "Mar 01 10:00:00 h1 systemd[1]: sglang-main.service: A process of this unit has been killed by "
    "the OOM killer.\n"
    "Mar 01 10:00:00 h1 kernel: Out of memory: Killed process 811 (python3) total-vm:1kB\n"
)
_FELL = "Mar 01 10:00:00 h1 kernel: NVRM: Xid (PCI:0000:9c:00): 48, pid=811, Double Bit ECC Error\n"


def _commands(log: str) -> list[str]:
    return [a.command for a in triage_text(log.encode()).advice if a.command]


@pytest.mark.parametrize(
    ("log", "command"),
    [
        (_NO_WEIGHTS.format(model="/models/x"), "ls -l /models/x; python -m sglang.check_env"),
        (
            _ARGS.format(model="Qwen/Qwen3-8B") + _NO_WEIGHTS.format(model="Qwen/Qwen3-8B"),
            "ls -l ~/.cache/huggingface/hub/models--Qwen--Qwen3-8B; python -m sglang.check_env",
        ),
        (_HUNG, "py-spy dump --pid 4411"),
        (_IN_USE, "ss -ltnp | grep 30000"),
        (_KILLED, "systemctl set-property sglang-main.service MemoryMax=SIZE"),
        (_FELL, "nvidia-smi --gpu-reset -i 0000:9c:00"),
        ("ModuleNotFoundError: No module named 'pybase64'\n", "pip install pybase64"),
    ],
)
def test_a_command_holds_what_the_log_shows(log: str, command: str) -> None:
    assert command in _commands(log)


@pytest.mark.parametrize("model", ["/m; rm -rf ~", "/m$(id)", "/m `id`", "-rf /"])
def test_a_hostile_value_stays_out_of_a_command(model: str) -> None:
    log = _ARGS.format(model=model) + "RuntimeError: Cannot find any model weights with x\n"
    assert "ls -l MODEL; python -m sglang.check_env" in _commands(log)


def _ready() -> Explained:
    ready = b"[2026-01-01 10:00:00] The server is fired up and ready to roll!\n"
    return examine(reader.from_bytes(ready), builtin())


def test_the_text_says_what_to_put_in_for_what_stays_open() -> None:
    log = "[2026-01-01 10:00:01 TP1] Watchdog timeout (self.watchdog_timeout=300)\n"
    shown = render("a.log", examine(reader.from_bytes(log.encode()), builtin()))
    assert "$ py-spy dump --pid PID" in shown
    assert "put in   PID: the process of each scheduler" in shown
    assert "put in" not in render("a.log", _ready())
