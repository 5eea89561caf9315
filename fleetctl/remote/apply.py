"""Carry out a plan's steps on the host: everything is staged and verified before the first rename."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import re
import time
from typing import Any

from fleetctl.remote import files, journal, lock, places, records, revisions, shell, undo, unit
from fleetctl.remote.agent import AgentError

REFUSED = 7
INTERRUPTED = 130
FILE_STEPS = ("write-file", "remove-file", "verify-unit")

IGNORES_OTHERS = 250  # the systemd from which systemd-analyze can leave dependencies alone
_REQUIRES = re.compile(r"^\s*(?:Requires|Requisite|BindsTo)\s*=", re.MULTILINE)

_held: list[lock.Lock] = []


def hold(service: str, who: dict[str, Any], force: str = "") -> lock.Lock:
    """Take the service's lock for as long as this agent lives, or until ``let_go``.

    What a dead agent began under it before is ended first.
    """
    for held in _held:
        if held.service == service and held.held():
            return held
    taken = lock.acquire(service, who, force)
    _held.append(taken)
    try:
        undo.settle(service)
    except BaseException:
        _held.remove(taken)
        taken.release()
        raise
    return taken


def let_go() -> None:
    """Give back every lock of this agent."""
    while _held:
        _held.pop().release()


atexit.register(let_go)


class Run:
    """One plan on its way."""

    def __init__(self, args: dict[str, Any], session: Any) -> None:
        self.args = args
        self.session = session
        self.steps: list[dict[str, Any]] = args["steps"]
        self.service: str = args["service"]
        self.launch: dict[str, Any] | None = args.get("launch")
        self.by: str = args["lock"].get("who", "")
        self.reason: str = args.get("reason", "")
        self.change = files.Change(self.service)
        self.began = time.monotonic()
        self.revision: int | None = None
        self.issued = False
        self.reloaded = False

    def tell(self, number: int, state: str) -> None:
        """Send a step event."""
        step = self.steps[number]
        self.session.emit({
            "event": "step", "do": step["do"], "state": state, "number": number + 1,
            "of": len(self.steps), "target": step.get("path") or step.get("unit") or "",
            "seconds": round(time.monotonic() - self.began, 3),
        })  # fmt: skip

    # --- before anything changes ---

    def recheck(self) -> None:
        """Under the lock: what the plan saw must still hold. AgentError: changed-meanwhile, systemd-silent."""
        for step in self.steps:
            if step["do"] not in ("write-file", "remove-file"):
                continue
            wanted = (
                hashlib.sha256(step["content"].encode()).hexdigest() if "content" in step else None
            )
            # What is there already may come from another service's deploy: the collector is shared.
            if files.sha256(step["path"]) not in (step.get("before"), wanted):
                raise _changed("%s is not what the plan saw" % step["path"])
        expect = self.args.get("expect") or {}
        if "invocation_id" in expect:
            now = unit.must_show(self.args["unit"], ("InvocationID",)).get("InvocationID", "")
            if now != expect["invocation_id"]:
                raise _changed("%s was restarted by somebody else" % self.args["unit"])
        if "last_launch" in expect:
            last = records.last_launch(self.service)
            if (last or {}).get("id") != expect["last_launch"]:
                raise _changed("there was another launch of %s" % self.service)

    def stage(self) -> None:
        """Write every new file beside its place, and verify the unit. Nothing shows yet."""
        for number, step in enumerate(self.steps):
            if step["do"] == "write-file":
                self.change.write(step["path"], step["content"], step["mode"], step["owner"])
            elif step["do"] == "remove-file":
                self.change.remove(step["path"])
            elif step["do"] == "verify-unit":
                verify(step["unit"], step["content"])
                self.tell(number, "done")

    # --- the changes ---

    def carry_out(self) -> dict[str, Any]:
        """Do every step; until the service is touched, a fault or an interruption takes all back."""
        try:
            self.recheck()
            records.audit(self._audit_line())
            with lock.fence():
                self._still_ours()
                self._note()
            self.stage()
            self._stop_here_if_alone()
            with lock.fence():
                self._still_ours()
                self._announce()
                self.change.commit(self._still_ours)
            self._tell_files()
            result: dict[str, Any] = {}
            for number, step in enumerate(self.steps):
                if step["do"] not in FILE_STEPS:
                    result.update(self._do(number, step) or {})
        except BaseException as error:
            self._end_of(error)
            self._audit_fault(error)
            raise
        self._done()
        return dict(result, revision=self.revision)

    def _end_of(self, error: BaseException) -> None:
        """Take all back, unless systemd has it, or may have it, or somebody else has the service now."""
        silent = isinstance(error, AgentError) and error.fields["reference"] == "systemd-silent"
        with lock.fence():
            lost = self._lost()
            if not (lost or self.issued):
                self._take_back()
        if not (lost or self.issued or silent) and self.reloaded:
            unit.systemctl("daemon-reload", timeout=unit.SILENT)
        if not (self.issued and silent):  # else the next agent sees what became of it
            self._done()

    def _done(self) -> None:
        with lock.fence():
            if self._lost():
                self.change.abandon()  # who took the lock has ended what was begun here
            else:
                self.change.finish()
                undo.end(self.service)

    def _note(self) -> None:
        """Write down what is about to change, for whoever finds this agent dead."""
        if self.launch is None:
            return
        paths = [s["path"] for s in self.steps if s["do"] in ("write-file", "remove-file")]
        before = (self.args.get("expect") or {}).get("invocation_id")
        if before is None:
            before = unit.must_show(self.args["unit"], ("InvocationID",)).get("InvocationID", "")
        undo.begin(self.service, self.args["unit"], self.launch["id"], before, paths)

    def _do(self, number: int, step: dict[str, Any]) -> dict[str, Any] | None:
        kind = step["do"]
        if kind == "wait-ready":
            return None  # the watch is a call of its own
        if kind in ("stop-unit", "start-unit", "restart-unit"):
            self._stop_here_if_alone()
        self.tell(number, "issued")
        result: dict[str, Any] | None = None
        if kind == "daemon-reload":
            self.reloaded = True
            unit.reload_units()
        elif kind == "reset-failed":
            unit.reset_failed(step["unit"])
        elif kind == "enable-unit":
            unit.must(("enable", "--", step["unit"]), "enable-failed")
        elif kind == "stop-unit":
            self.issued = True
            reason = step.get("reason") or self.reason
            unit.stop(step["unit"], reason, self.by, step.get("timeout", 150.0))
        elif kind in ("start-unit", "restart-unit"):
            result = self._launch(step["unit"], restart=kind == "restart-unit")
        else:
            raise AgentError("unknown-step", "this agent does not know the step %r" % kind)
        self.tell(number, "done")
        return result

    def _launch(self, name: str, restart: bool) -> dict[str, Any]:
        before = unit.must_show(name)
        old = before.get("InvocationID", "")
        if restart and old and before.get("ActiveState") != "inactive":
            records.ask_stop(name, old, self.reason or "restart for a new launch", self.by)
        self._keep_revision()
        self.issued = True
        try:
            invocation = unit.start(name, restart)
        except AgentError as error:
            if error.fields["reference"] == "systemd-silent":
                error.fields["message"] += "; whether it starts the new launch shows once it does"
                raise
            # A start that failed at once left an invocation behind: the watch will tell its story.
            invocation = unit.show(name).get("InvocationID", "")
            if not invocation or invocation == old:
                self._outcome({"outcome": "apply-failed", "ended_at": records.now()})
                raise
        self._outcome({"invocation_id": invocation, "boot_id": records.boot_id()})
        return {"invocation_id": invocation, "replaced": old}

    def _announce(self) -> None:
        """Record the launch before its first file shows.

        Where this agent or the host dies in between, a record without an invocation tells the next
        plan that what runs may not be what lies there; a secret that changed shows nowhere else.
        """
        if self.launch is not None:
            records.save_launch(self.launch)

    def _outcome(self, changes: dict[str, Any]) -> None:
        if self.launch is not None:
            records.update_launch(self.service, self.launch["id"], changes)

    # --- help ---

    def _lost(self) -> bool:
        """Return whether somebody broke the lock under which this runs."""
        return any(held.service == self.service and not held.held() for held in _held)

    def _still_ours(self) -> None:
        if self._lost():
            raise AgentError(
                "lock-lost",
                "somebody else took the lock of %s; nothing was restarted" % self.service,
                hint="`fleetctl audit` says who and why",
                exit_code=lock.LOCKED,
            )

    def _stop_here_if_alone(self) -> None:
        self._still_ours()
        if self.session.cancelled():
            raise AgentError(
                "interrupted",
                "the client is gone; nothing was restarted",
                exit_code=INTERRUPTED,
            )

    def _tell_files(self) -> None:
        for number, step in enumerate(self.steps):
            if step["do"] in ("write-file", "remove-file"):
                self.tell(number, "done")

    def _take_back(self) -> None:
        self.change.rollback()
        if self.launch is not None:
            records.forget_launch(self.service, self.launch["id"])

    def _audit_line(self) -> dict[str, Any]:
        return {
            "do": self.args.get("verb", "deploy"),
            "service": self.service,
            "by": self.by,
            "reason": self.reason,
            "launch": (self.launch or {}).get("id"),
            "steps": [" ".join(_words(s)) for s in self.steps],
        }

    def _audit_fault(self, error: BaseException) -> None:
        said = error.fields["reference"] if isinstance(error, AgentError) else type(error).__name__
        with contextlib.suppress(OSError):  # a full disk must not hide the fault itself
            records.audit({"do": "failed", "service": self.service, "by": self.by, "error": said})

    def _keep_revision(self) -> None:
        """Keep what is installed now, so that it can come back; no secret is in it."""
        body = self.args.get("revision")
        if body is None or self.launch is None:
            return
        told = dict(body, launch=self.launch["id"], by=self.by, reason=self.reason)
        try:
            self.revision = revisions.keep(self.service, told)
        except OSError as error:
            self.session.emit({"event": "warning", "message": "no revision kept: %s" % error})


def _words(step: dict[str, Any]) -> list[str]:
    return [str(step[k]) for k in ("do", "path", "unit") if step.get(k)]


def _changed(message: str) -> AgentError:
    return AgentError(
        "changed-meanwhile",
        message,
        hint="run the command again: it makes a new plan from what is there now",
        exit_code=REFUSED,
    )


def verify(name: str, content: str) -> None:
    """Run systemd-analyze on a unit's text. AgentError: unit-verify.

    It ends with 0 for unknown keys and bad values and only warns, so what it says counts too.
    """
    folder = os.path.join(places.RUN, "verify-%d" % os.getpid())
    path = os.path.join(folder, places.safe_name(name))
    os.makedirs(folder, mode=0o700, exist_ok=True)
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        how = ["--recursive-errors=no"] if _stands_alone(name, content) else []
        done = shell.run(("systemd-analyze", "verify", *how, path), timeout=30.0)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
            os.rmdir(folder)
    if done.rc == 127:
        return
    said = [line.replace(folder + "/", "") for line in done.err.splitlines() if line.strip()]
    mine = [line for line in said if name in line]
    if done.rc != 0 or mine:
        raise AgentError(
            "unit-verify",
            "systemd does not accept %s as it is" % name,
            where=name,
            hint="nothing was changed; the unit's text is shown by `fleetctl render`",
            context=(mine or said)[:8],
            exit_code=3,
        )


def _stands_alone(name: str, content: str) -> bool:
    """Return whether no other unit can keep this one from starting.

    Its text is then all that there is to check: systemd-analyze need not load what half of the host
    consists of, which is two thirds of its time. A drop-in may say anything.
    """
    if os.path.isdir(os.path.join(places.UNITS, name + ".d")) or _REQUIRES.search(content):
        return False
    return (unit.version() or 0) >= IGNORES_OTHERS


def _run(args: dict[str, Any], session: Any) -> dict[str, Any]:
    """Take the lock, carry the plan out, and keep the lock for the watch when there is one."""
    hold(args["service"], args["lock"], args.get("break_lock", ""))
    watched = any(s["do"] == "wait-ready" for s in args["steps"])
    try:
        result = Run(args, session).carry_out()
    except BaseException:
        let_go()
        raise
    session.changed = True
    if not watched or not args.get("watch", True):
        let_go()
    return dict(result, cursor=journal.last_cursor(args["unit"]) if args.get("want_cursor") else "")


def _settle(args: dict[str, Any], session: Any) -> dict[str, Any]:
    """Say what a launch came to whose agent was lost: wait for that agent, and end what it left.

    ``invocation_id`` is that of the launch, None where the host has what it had before.
    """
    service, launch = args["service"], args["launch"]
    while True:
        record = records.launch(service, launch) or {}
        if record.get("invocation_id"):
            return {"invocation_id": record["invocation_id"]}
        found = lock.living(service)
        if found is None or found.get("token") != args["lock"]["token"]:
            break
        if session.wait(0.2):
            raise AgentError("interrupted", "the client is gone", exit_code=INTERRUPTED)
    hold(service, args["lock"])
    record = records.launch(service, launch) or {}
    if not record.get("invocation_id"):
        let_go()
    return {"invocation_id": record.get("invocation_id")}


def _let_go(_args: dict[str, Any], _session: Any) -> dict[str, Any]:
    let_go()
    return {}


VERBS = {"run": _run, "settle": _settle, "let_go": _let_go}
