"""``fleetctl patch push|status|revert|history``: patches on hosts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli import complete, patch_text, show
from fleetctl.cli.options import LockWait
from fleetctl.cli.patch import Json, Name, Params, app, pairs, site_root
from fleetctl.cli.selectors import Everything, Selectors, patterns_of
from fleetctl.cli.spans import at_least
from fleetctl.errors import Exit, FleetError, RefusedError, UsageError

if TYPE_CHECKING:
    from fleetctl.model.fleet import Target
    from fleetctl.patching.hosts import Link, Wish

WARM = 50  # connections to begin with
Restart = Annotated[
    bool, typer.Option("--restart", help="Restart the unit: only then do its processes change.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Restart what serves without asking.")]
YesProtected = Annotated[
    list[str],
    typer.Option("--yes-protected", metavar="HOST", help="As if the host's name had been typed."),
]
Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="Kept with the change.")]
BreakLock = Annotated[
    str, typer.Option("--break-lock", metavar="REASON", help="Take somebody else's lock.")
]


def _links(selectors: list[str], everything: bool) -> list[Link]:
    from fleetctl.config import snapshot
    from fleetctl.config.select import select
    from fleetctl.patching import hosts

    patterns = patterns_of(selectors, everything)
    return [hosts.link(t) for t in select(snapshot.hosts(), patterns)]


def _wish(why: str, restart: bool, break_lock: str, lock_wait: float, python: str = "") -> Wish:
    from fleetctl.apply import audit
    from fleetctl.patching.hosts import Wish

    return Wish(
        audit.who(), audit.command_line(), why, restart, break_lock, python, lock_wait=lock_wait
    )


def _each(
    links: list[Link],
    work: Callable[[Link], dict[str, Any]],
    tell: Callable[[Link, dict[str, Any]], None],
) -> int:
    """Do the work on every target at once, tell each answer as it comes; return the exit code."""
    from fleetctl.fleet.fanout import common_exit, fan_out

    codes: list[int] = []
    try:
        for item in fan_out(links, work):
            if item is None:
                continue
            link, answer = item
            if isinstance(answer, FleetError):
                answer.where = answer.where or str(link.target)
                codes.append(int(answer.exit_code))
                tell(link, {"error": answer.reference, "fault": answer})
                continue
            codes.append(int(answer.pop("exit", Exit.OK)))
            tell(link, {"error": None} | answer)
    finally:
        for link in links:
            link.close()
    return common_exit(codes)


def _line(link: Link, schema: str, answer: dict[str, Any]) -> None:
    """Print one target's answer as JSON; its fault also goes to standard error, as everywhere."""
    fault = answer.pop("fault", None)
    target = link.target
    extra = {}
    if fault is not None:
        extra = {"message": fault.message, "hint": fault.hint, "context": list(fault.context)}
    show.json_line(
        {
            "schema": schema,
            "host": target.host.name,
            "service": target.service.name,
            **answer,
            **extra,
        }
    )


def _fault(link: Link, answer: dict[str, Any]) -> bool:
    fault = answer.get("fault")
    if fault is None:
        return False
    if str(link.target) not in fault.where and link.target.host.name not in fault.where:
        fault.where = f"{link.target}: {fault.where}"
    show.fault(fault)
    return True


def _may_restart(
    links: list[Link], wish: Wish, yes: bool, protected: list[str], as_json: bool
) -> dict[int, dict[str, Any]]:
    """Before a restart, look at every target and ask. Faults come with the work."""
    from fleetctl.fleet.fanout import fan_out
    from fleetctl.patching import hosts

    seen: dict[int, dict[str, Any]] = {}
    if not wish.restart:
        return seen
    for item in fan_out(links, lambda one: hosts.resolve(one.call, one.target, wish)):
        if not isinstance(item[1], FleetError):
            seen[id(item[0])] = item[1]
    serving = [k for k in links if seen.get(id(k), {}).get("active_state") == "active"]
    ask_before_restart([k.target for k in serving], yes, protected, as_json)
    return seen


def ask_before_restart(
    targets: list[Target], yes: bool, protected: list[str], as_json: bool
) -> None:
    """Ask for the name of each protected host, then once for all. Raises RefusedError."""
    for target in targets:
        name = target.host.name
        if target.host.protected and name not in protected and not _typed(name, as_json):
            raise RefusedError(
                "protected-host", "it is protected, and its name was not typed", where=name,
                hint=f"--yes-protected {name}",
            )  # fmt: skip
    names = ", ".join(str(t) for t in targets)
    if targets and not show.confirm(f"restart {names}, which serve now?", yes=yes, as_json=as_json):
        raise RefusedError(
            "not-confirmed", f"{names} would be restarted, and nobody said yes", hint="--yes"
        )


def _typed(name: str, as_json: bool) -> bool:
    import sys

    if as_json or not sys.stdin.isatty():
        return False
    show.note(f"{name} is protected: type its name to restart it")
    return sys.stdin.readline().strip() == name


@app.command()
def push(
    name: Name,
    selectors: Selectors = [],  # noqa: B006
    everything: Everything = False,
    expire: Annotated[
        str, typer.Option("--expire", metavar="TIME", help="30m, 4h, 2d; default: the patch's own.")
    ] = "",
    at_expiry: Annotated[
        str,
        typer.Option("--at-expiry", metavar="WHAT", help="warn, or revert: the host takes it out."),
    ] = "",
    params: Params = [],  # noqa: B006  Typer copies it
    rung: Annotated[
        str,
        typer.Option("--rung", metavar="RUNG", help="overlay or edit instead of the patch's own."),
    ] = "",
    restart: Restart = False,
    yes: Yes = False,
    yes_protected: YesProtected = [],  # noqa: B006
    why: Why = "",
    python: Annotated[
        str, typer.Option("--python", metavar="PATH", help="The interpreter, if the unit hides it.")
    ] = "",
    sglang: Annotated[
        str,
        typer.Option("--sglang", metavar="VERSION", help="Take what is there for this version."),
    ] = "",
    break_lock: BreakLock = "",
    lock_wait: LockWait = 0.0,
    as_json: Json = False,
) -> int:
    """Apply a patch to services: all its places or none, for a limited time.

    Processes that run keep what they loaded: give --restart, or restart later.
    """
    links = _links(selectors, everything)
    for link in links[:WARM]:  # the way in takes as long as reading the patch
        link.open_soon()
    from fleetctl.config import places
    from fleetctl.patching import catalog, hosts
    from fleetctl.patching.ready import Ready

    patch = catalog.find(name, site_root())
    given, chosen_rung, seconds = pairs(params), _rung(rung), _seconds(expire)
    end = _at_expiry(at_expiry)
    wish = _wish(why, restart, break_lock, lock_wait, python)
    seen = _may_restart(links, wish, yes, yes_protected, as_json)
    ready = Ready(places.cache() / "patched")

    def work(link: Link) -> dict[str, Any]:
        there = seen.get(id(link)) or hosts.resolve(link.call, link.target, wish)
        found = hosts.push(
            link.call, link.target, patch, wish, seen=there, given=given, rung=chosen_rung,
            expire=seconds, version=sglang, ready=ready, at_expiry=end,
        )  # fmt: skip
        return found | {"active_state": there["active_state"]}

    def tell(link: Link, answer: dict[str, Any]) -> None:
        if as_json:
            _line(link, "fleetctl.patch-push/1", answer)
        elif not _fault(link, answer):
            patch_text.pushed(link.target, answer, restart)

    return _each(links, work, tell)


def _rung(text: str) -> Any:
    from fleetctl.patching.model import Rung

    if not text:
        return None
    if text not in ("overlay", "edit"):
        raise UsageError("wrong-rung", f"{text!r}: overlay or edit is wanted")
    return Rung(text)


def _at_expiry(text: str) -> Any:
    from fleetctl.patching.model import AtExpiry

    if text and text not in ("warn", "revert"):
        raise UsageError("wrong-expiry", f"{text!r}: warn or revert is wanted")
    return AtExpiry(text) if text else None


def _seconds(text: str) -> float | None:
    from fleetctl.patching.schema import duration

    try:
        return duration(text) if text else None
    except ValueError as error:
        raise UsageError("wrong-time", f"--expire {text}: {error}") from error


@app.command()
def status(
    selectors: Selectors = [],  # noqa: B006
    everything: Everything = False,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            parser=at_least(0.0),
            help="Wait that long for every patch to be active.",
        ),
    ] = 0.0,
    as_json: Json = False,
) -> int:
    """Show the patches of services and whether every rank has them; equal hosts on one line.

    Exit 1 when a patch is not active, orphaned or expired.
    """
    from fleetctl.fleet.fold import fold, ranges
    from fleetctl.patching import hosts

    answers: list[tuple[str, tuple[str, ...]]] = []

    def work(link: Link) -> dict[str, Any]:
        deadline = time.monotonic() + wait
        while True:
            found = hosts.status(link.call, link.target)
            bad = [p for p in found if p["state"] != "active"]
            if not bad or time.monotonic() >= deadline:
                break
            time.sleep(min(1.0, max(0.1, deadline - time.monotonic())))
        exit_code = Exit.NEGATIVE if bad or any(p["expired"] for p in found) else Exit.OK
        return {"patches": found, "exit": exit_code}

    def tell(link: Link, answer: dict[str, Any]) -> None:
        if as_json:
            _line(link, "fleetctl.patch-status/1", answer)
        elif not _fault(link, answer):
            answers.append((str(link.target), tuple(patch_text.status_lines(answer["patches"]))))

    code = _each(_links(selectors, everything), work, tell)
    for lines, names in fold(answers):
        show.out(f"{ranges(names)}: {'no patches' if not lines else ''}".rstrip())
        for line in lines:
            show.out(f"  {line}")
    return code


@app.command()
def revert(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[PATCH]... SELECTOR...",
            autocompletion=complete.patches_and_hosts,
            help="The patches to take out (none: all of them), then the services.",
            show_default=False,
        ),
    ] = [],  # noqa: B006
    everything: Everything = False,
    names: Annotated[
        list[str],
        typer.Option("--patch", metavar="PATCH", help="A patch whose folder is gone (repeatable)."),
    ] = [],  # noqa: B006
    leave: Annotated[
        bool,
        typer.Option("--leave", help="Forget edits of files that changed since; leave the files."),
    ] = False,
    restart: Restart = False,
    yes: Yes = False,
    yes_protected: YesProtected = [],  # noqa: B006
    why: Why = "",
    break_lock: BreakLock = "",
    lock_wait: LockWait = 0.0,
    as_json: Json = False,
) -> int:
    """Take patches out: the overlay goes, an edited file gets its exact bytes again.

    Stops and shows both differences where an edited file changed since.
    """
    from fleetctl.patching import catalog, hosts

    known = set(catalog.names(site_root()))
    count = next((n for n, w in enumerate(words) if w not in known), len(words))
    links = _links(words[count:], everything)
    wish = _wish(why, restart, break_lock, lock_wait)
    _may_restart(links, wish, yes, yes_protected, as_json)

    def work(link: Link) -> dict[str, Any]:
        return hosts.revert(link.call, link.target, [*words[:count], *names], wish, leave=leave)

    def tell(link: Link, answer: dict[str, Any]) -> None:
        if as_json:
            _line(link, "fleetctl.patch-revert/1", answer)
        elif not _fault(link, answer):
            patch_text.reverted(link.target, answer)

    return _each(links, work, tell)


@app.command()
def history(
    selectors: Selectors = [],  # noqa: B006
    everything: Everything = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="Lines of each service.")] = 50,
    as_json: Json = False,
) -> int:
    """Show what was pushed and reverted, by whom, and what each patch found out."""
    from fleetctl.patching import hosts

    def work(link: Link) -> dict[str, Any]:
        return {"history": hosts.history(link.call, link.target, limit)}

    def tell(link: Link, answer: dict[str, Any]) -> None:
        if as_json:
            _line(link, "fleetctl.patch-history/1", answer)
        elif not _fault(link, answer):
            for one in answer["history"]:
                said = f": {one['result']}" if one.get("result") else ""
                by = f" by {one['by']}" if one.get("by") else ""
                show.out(
                    f"{one['at']} {link.target} {one['event']} {one.get('name', '')}{by}{said}"
                )

    return _each(_links(selectors, everything), work, tell)
