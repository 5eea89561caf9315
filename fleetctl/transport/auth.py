"""Letting a server know who we are: keys, then what a person can be asked for."""

from __future__ import annotations

from fleetctl.transport import faults, prompts
from fleetctl.transport.deadline import Deadline
from fleetctl.transport.keys import candidates
from fleetctl.transport.lean import paramiko
from fleetctl.transport.sshconfig import Settings
from fleetctl.transport.wire import Wire

PASSWORD_TRIES = 3
PERSON_SECONDS = 600.0  # at a prompt, before the server's own limit ends it


def authenticate(
    wire: Wire, name: str, settings: Settings, deadline: Deadline, *, ask: bool
) -> None:
    """Log in. ``ask``: a second factor or a password may be asked for at the terminal.

    Raises UnreachableError ``auth-failed``, ``unreachable-timeout`` or ``connection-lost``.
    """
    tried: list[str] = []
    methods = _by_key(wire, name, settings, deadline, tried)
    if methods is None:
        return
    if ask and prompts.terminal():
        if "keyboard-interactive" in methods and _by_questions(wire, name, settings, deadline):
            return
        if "password" in methods and _by_password(wire, name, settings, deadline):
            return
        tried += [m for m in methods if m in ("keyboard-interactive", "password")]
    elif wire.partly_in or (methods and "publickey" not in methods):
        asks = ", ".join(m for m in methods if m != "publickey")
        raise faults.auth_failed(
            name, settings.user, tried, f"it asks for {asks} as well: log in from a terminal"
        )
    raise faults.auth_failed(name, settings.user, tried)


def _by_key(
    wire: Wire,
    name: str,
    settings: Settings,
    deadline: Deadline,
    tried: list[str],
) -> list[str] | None:
    """Try the keys; return None when in, else the methods that the server still takes."""
    for key in candidates(settings, deadline, tried):
        wire.auth_timeout = deadline.left()
        try:
            more = wire.auth_publickey(settings.user, key)
        except paramiko.BadAuthenticationType as error:
            return list(error.allowed_types)
        except (paramiko.SSHException, EOFError, OSError) as error:
            _still_there(wire, name, settings, deadline, tried, error)
            continue
        wire.partly_in = bool(more)
        return more or None
    return _methods(wire, name, settings, deadline, tried)


def _methods(
    wire: Wire, name: str, settings: Settings, deadline: Deadline, tried: list[str]
) -> list[str] | None:
    """Ask the server what it takes; None when it takes nothing at all and lets us in."""
    wire.auth_timeout = deadline.left()
    try:
        wire.auth_none(settings.user)
    except paramiko.BadAuthenticationType as error:
        return list(error.allowed_types)
    except (paramiko.SSHException, EOFError, OSError) as error:
        _still_there(wire, name, settings, deadline, tried, error)
        return []
    return None


def _still_there(
    wire: Wire,
    name: str,
    settings: Settings,
    deadline: Deadline,
    tried: list[str],
    error: Exception,
) -> None:
    """Tell a key that was not taken (return) from a session that is over (raise)."""
    if deadline.over():
        raise faults.timed_out(name, deadline.seconds, "logging in") from error
    if not wire.is_active():
        hint = ""
        if len(tried) > 2:
            hint = "the server takes few tries: name the one key (key:, or IdentitiesOnly yes)"
        raise faults.auth_failed(name, settings.user, tried, hint) from error


def _by_questions(wire: Wire, name: str, settings: Settings, deadline: Deadline) -> bool:
    """Answer the server's questions (a one-time code, say). Answers are never kept."""

    def answer(title: str, text: str, questions: list[tuple[str, bool]]) -> list[str]:
        answers = []
        for question, echo in questions:
            topic = ("question", name, title, text, question)
            said = prompts.secret(topic, f"{name}: {question}", deadline, echo=echo)
            prompts.forget(topic)
            answers.append(said or "")
        return answers

    wire.auth_timeout = PERSON_SECONDS
    return _succeeds(lambda: wire.auth_interactive(settings.user, answer))


def _by_password(wire: Wire, name: str, settings: Settings, deadline: Deadline) -> bool:
    topic = ("password", settings.user, settings.known_as)
    for _ in range(PASSWORD_TRIES):
        password = prompts.secret(topic, f"Password of {settings.user} at {name}: ", deadline)
        if password is None:
            return False
        wire.auth_timeout = deadline.left()
        if _succeeds(lambda said=password: wire.auth_password(settings.user, said, fallback=False)):
            return True
        prompts.forget(topic)
    return False


def _succeeds(login: object) -> bool:
    try:
        return not login()  # type: ignore[operator]
    except (paramiko.SSHException, EOFError, OSError):
        return False
