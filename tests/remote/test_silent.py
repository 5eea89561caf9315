"""A systemd that gives no answer: no verb takes its silence for a service that is not there, or is down."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from fleetctl.remote import adopt, apply, logs, pending, status, trial
from fleetctl.remote.agent import AgentError
from tests.remote.conftest import Systemctl

UNIT = "sglang-main.service"


class Waiting:
    """A session whose client waits."""

    def wait(self, _seconds: float) -> bool:
        return False

    def emit(self, _event: dict[str, Any]) -> None:
        return


def recheck(args: dict[str, Any]) -> None:
    args = args | {"steps": [], "lock": {}, "expect": {"invocation_id": "old"}}
    apply.Run(args, Waiting()).recheck()


@pytest.mark.usefixtures("host_root")
@pytest.mark.parametrize(
    "verb",
    [
        lambda args: status.look(args | {"port": 30000}),
        lambda args: pending.VERBS["next"](args | {"invocation_id": "old"}, Waiting()),
        lambda args: pending.VERBS["ended"](args | {"invocations": []}, Waiting()),
        lambda args: logs._which(args),
        lambda args: adopt.VERBS["look"](args | {"name": UNIT}, Waiting()),
        lambda args: trial._dirt(args),
        recheck,
    ],
    ids=["status", "wait", "why it is down", "logs", "adopt", "before a trial", "before a change"],
)
def test_silence_is_a_fault_and_no_state(
    verb: Callable[[dict[str, Any]], Any], systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemctl.props.unlink()
    monkeypatch.setattr(os.path, "isdir", lambda _path: True)
    with pytest.raises(AgentError) as caught:
        verb({"unit": UNIT, "service": "main"})
    assert caught.value.fields["reference"] == "systemd-silent"
