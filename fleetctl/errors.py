"""One error tree: every fault has a kebab-case reference, a place, a message, and what to do next."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of the command line (docs/reference/exit-codes.md)."""

    OK = 0
    NEGATIVE = 1  # a crash found, not ready, hung, drift, findings, verdict not found
    USAGE = 2
    CONFIG = 3
    UNREACHABLE = 4
    LOCKED = 5
    REMOTE = 6
    REFUSED = 7
    INTERRUPTED = 130
    READER_GONE = 141  # as shells tell of a SIGPIPE


class FleetError(Exception):
    """A fault that a person can act on.

    ``str()`` is the one-line form without the hint; the command line shows
    ``error[reference]: where: message`` and then ``hint: …``.
    """

    exit_code: Exit = Exit.NEGATIVE

    def __init__(
        self,
        reference: str,
        message: str,
        *,
        where: str = "",
        hint: str = "",
        context: tuple[str, ...] = (),
        exit_code: Exit | None = None,
    ) -> None:
        super().__init__(message)
        self.reference = reference
        self.message = message
        self.where = where
        self.hint = hint
        self.context = context
        if exit_code is not None:
            self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class UsageError(FleetError):
    """The command line itself is wrong; nothing was read or changed."""

    exit_code = Exit.USAGE


class ConfigError(FleetError):
    """A file that people write is wrong: ``where`` is ``file:line:col``."""

    exit_code = Exit.CONFIG


class UnreachableError(FleetError):
    """No working session with the host: refused, timed out, auth, host key, lost connection."""

    exit_code = Exit.UNREACHABLE


class LockedError(FleetError):
    """Somebody else holds the lock of this host and service."""

    exit_code = Exit.LOCKED


class RemoteError(FleetError):
    """The host was reached and something failed there."""

    exit_code = Exit.REMOTE


class RefusedError(FleetError):
    """A guard said no; the hint names the option that overrides it."""

    exit_code = Exit.REFUSED


class ManyErrors(FleetError):
    """Several faults at once, in the order found. The exit code is theirs where they agree, else 1."""

    def __init__(self, errors: list[FleetError]) -> None:
        codes = {e.exit_code for e in errors}
        super().__init__(
            "many",
            "\n".join(str(e) for e in errors),
            exit_code=codes.pop() if len(codes) == 1 else Exit.NEGATIVE,
        )
        self.errors = errors
