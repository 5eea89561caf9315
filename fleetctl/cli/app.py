"""The root of the command line: commands are loaded when they are used, faults are shown in one place."""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
import sys
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from fleetctl.cli import show
from fleetctl.errors import Exit, FleetError, ManyErrors


@dataclass(frozen=True, slots=True)
class Entry:
    """A command of the root: the module that holds its ``app``, and the line of the help."""

    module: str
    help: str


# One line a command, so that ``--help`` imports none of them.
COMMANDS: dict[str, Entry] = {
    "init": Entry("init", "Write a first inventory from ~/.ssh/config."),
    "hosts": Entry("hosts", "The machines of the site."),
    "profiles": Entry("profiles", "Launch profiles: list, show, save-as."),
    "render": Entry("render", "Show the unit and the files that a deploy would write."),
    "lint": Entry("lint", "Check a profile against the flags of an SGLang, in milliseconds."),
    "doctor": Entry("doctor", "Look hosts over before the first restart; changes nothing."),
    "diff-hosts": Entry("diff_hosts", "What differs between hosts that should be alike."),
    "adopt": Entry("adopt", "Turn a server that somebody else set up into a profile."),
    "flags": Entry(
        "flags", "SGLang's flags by release or host: list, show, diff, migrate, effect."
    ),
    "schemas": Entry("schemas", "JSON schemas of hosts.yaml and profiles, for editors."),
    "triage": Entry("triage", "Find the root of a crash in a log, a bundle or standard input."),
    "rules": Entry("rules", "List, check and try the rules that triage goes by."),
    "patch": Entry("patch", "Diagnostic patches: push, prove, revert; also without a host."),
    "ssh": Entry("ssh", "Open a shell on a host, by the way that all commands take."),
    "fetch": Entry("fetch", "Copy a file of each host here, packed on the way."),
    "run": Entry("run", "Run a command on hosts, with files put there before."),
    "lab": Entry("lab", "Disposable systemd hosts on this computer, to try things on."),
    "deploy": Entry("deploy", "Bring a profile to hosts and watch it start."),
    "stop": Entry("stop", "Stop services on purpose."),
    "wait": Entry("wait", "Watch services that are starting."),
    "status": Entry("status", "What runs where, and how it is."),
    "diff": Entry("diff", "What a deploy would change, and what was edited by hand."),
    "history": Entry("history", "The last revisions of a service, as its host keeps them."),
    "rollback": Entry("rollback", "Bring an earlier revision back as a new launch."),
    "engine": Entry("engine", "SGLang releases on hosts: install, list, remove, bundle."),
    "lock": Entry("lock", "Locks of services: who holds them, and breaking one."),
    "audit": Entry("audit", "Who changed what, on hosts and from here."),
    "logs": Entry("logs", "The plain log of a service."),
    "collect": Entry("collect", "Bring home the evidence of what failed while nobody watched."),
    "reproduce": Entry("reproduce", "Launch an incident again and count how often it crashes."),
    "bisect-flags": Entry("bisect_flags", "Find which flag between two profiles brings a crash."),
    "bisect": Entry("bisect", "Bisects: list, show, attach, mark, undo, abandon, simulate."),
    "incidents": Entry("incidents", "What failed, where, how often, and what was said of it."),
}


class CtrlCError(Exception):
    """Ctrl-C that a command left to the root. Typer would end it without a word."""


class LazyGroup(TyperGroup):
    """A group whose commands are imported on use."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the line names."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as pressed:
            raise CtrlCError from pressed

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and return one command, or None."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        if ctx.resilient_parsing and not ctx.args:
            return TyperCommand(cmd_name, help=entry.help)
        return self._load(cmd_name, entry)

    def _load(self, cmd_name: str, entry: Entry) -> Any:
        module = importlib.import_module(f"fleetctl.cli.{entry.module}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Resolve a name; the table feeds the suggestions for a mistyped one."""
        if args and (entry := COMMANDS.get(args[0])):
            return args[0], self._load(args[0], entry), args[1:]
        if args:
            self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]  # names for "did you mean"
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the table as help, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


root = typer.Typer(
    name="fleetctl",
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@root.callback(invoke_without_command=False)
def main_callback(
    site: str = typer.Option(
        "",
        "--site",
        metavar="DIR",
        help="Folder with inventories/ (default: FLEETCTL_SITE, else the nearest parent).",
    ),
    version: bool = typer.Option(False, "--version", "-V", help="Show the version and exit."),
) -> None:
    """Deploy SGLang to GPU hosts, watch it start, and name what broke it."""
    if version:
        from fleetctl import __version__

        print(f"fleetctl {__version__}")
        raise typer.Exit
    if site:
        os.environ["FLEETCTL_SITE"] = site


def new_app(help_text: str = "", **options: Any) -> typer.Typer:
    """Return the Typer app of one command file, with the settings that all share."""
    return typer.Typer(
        help=help_text or None,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        **options,
    )


def run(args: list[str] | None = None) -> int:
    """Run one command line and return its exit code. Faults are shown on standard error."""
    argv = sys.argv[1:] if args is None else args
    own = argv[: argv.index("--")] if "--" in argv else argv  # what follows is a host's command
    as_json = "--json" in own
    try:
        outcome = root(args=argv, standalone_mode=False, prog_name="fleetctl")
    except FleetError as error:
        report(error, as_json=as_json)
        return int(error.exit_code)
    except (CtrlCError, KeyboardInterrupt):
        return _interrupted(as_json=as_json)
    except SystemExit as leaving:  # Typer's own answer to a broken pipe
        if leaving.code != 1:
            raise
        return _reader_gone()
    except OSError as error:
        return of_os_error(error, as_json=as_json)
    except Exception as error:
        if hasattr(error, "exit_code") and hasattr(error, "show"):  # Typer's own usage errors
            _usage(error, as_json=as_json)
            return int(error.exit_code)
        if type(error).__name__ == "Abort":
            return _interrupted(as_json=as_json)
        return _unexpected(error, as_json=as_json)
    return outcome if isinstance(outcome, int) else int(Exit.OK)


def _usage(error: Any, *, as_json: bool) -> None:
    """Show what Typer has against a command line."""
    if not as_json:
        error.show()
        return
    path = error.ctx.command_path if getattr(error, "ctx", None) else "fleetctl"
    report(FleetError("usage", error.format_message(), hint=f"{path} -h"), as_json=True)


def of_os_error(error: OSError, *, as_json: bool) -> int:
    """Tell a person what this machine refused, and return the exit code."""
    if error.errno == errno.EPIPE:
        return _reader_gone()
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left in its buffer would fail again
    fault = _no_space(error) if full else _unwritable(error)
    if fault is None:
        return _unexpected(error, as_json=as_json)
    report(fault, as_json=as_json)
    return int(fault.exit_code)


def _reader_gone() -> int:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left in its buffer would fail again
    return int(Exit.READER_GONE)


def _interrupted(*, as_json: bool) -> int:
    if as_json:
        report(FleetError("interrupted", "interrupted"), as_json=True)
    else:
        show.note("interrupted")
    return int(Exit.INTERRUPTED)


def report(error: FleetError, *, as_json: bool = False) -> None:
    """Show one fault, or each of several, to a person or as a JSON line on standard error."""
    for one in error.errors if isinstance(error, ManyErrors) else [error]:
        if as_json:
            body = {
                "error": one.reference,
                "message": one.message,
                "where": one.where,
                "hint": one.hint,
            }
            print(json.dumps(body), file=sys.stderr)
            continue
        show.fault(one)


def _no_space(error: OSError) -> FleetError:
    place = str(error.filename or "the output")
    return FleetError(
        "no-space-here", error.strerror or "no space left", where=place,
        hint="make room on this machine; what was changed on hosts is in `fleetctl audit HOST`",
    )  # fmt: skip


def _unwritable(error: OSError) -> FleetError | None:
    """Return the fault of a state or cache folder that cannot be used, None for any other error."""
    from pathlib import Path

    from fleetctl.config import places
    from fleetctl.errors import ConfigError

    place = Path(str(error.filename or ""))
    for folder, name in ((places.home(), "FLEETCTL_HOME"), (places.cache(), "XDG_CACHE_HOME")):
        inside = folder in place.parents and error.errno != errno.ENOENT
        if place.is_absolute() and (inside or place in (folder, *folder.parents)):
            return ConfigError(
                "unwritable", error.strerror or str(error), where=str(place),
                hint=f"fleetctl keeps its own files there; {name} names another place",
            )  # fmt: skip
    return None


def _unexpected(error: Exception, *, as_json: bool) -> int:
    """Keep the traceback in a file and say where; a tired person gets one line."""
    if os.environ.get("FLEETCTL_DEBUG"):
        raise error
    import tempfile
    import traceback

    details = "FLEETCTL_DEBUG=1 shows the details"
    with contextlib.suppress(OSError):  # a machine without a place for them still gets the line
        with tempfile.NamedTemporaryFile(
            "w", prefix="fleetctl-fault-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            traceback.print_exception(error, file=file)
        details = f"details are in {file.name}"
    message, hint = f"{type(error).__name__}: {error}", f"this is a bug of fleetctl; {details}"
    report(FleetError("internal-fault", message, hint=hint), as_json=as_json)
    return int(Exit.NEGATIVE)
