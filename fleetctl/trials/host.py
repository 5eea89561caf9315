"""One host in a bisect: its lock, one trial after the other, and a clean room between them."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fleetctl.apply import audit
from fleetctl.apply.deploy import Deployment
from fleetctl.apply.outcome import Outcome as Deployed
from fleetctl.apply.outcome import State as Is
from fleetctl.apply.session import MODULES, Event, Session
from fleetctl.apply.wish import Wish, token
from fleetctl.config.secrets import resolve_secrets
from fleetctl.errors import Exit, FleetError, ManyErrors, RemoteError, UnreachableError
from fleetctl.model.fleet import Profile, Service, Target
from fleetctl.patching import hosts as patching
from fleetctl.patching.model import Patch
from fleetctl.trials import patched
from fleetctl.trials.classify import sign_of

QUIET_DIAGNOSTICS = {
    "SGLANG_PYSPY_DUMP_BEFORE_CRASH": "0",
    "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0",
}
MODULES_HERE = (*MODULES, "trial", "resolver")
TRIAL_UNIT = {"restart": "no", "enable": False}
REBOOT_SECONDS = 300.0
Tell = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Rules:
    """How trials are launched."""

    port: int | None = None  # of the trials; default: the service's own plus 7
    timeout: float | None = None
    stall: float | None = None
    requests: tuple[dict[str, Any], ...] = ()
    templates: Mapping[str, str] = field(default_factory=dict)
    clean_seconds: float = 120.0
    gpu_limit_mib: float = 2048.0
    break_lock: str = ""
    patches: Mapping[str, Patch] = field(default_factory=dict)  # that a trial may have, by name


@dataclass(slots=True)
class Launched:
    """What one launch left: the deploy's result, and whether it was cut short at the root line."""

    result: dict[str, Any]
    sign: str = ""
    cut: bool = False
    fault: FleetError | None = None
    patches: tuple[dict[str, Any], ...] = ()  # those of the launch, with what they said


class TrialHost:
    """A host with its service, and the trial service beside it."""

    def __init__(self, target: Target, bisect: str, rules: Rules, stop: threading.Event) -> None:
        self.target = target
        self.rules = rules
        self.stop = stop
        own = target.service
        service = Service(f"{own.name}-trial", rules.port or own.port + 7, own.gpus)
        self.trial = Target(target.host, service)
        self.session = Session(target.host, stop=stop, modules=MODULES_HERE)
        self._guard = Session(target.host, stop=threading.Event(), modules=("trial",))
        self._lock = {
            "token": token(),
            "who": audit.who(),
            "why": f"bisect {bisect}",
            "command": audit.command_line(),
        }
        self._boot = ""
        self._patched: set[str] | None = None  # None: not known yet
        self._shm: list[str] = []
        self._ended = True  # nothing of the last trial runs

    @property
    def name(self) -> str:
        """Return the host's name."""
        return self.target.host.name

    # --- the lock ---

    def take(self) -> None:
        """Take the service's lock. LockedError names who holds it; UnreachableError."""
        args = {
            "services": [self.target.service.name],
            "lock": self._lock,
            "break_lock": self.rules.break_lock,
        }
        self._boot = str(self._guard.call("trial.hold", args)["boot_id"])

    def rebooted(self) -> bool:
        """Look at the host between trials, and take the lock again after a lost connection.

        Returns whether it was rebooted meanwhile. RemoteError ``lock-lost`` when somebody broke the lock.
        """
        before = self._boot
        name = self.target.service.name
        try:
            seen = self._guard.call("trial.beat", {"services": [name]})
        except UnreachableError:
            self._guard.reconnect(lambda _: None, REBOOT_SECONDS)
            self.take()
            return self._boot != before
        if seen["boot_id"] == before and seen["holders"][name] != self._lock["token"]:
            raise RemoteError(
                "lock-lost",
                "somebody else broke the bisect's lock",
                where=str(self.target),
                hint="the state is kept: --resume goes on when they are done",
            )
        if seen["boot_id"] != before:
            self.take()
            return True
        return False

    def release(self) -> None:
        """Give the lock back and end the sessions."""
        self._guard.close()
        self.session.close()

    # --- one launch ---

    def launch(
        self, profile: Profile, *, sign: str, full: bool, reason: str, tell: Tell
    ) -> Launched:
        """Launch a profile as the trial service and return what came of it.

        ``sign``: a crash that begins like this is cut short. ``full``: with crash diagnostics.
        """
        shape = self.shaped(profile, full=full)
        found = Launched({})

        def hear(event: Event) -> None:
            tell(event)
            if event.get("event") == "crash":
                found.sign = sign_of(event)
                if sign and found.sign == sign and event.get("sure"):
                    found.cut = True
                    self.session.cancel()

        self.unpatch(shape.patches)
        wish = Wish(
            profile=shape,
            patches=tuple(self.rules.patches[n] for n in shape.patches),
            templates=self.rules.templates,
            secrets=resolve_secrets(shape),
            allow=frozenset({"--keep-patches"}),
            restart=True,
            reason=reason,
            requests=self.rules.requests,
            timeout=self.rules.timeout,
            stall=self.rules.stall,
        )
        way = Deployment(self.trial, wish, self.session, hear)
        outcome = way.prepare()
        if outcome is not None and (findings := _lint(outcome.fault)):
            # What lint says of a combination is what the trial is to find out.
            way = Deployment(self.trial, replace(wish, no_lint=findings), self.session, hear)
            outcome = way.prepare()
        if outcome is None:
            outcome = way.carry_out()
        found.result, found.fault = outcome.to_event(), outcome.fault
        if not found.sign:
            found.sign = sign_of(found.result.get("crash"))
        self._check(outcome, cut=found.cut)
        found.patches = self._said(found.result) if shape.patches else ()
        return found

    def unpatch(self, keep: Collection[str] = ()) -> None:
        """Take the patches of earlier trials out, also those of a client that died."""
        gone = [] if self._patched is None else sorted(self._patched - set(keep))
        if gone or self._patched is None:
            wish = patching.Wish(self._lock["who"], self._lock["command"], self._lock["why"])
            target = patching.place(self.trial)
            self._patiently("patching.revert", target | {"names": gone, "lock": wish.lock()}, 120.0)
        self._patched = set(keep)

    def _said(self, result: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """Return what the patches of a launch said; the unit is asked where no evidence came."""
        status: list[dict[str, Any]] = []
        if not (result.get("triage") or {}).get("captured", {}).get("patches"):
            with contextlib.suppress(FleetError):  # the trial's outcome stands without it
                place = patching.place(self.trial)
                status = self._patiently("patching.status", place, 60.0)["patches"]
        return patched.said(result, status)

    def shaped(self, profile: Profile, *, full: bool) -> Profile:
        """Return the profile as a trial runs it: never restarted, quick to die unless ``full``."""
        env = dict(profile.env) if full else profile.env | QUIET_DIAGNOSTICS
        return replace(profile, env=env, unit=profile.unit | TRIAL_UNIT)

    def _check(self, outcome: Deployed, *, cut: bool) -> None:
        """Raise what ends the bisect: refusals, locks, a host that cannot take a launch, Ctrl-C."""
        if outcome.fault is not None and outcome.state is not Is.UNREACHABLE:
            raise outcome.fault
        if outcome.state is Is.INTERRUPTED and not cut:
            raise KeyboardInterrupt

    def end(self, *, at_once: bool = False, launch: str | None = None, **changes: Any) -> None:
        """Stop what the trial left running. A host that is away is waited for.

        RemoteError ``systemd-silent``: it may still run, or start later.
        """
        self._ended = False
        args = {
            "service": self.trial.service.name,
            "unit": self.trial.service.unit,
            "at_once": at_once,
            "by": audit.who(),
            "launch": launch,
            "changes": changes,
        }
        self._patiently("trial.end", args, 300.0)
        self._ended = True

    def remove(self) -> None:
        """Take the trial service's files away."""
        self.unpatch()
        service = self.trial.service
        self._patiently("trial.remove", {"service": service.name, "unit": service.unit}, 120.0)

    def clean(self) -> list[str]:
        """Wait for a clean room; return what still lies in /dev/shm.

        RemoteError ``dirty-host``, ``systemd-silent``.
        """
        if not self._ended:
            self.end(at_once=True)
        args = {
            "unit": self.trial.service.unit,
            "gpus": None if self.trial.service.gpus is None else list(self.trial.service.gpus),
            "ports": [self.trial.service.port],
            "gpu_limit_mib": self.rules.gpu_limit_mib,
            "timeout": self.rules.clean_seconds,
            "shm_before": self._shm,
        }
        found = self._patiently("trial.clean", args, self.rules.clean_seconds + 60.0)
        self._shm = found["shm_all"]
        if not found["clean"]:
            raise RemoteError(
                "dirty-host",
                f"not clean after {self.rules.clean_seconds:g} s: {found['dirt'][0]}",
                where=str(self.target),
                hint="find and stop what holds it, then --resume; --gpu-limit-mib says what counts",
                context=tuple(found["dirt"][1:]),
            )
        return list(found["shm"])

    def _patiently(self, verb: str, args: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Call a verb that must not be lost to a broken connection or to Ctrl-C."""
        session = Session(self.target.host, modules=(verb.split(".")[0], "unit"))
        with session:
            try:
                return session.call(verb, args, timeout=timeout)
            except UnreachableError:
                session.reconnect(lambda _: None, REBOOT_SECONDS)
                return session.call(verb, args, timeout=timeout)

    # --- the state on the host ---

    def save(self, state: dict[str, Any]) -> None:
        """Put the state on the host as well. RemoteError ``bisect-moved-on``."""
        self._guard.call("trial.save", {"state": state})

    def load(self, bisect: str) -> dict[str, Any] | None:
        """Return the state that the host has, or None."""
        found = self._guard.call("trial.load", {"id": bisect})["state"]
        return dict(found) if found is not None else None


def _lint(fault: FleetError | None) -> frozenset[str]:
    """Return the lint findings that stopped a launch, by their ids; none for any other fault."""
    faults = fault.errors if isinstance(fault, ManyErrors) else [fault] if fault else []
    named = [f.reference for f in faults if f"--no-lint={f.reference}" in f.hint]
    config = all(f.exit_code in (Exit.CONFIG, Exit.REFUSED) for f in faults)
    return frozenset(named) if faults and config and len(named) == len(faults) else frozenset()


ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C, a kill, a terminal that is closed


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let a kill and a closed terminal end things as Ctrl-C does: hosts are put in order first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDS[1:]}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # nohup
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C, a kill and a closed terminal while a host is put in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept: list[int] = []
    before: dict[int, Any] = {number: signal.getsignal(number) for number in ENDS}
    for end in ENDS:
        signal.signal(end, lambda number, _frame: kept.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if any(before[number] is not signal.SIG_IGN for number in kept):
        raise KeyboardInterrupt
