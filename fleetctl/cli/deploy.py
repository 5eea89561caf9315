"""``fleetctl deploy``: bring a profile to hosts and watch it start."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli import complete, options, overrides, show
from fleetctl.cli.app import new_app
from fleetctl.cli.selectors import Everything, chosen, patterns_of
from fleetctl.cli.spans import at_least
from fleetctl.errors import Exit, FleetError, UsageError

if TYPE_CHECKING:
    from fleetctl.apply.deploy import Deployment
    from fleetctl.model.fleet import Target

app = new_app()


def _known(patterns: Sequence[str]) -> list[Target]:
    """Return the services as the inventory was read last; faults are left to who reads it whole."""
    from fleetctl.config import snapshot
    from fleetctl.config.select import select

    with contextlib.suppress(FleetError):
        return select(snapshot.hosts(), patterns)
    return []


def given(sets: Sequence[str] | None, unsets: Sequence[str] | None) -> tuple[str, ...]:
    """Return the options of a launch's changes, to be typed again."""
    pairs = [("--unset", one) for one in unsets or ()] + [("--set", one) for one in sets or ()]
    return tuple(word for pair in pairs for word in pair)


@app.command()
def deploy(
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            "-p",
            help="What to run.",
            show_default=False,
            autocompletion=complete.profiles,
        ),
    ],
    hosts: options.Hosts = [],  # noqa: B006  Typer copies it
    everything: Everything = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FLAG=VALUE", help="Change a flag for this launch."),
    ] = None,
    unset: options.Unset = None,
    dry_run: options.DryRun = False,
    diff: options.Diff = False,
    yes: options.Yes = False,
    yes_protected: options.YesProtected = None,
    as_json: options.JsonLines = False,
    reason: options.Reason = "",
    request: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Send this JSON body, or list of them, after ready, and watch through it.",
        ),
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not watch the start.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Restart also what is unchanged and active.")
    ] = False,
    timeout: options.Timeout = None,
    stall: options.Stall = None,
    no_lint: options.NoLint = None,
    keep_patches: options.KeepPatches = False,
    patch: Annotated[
        list[str] | None,
        typer.Option(
            "--patch",
            metavar="NAME",
            help="Push this patch before the start (repeatable).",
            autocompletion=complete.patches,
        ),
    ] = None,
    stop_others: Annotated[
        bool, typer.Option("--stop-others", help="Stop what holds the GPUs or the port.")
    ] = False,
    share_gpus: Annotated[
        bool, typer.Option("--share-gpus", help="Leave what else holds the GPUs there.")
    ] = False,
    take_over: options.TakeOver = False,
    batch: Annotated[
        str | None,
        typer.Option(
            metavar="N|N%", help="Roll: so many hosts at once; the first goes alone, as a canary."
        ),
    ] = None,
    max_fail: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="Go on rolling while no more than N hosts failed."),
    ] = 0,
    pause: Annotated[
        float, typer.Option(metavar="SECONDS", parser=at_least(0.0), help="Between two batches.")
    ] = 0.0,
    soak: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", parser=at_least(0.0), help="The canary must stay ready that long."
        ),
    ] = 0.0,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with a rolling change: a host that has it was the canary."
        ),
    ] = False,
    drain_cmd: Annotated[
        str, typer.Option(metavar="COMMAND", help="Run here before each restart (HOST, PORT …).")
    ] = "",
    undrain_cmd: Annotated[
        str, typer.Option(metavar="COMMAND", help="Run here after it, however it ended (STATE).")
    ] = "",
    rollback_on_failure: Annotated[
        bool,
        typer.Option(
            "--rollback-on-failure", help="Take a host that failed back to what was ready."
        ),
    ] = False,
    lock_wait: options.LockWait = 0.0,
    break_lock: options.BreakLock = "",
) -> int:
    """Bring a profile to hosts, restart the service, and watch it until it is ready or has failed.

    Exit 0: every host is ready, or unchanged and active. 1: not ready. 4: unreachable. 5: locked.
    6: the host failed. 7: refused. 130: interrupted.

    With --batch the hosts go one batch after the other: the next healthy server is not stopped before
    the previous one is ready, and a failure stops the rest (docs/howto/rolling.md).
    """
    from fleetctl.apply.crew import crew

    with crew() as hands:
        # A login takes as long as loading and reading what follows.
        hands.reach(_known(patterns_of(hosts, everything)))
        from fleetctl.config.site import load_site
        from fleetctl.fleet import rollout

        site = load_site()
        targets = chosen(site, hosts, everything)
        changed = site.profile(profile, set_ or (), unset or ())
        rolls = batch is not None or rollback_on_failure
        if any((max_fail, pause, soak, resume, drain_cmd, undrain_cmd)) and batch is None:
            raise UsageError("no-batch", "that is for a rolling deploy", hint="give --batch 1")
        if rolls and changed.nodes > 1:
            raise UsageError(
                "nodes-together",
                f"the {changed.nodes} hosts of {changed.name} are one server and start together",
                hint="leave --batch and --rollback-on-failure out; several such servers: "
                "one command each",
            )
        if rolls and no_wait:
            raise UsageError("no-wait", "a rolling deploy goes by what became ready")
        size = rollout.batch_size(batch, len(targets)) if batch else len(targets)
        limits = rollout.Limits(size, max_fail, pause, soak, canary=batch is not None)
        from fleetctl.apply import outcome, together
        from fleetctl.apply.wish import Wish, read_requests
        from fleetctl.cli.deploy_view import View
        from fleetctl.config.secrets import resolve_secrets, within_reach
        from fleetctl.patching import deploying

        wanted, patches = deploying.asked(changed, patch or (), site.root)
        guards = {
            "--keep-patches": keep_patches,
            "--stop-others": stop_others,
            "--share-gpus": share_gpus,
            "--take-over": take_over,
        }
        allowed = [name for name, given in guards.items() if given]
        allowed += [f"--yes-protected={host}" for host in yes_protected or ()]
        secrets, why = within_reach(wanted) if dry_run else (resolve_secrets(wanted), "")
        if why:
            show.note(f"secrets are out of reach here: {why}")
        wish = Wish(
            profile=wanted,
            templates=site.templates(),
            secrets=secrets,
            allow=frozenset(allowed),
            restart=restart,
            no_lint=overrides.known(no_lint),
            overrides=given(set_, unset),
            reason=reason,
            break_lock=break_lock,
            lock_wait=lock_wait,
            requests=read_requests(request) if request else (),
            wait=not no_wait,
            timeout=timeout,
            stall=stall,
            dry_run=dry_run,
            patches=patches,
        )

        view = View(as_json=as_json, diff=diff, dry_run=dry_run)
        typed = (lambda _: False) if as_json else show.type_name
        if batch is not None and dry_run:
            order = ", ".join(str(t) for t in targets)
            show.note(f"rolling, {limits.batch} at once, the first alone: {order}")
        if rolls and not dry_run:
            from fleetctl.fleet import hooks, rolling

            road = rolling.Road(
                limits,
                hooks.Hooks(drain_cmd, undrain_cmd),
                resume,
                rollback_on_failure,
                site.root,
            )

            def sure(names: Sequence[str]) -> bool:
                text = f"{wanted.name} on {len(names)} hosts, {limits.batch} at once"
                return show.confirm(f"Roll {text}: {', '.join(names)}?", yes=yes, as_json=as_json)

            roller = rolling.Roller(targets, wish, road, view.tell, view.done, sure, typed, hands)
            outcomes, report = roller.run()
            view.tell(report)
            return int(rolling.exit_code(outcomes, report))

        def confirm(ways: Sequence[Deployment]) -> bool:
            names = ", ".join(str(way.target) for way in ways)
            return show.confirm(f"Restart what serves on {names}?", yes=yes, as_json=as_json)

        if wanted.nodes > 1:
            from dataclasses import replace

            from fleetctl.fleet.nodes import Nodes
            from fleetctl.model import nodes

            own = nodes.profiles(wanted, targets)
            wishes = {name: replace(wish, profile=one) for name, one in own.items()}
            ends = Nodes(targets, wishes, view.tell, view.done, confirm).deploy(hands)
        else:
            ends = together.deploy(targets, wish, view.tell, confirm, view.done, typed, hands)
        return int(outcome.exit_code(ends) if ends else Exit.OK)
