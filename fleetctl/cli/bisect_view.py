"""How a bisect looks: the plan, a table that grows, what is left, the verdict; or JSON lines."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetctl.bisect import verdict as verdicts
from fleetctl.bisect.estimate import remaining
from fleetctl.cli import show
from fleetctl.errors import Exit, FleetError, LockedError
from fleetctl.report import bisect as report
from fleetctl.trials import store, words

if TYPE_CHECKING:
    from fleetctl.bisect.state import State
    from fleetctl.trials.start import Job

PLAIN_EVERY = 15.0
OWN = ("trial-start", "trial", "remaining", "split", "take-down", "brought-back")


class View:
    """Takes the events of a bisect, from any of its threads."""

    def __init__(self, job: Job, *, as_json: bool) -> None:
        self.job = job
        self.as_json = as_json
        self._lock = threading.Lock()
        self._live = sys.stderr.isatty() and not as_json
        self._shown = False
        self._phase: dict[str, tuple[str, float]] = {}
        self._headed = False

    # --- before ---

    def plan(self) -> None:
        """Show what differs, what is known already, and what it will cost."""
        state, ground = self.job.state, self.job.ground
        left = remaining(state.problem(), state.history(), len(state.hosts))
        each = words.seconds_each(state)
        if self.as_json:
            show.json_line(self._plan_json(left.mean, left.high, each))
            return
        lines = [
            f"bisect {state.id}: {state.good} → {state.bad} on {', '.join(state.hosts)}, sglang {state.sglang}"
        ]
        if state.options.get("patches"):
            lines.append(f"  in every trial: {', '.join(state.options['patches'])}")
        lines += [f"  note: {note}" for note in ground.notes]
        lines += [
            f"  {n:2}. {s.name}  ({words.describe(s)})"
            for n, s in enumerate(state.space.switches, 1)
        ]
        if state.space.equal:
            lines.append(
                f"  the same when resolved: {', '.join(a.name for a in state.space.equal)}"
            )
        known = [e for e in state.trials if e.purpose == "paid"]
        if known:
            lines.append(f"  launched before, and counted: {len(known)}")
            lines += [
                f"    {' + '.join(e.on) or 'the good end'}: {e.outcome} ({e.launch_id})"
                for e in known
            ]
        rounds = "launches" if len(state.hosts) == 1 else f"rounds of {len(state.hosts)} launches"
        guess = "" if words.measured(state) else ", which is a guess: none was measured yet"
        if self.job.settled:
            lines.append("  nothing is left to launch")
        else:
            lines.append(f"  {left} {rounds}, {left.minutes(each)} at {each:.0f} s each{guess}")
        for host, targets in self.job.serving.items():
            names = ", ".join(t.service.name for t in targets)
            if names:
                lines.append(
                    f"  takes down {names} on {host} for {left.minutes(each)}, and brings it back"
                )
        show.note("\n".join(lines))

    def _plan_json(self, mean: float, high: int, each: float) -> dict[str, Any]:
        state = self.job.state
        return {
            "event": "plan",
            "id": state.id,
            "good": state.good,
            "bad": state.bad,
            "hosts": state.hosts,
            "sglang": state.sglang,
            "switches": [
                {"name": s.name, "family": s.family, "weight": s.weight, "text": str(s)}
                for s in state.space.switches
            ],
            "patches": state.options.get("patches") or {},
            "differs_otherwise": [str(a) for a in state.space.fixed],
            "equal_when_resolved": [str(a) for a in state.space.equal],
            "notes": self.job.ground.notes,
            "paid": [words.entry_json(e) for e in state.trials],
            "rounds": round(mean, 1),
            "at_most": high,
            "seconds_each": round(each, 1),
            "takes_down": [
                f"{h}/{t.service.name}" for h, ts in self.job.serving.items() for t in ts
            ],
            "state_file": str(store.path_of(state.id)),
        }

    def question(self) -> str:
        """Return what is asked before the first launch."""
        state = self.job.state
        down = sum(len(t) for t in self.job.serving.values())
        stops = f", with {down} service{'s' if down > 1 else ''} down meanwhile" if down else ""
        return f"Launch trials on {', '.join(state.hosts)}{stops}?"

    # --- while it runs ---

    def tell(self, event: dict[str, Any]) -> None:
        """Show one event."""
        with self._lock:
            if self.as_json:
                if event["event"] in OWN or event["event"] in ("crash", "ready"):
                    show.json_line(event)
            elif event["event"] == "trial":
                self._trial(event)
            elif event["event"] == "phase":
                self._phase_line(event)
            elif event["event"] in OWN:
                self._note(report.event_line(event, self._names()))

    def _trial(self, event: dict[str, Any]) -> None:
        self._clear()
        if not self._headed:
            show.note(report.table_head())
            self._headed = True
        show.note(report.table_row(event, self._names()))

    def _names(self) -> list[str]:
        return [s.name for s in self.job.state.space.switches]

    def _phase_line(self, event: dict[str, Any]) -> None:
        text = f"  {event.get('host', '')}: {event['phase']}, {event.get('seconds', 0):.0f} s"
        if self._live:
            sys.stderr.write("\r\x1b[K" + show.safe_line(text)[:100])
            sys.stderr.flush()
            self._shown = True
            return
        key = str(event.get("host"))
        phase, at = self._phase.get(key, ("", 0.0))
        if phase != event["phase"] and time.monotonic() - at > PLAIN_EVERY:
            self._phase[key] = (event["phase"], time.monotonic())
            show.note(text)

    def _note(self, text: str) -> None:
        if text:
            self._clear()
            show.note(text)

    def _clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            self._shown = False


def run(job: Job, view: View) -> int:
    """Run the job to its verdict, show it, and write the report."""
    from fleetctl.trials.host import interruptible

    try:
        with interruptible():
            return _run(job, view)
    finally:
        pid_file(job.state.id).unlink(missing_ok=True)


def _run(job: Job, view: View) -> int:
    from fleetctl.trials import running

    try:
        said = running.run(job, view.tell)
        while said["status"] == "does-not-reproduce" and _once_more(job, view):
            said = running.run(job, view.tell)
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # the terminal may be closed
            show.note(f"interrupted; {_left(job)}. `{_go_on(job)}` goes on")
        return int(Exit.INTERRUPTED)
    except FleetError:
        show.note(f"the state is kept: `{_go_on(job)}` goes on")
        raise
    said["report"] = str(write_report(job.state))
    finish(job.state, said, as_json=view.as_json)
    return int(Exit.OK if said["status"] == "found" else Exit.NEGATIVE)


def _left(job: Job) -> str:
    """Return in what order the hosts were left."""
    left = job.state.more.get("left_behind")
    down = [f"{d['host']}/{d['service']}" for d in job.state.taken_down]
    found = f"left as it is: {left}" if left else "no trial is left on the host"
    return found + (f"; STILL DOWN: {', '.join(down)}" if down else "")


def _go_on(job: Job) -> str:
    """Return the command that goes on with a bisect."""
    down = [t.service.name for host in job.serving.values() for t in host]
    more = "".join(f" --take-down {name}" for name in dict.fromkeys(down))
    return f"fleetctl bisect-flags --resume {job.state.id}{more}"


def _once_more(job: Job, view: View) -> bool:
    """Ask whether to launch the bad end a few times more; only somebody at a terminal can say yes."""
    more = 4
    if not show.confirm(
        f"{job.state.bad} served each time. Launch it {more} times more?",
        yes=False, as_json=view.as_json,
    ):  # fmt: skip
        return False
    job.state.options["bad_runs"] = int(job.state.options["bad_runs"]) + more
    return True


def finish(state: State, said: dict[str, Any], *, as_json: bool) -> None:
    """Show a verdict."""
    if as_json:
        show.json_line(said)
        return
    show.out(verdicts.sentence(said))
    for title, command in report.commands(state, said):
        show.out(f"  {title}: {command}")
    show.out(
        f"{said['trials']} launches. Report: {said.get('report', 'fleetctl bisect show ' + state.id)}"
    )


def write_report(state: State) -> Path:
    """Write the one-page HTML beside the state."""
    from fleetctl.report import bisect_page

    path = store.path_of(state.id).with_suffix(".html")
    path.write_text(bisect_page.html(state), encoding="utf-8")
    return path


# --- in the background ---


def log_file(bisect: str) -> Path:
    """Return where a bisect in the background writes its JSON lines."""
    return store.path_of(bisect).with_suffix(".log")


def pid_file(bisect: str) -> Path:
    """Return the file with the process of a bisect in the background."""
    return store.path_of(bisect).with_suffix(".pid")


def detach(job: Job, *, as_json: bool) -> int:
    """Start the job again in a process of its own, which outlives this terminal."""
    state = job.state
    if (pid := alive(state.id)) is not None:
        raise LockedError(
            "runs-already",
            f"{state.id} is on its way as process {pid}",
            hint=f"fleetctl bisect attach {state.id}",
        )
    state.status = "stopped"
    store.save(state)
    argv = [sys.executable, "-m", "fleetctl", *_words(state.id, job.asked.protected)]
    with log_file(state.id).open("wb") as log:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    pid_file(state.id).write_text(f"{child.pid}\n")
    if as_json:
        show.json_line(
            {"event": "detached", "id": state.id, "pid": child.pid, "log": str(log_file(state.id))}
        )
    else:
        show.out(
            f"{state.id} goes on as process {child.pid}; `fleetctl bisect attach {state.id}` watches it"
        )
    return int(Exit.OK)


def _words(bisect: str, protected: Sequence[str]) -> list[str]:
    """Return the command line again, as one that resumes and does not ask: what was typed is in it."""
    own = sys.argv[1:] if sys.argv[0] != "-m" else sys.argv[2:]
    drop = ("--detach", "--json", "--yes", "-y", "--dry-run")
    kept, skip = [], False
    for word in own:
        if skip:
            skip = False
        elif word in ("--good", "--bad", "--resume"):
            skip = True
        elif not word.startswith(("--good", "--bad=", "--resume=")) and word not in drop:
            kept.append(word)
    typed = [word for name in protected for word in ("--yes-protected", name)]
    return [*kept, *typed, "--resume", bisect, "--yes", "--json"]


def alive(bisect: str) -> int | None:
    """Return the process of a bisect in the background, None when there is none any more."""
    try:
        pid = int(pid_file(bisect).read_text())
        os.kill(pid, 0)
    except (OSError, ValueError):
        return None
    command = Path(f"/proc/{pid}/cmdline")  # after a reboot the number may be somebody else's
    if command.is_file() and bisect not in command.read_text(errors="replace"):
        return None
    return pid
