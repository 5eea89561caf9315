"""What became of a launch whose agent was lost on the way: found out, never guessed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetctl.apply.session import Interrupted, Session, Sink
from fleetctl.errors import Exit, FleetError, RemoteError, UnreachableError
from fleetctl.model.fleet import Target


class EitherError(UnreachableError):
    """The host has the old launch or the new one, and does not answer to say which."""


AGAIN = "run the same command again"
EITHER = "the host has its old launch or the new one, whole"


def invocation_of(
    session: Session,
    target: Target,
    launch: str,
    lock: Mapping[str, Any],
    lost: FleetError,
    tell: Sink,
    seconds: float,
) -> str:
    """Return the invocation that the launch came to; ``seconds`` is how long its agent may still take.

    Comes back to the host first, for 15 minutes. What a dead agent left half done is taken back there.
    Raises ``lost`` anew with what the host has: the old launch, or, where there is no way back, either.
    """
    if isinstance(lost, UnreachableError):
        try:
            session.reconnect(tell)
        except FleetError as error:
            raise _unknown(target, error) from lost
    args = {"service": target.service.name, "launch": launch, "lock": dict(lock)}
    try:
        found = session.call("apply.settle", args, timeout=seconds)["invocation_id"]
    except (UnreachableError, Interrupted) as error:
        raise _unknown(target, error) from lost
    if found is None:
        raise _old(target, lost) from lost
    return str(found)


def _old(target: Target, lost: FleetError) -> FleetError:
    if isinstance(lost, UnreachableError):
        return UnreachableError(
            "connection-lost",
            "the connection was lost before the restart; all was taken back: the host has its old launch",
            where=str(target),
            hint=AGAIN,
        )
    return RemoteError(
        lost.reference,
        f"{lost.message} before the restart; all was taken back: the host has its old launch",
        where=str(target),
        hint=AGAIN,
        context=lost.context,
    )


def _unknown(target: Target, error: FleetError) -> FleetError:
    if error.exit_code == Exit.INTERRUPTED:
        return FleetError(
            "interrupted", f"interrupted while the connection was lost: {EITHER}",
            where=str(target), hint=_which(target), exit_code=Exit.INTERRUPTED,
        )  # fmt: skip
    return EitherError(
        error.reference,
        f"the connection was lost on the way and does not come back ({error.message}): {EITHER}",
        where=str(target),
        hint=_which(target),
    )


def _which(target: Target) -> str:
    return f"`fleetctl status {target}` says which once it answers; then {AGAIN}"
