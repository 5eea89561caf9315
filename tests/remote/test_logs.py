"""The log of one invocation, where the journal has nothing of it."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.remote import logs
from fleetctl.remote.agent import AgentError
from tests.remote.conftest import Systemctl


class Session:
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def emit(self, event: dict[str, Any]) -> None:
        self.events.append(event)

    def cancelled(self) -> bool:
        return False


def test_an_invocation_that_the_journal_does_not_know_is_named(systemctl: Systemctl) -> None:
    with pytest.raises(AgentError) as caught:
        logs.VERBS["read"]({"unit": "u.service", "invocation": "f" * 32}, Session())
    assert caught.value.fields["reference"] == "unknown-invocation"
    assert caught.value.fields["exit_code"] == 2


def test_the_present_one_may_have_printed_nothing_yet(systemctl: Systemctl) -> None:
    session = Session()
    assert logs.VERBS["read"]({"unit": "u.service"}, session)["lines"] == 0
    assert session.events == [{"event": "lines", "lines": []}]
