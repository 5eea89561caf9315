"""A fault as the agent tells it; apart from the agent, for programs that load little."""

from __future__ import annotations

from typing import Any


class AgentError(Exception):
    """A fault to be told to the person at the other end, by its reference."""

    def __init__(
        self,
        reference: str,
        message: str,
        where: str = "",
        hint: str = "",
        context: Any = (),
        exit_code: int | None = None,
    ) -> None:
        super().__init__(message)
        self.fields: dict[str, Any] = {
            "reference": reference,
            "message": message,
            "where": where,
            "hint": hint,
            "context": list(context),
        }
        if exit_code is not None:
            self.fields["exit_code"] = exit_code
