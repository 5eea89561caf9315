"""``fleetctl run``: a command, and files before it, on many hosts in one exec each."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from fleetctl.cli import complete, options, patch_notes, show
from fleetctl.cli.app import new_app
from fleetctl.cli.selectors import patterns_of
from fleetctl.cli.spans import at_least
from fleetctl.errors import Exit, FleetError, UsageError

if TYPE_CHECKING:
    from fleetctl.fleet.run import Outcome, Runner
    from fleetctl.model.facts import PatchNote
    from fleetctl.model.fleet import Host

app = new_app()

BEAT_SECONDS = 0.2
BEHIND = "fleetctl.behind"  # how many words stand behind --


class _Parted(TyperCommand):
    """Notes how many words stand behind ``--``, which Click itself forgets."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            ctx.meta[BEHIND] = len(args) - args.index("--") - 1
        return super().parse_args(ctx, args)


@app.command(
    cls=_Parted,
    help="Run a command on hosts, with files put there before: one login and one exec a host.",
    epilog="One word after -- is shell text, several are passed as they are. "
    "Exit code: that of all hosts where they agree (6: the command failed, 4: unreachable), else 1.",
)
def run(
    ctx: typer.Context,
    selector: Annotated[
        str | None,
        typer.Argument(
            metavar="[SELECTOR]...",
            autocompletion=complete.hosts,
            help="Host, glob, range b300-[01-04], @group; several with commas, or as words before --.",
        ),
    ] = None,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND…", help="What to run there.")
    ] = None,
    put: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE:DEST[:MODE]", help="Put a file there before, in one step."),
    ] = None,
    everywhere: Annotated[bool, typer.Option("--all", help="Every host of the inventory.")] = False,
    become: Annotated[bool, typer.Option("--become", help="As root, through sudo -n.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", parser=at_least(0.1), help="End the command after that long [600]."
        ),
    ] = None,
    connect_timeout: options.ConnectTimeout = 10.0,
    workers: Annotated[int, typer.Option(min=1, max=500, help="Hosts at once.")] = 50,
    stream: Annotated[
        bool, typer.Option("--stream", help="Show lines as they come, each with its host.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON line a host, as they finish.")
    ] = False,
) -> int:
    """Parse, run on every host, show."""
    from fleetctl.fleet import fanout
    from fleetctl.fleet.run import Job, Runner, command_text, parse_put, record
    from fleetctl.fleet.selection import hosts_of
    from fleetctl.transport import load

    given = [] if selector is None else [selector, *(command or [])]
    selectors, words = _split(given, ctx.meta.get(BEHIND), everywhere)
    puts = tuple(parse_put(text) for text in put or [])
    if not any(word.strip() for word in words) and not puts:
        raise UsageError(
            "no-command",
            "nothing to do",
            hint=f"fleetctl run {' '.join(selectors) or '@b300'} -- uptime",
        )
    hosts = hosts_of(*patterns_of(selectors, everywhere))
    job = Job(command_text(words) if words else ":", puts, timeout, connect_timeout, become)
    printer = _Lines() if stream and not as_json else None
    record(job, hosts)
    load(hosts)
    runner = Runner(job, printer.take if printer else None)
    alone = len(hosts) == 1
    try:
        answers = fanout.fan_out(
            hosts, lambda host: runner(host, ask=alone), workers, beat=BEAT_SECONDS
        )
        codes = _show(hosts, answers, runner, as_json=as_json, printer=printer)
    except KeyboardInterrupt:
        show.note("interrupted; ending what runs on the hosts")
        runner.stop()
        return int(Exit.INTERRUPTED)
    return fanout.common_exit(codes)


def _split(words: list[str], behind: int | None, everywhere: bool) -> tuple[list[str], list[str]]:
    """Return the selectors and the command. Without ``--`` the first word is the selector."""
    if behind is None:
        behind = len(words) if everywhere else max(0, len(words) - 1)
    return words[: len(words) - behind], words[len(words) - behind :]


def _show(
    hosts: list[Host], answers: Any, runner: Runner, *, as_json: bool, printer: _Lines | None
) -> list[int]:
    """Print what comes: JSON at once, for people folded as soon as nothing more comes for a while."""
    from fleetctl.cli.folded import QUIET_SECONDS, Awaited, show_outcomes

    awaited = Awaited(0 if as_json or printer else len(hosts), runner.doing)
    codes: list[int] = []
    noted: list[tuple[str, tuple[PatchNote, ...]]] = []
    ready: list[Outcome] = []
    quiet = 0.0
    for item in answers:
        if item is None:
            quiet += BEAT_SECONDS
            if quiet >= QUIET_SECONDS and ready:
                awaited.clear()
                show_outcomes(ready)
                ready.clear()
            awaited.draw()
            continue
        quiet = 0.0
        outcome = _outcome(*item)
        codes.append(outcome.exit_code)
        noted += patch_notes.of_host(outcome.host, outcome.patches)
        awaited.answered(outcome)
        if as_json:
            show.json_line(_json(outcome))
        elif printer:
            printer.end(outcome)
        else:
            ready.append(outcome)
    awaited.clear()
    show_outcomes(ready, titles=len(hosts) > 1)
    patch_notes.tell(noted)
    return codes


def _outcome(host: Host, answer: Outcome | FleetError) -> Outcome:
    """Return the answer; a FleetError here is a bug's, since the runner returns the hosts' own."""
    from fleetctl.fleet.run import Outcome

    if isinstance(answer, FleetError):
        return Outcome(host.name, None, b"", b"", 0.0, answer)
    return answer


def _json(outcome: Outcome) -> dict[str, Any]:
    error = outcome.error
    line: dict[str, Any] = {
        "schema": "fleetctl.run/1",
        "host": outcome.host,
        "rc": outcome.rc,
        "stdout": outcome.stdout.decode(errors="replace"),
        "stderr": outcome.stderr.decode(errors="replace"),
        "seconds": round(outcome.seconds, 4),
        "truncated": outcome.truncated,
        "error": error.reference if error else None,
        "patches": [
            {
                "service": s,
                "name": n.name,
                "by": n.by,
                "expires_at": n.expires_at,
                "expired": n.expired,
            }
            for s, n in outcome.patches
        ],
    }
    if error:
        line |= {"message": error.message, "hint": error.hint, "context": list(error.context)}
    return line


class _Lines:
    """Whole lines as they come, each behind its host's name."""

    def __init__(self) -> None:
        self._parts: dict[str, bytes] = {}

    def take(self, host: Host, chunk: bytes) -> None:
        """Print the lines that are whole; called from the hosts' threads."""
        *lines, rest = (self._parts.pop(host.name, b"") + chunk).split(b"\n")
        self._parts[host.name] = rest
        if lines:
            self._write(host.name, lines)

    def end(self, outcome: Outcome) -> None:
        """Print what is left of a host, its standard error and how it ended."""
        rest = self._parts.pop(outcome.host, b"")
        self._write(outcome.host, [rest] if rest else [])
        errors = outcome.stderr.splitlines()
        if outcome.error is not None:
            show.fault(outcome.error)
        elif outcome.rc:
            errors.append(f"exit status {outcome.rc}".encode())
        for line in errors:
            show.note(f"{outcome.host}: {line.decode(errors='replace')}")

    @staticmethod
    def _write(name: str, lines: list[bytes]) -> None:
        text = "".join(f"{name}: {show.safe_line(x.decode(errors='replace'))}\n" for x in lines)
        if text:
            os.write(sys.stdout.fileno(), text.encode())  # one write: threads do not mix lines
