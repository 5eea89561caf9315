"""Roll back: an earlier revision of each host becomes a new launch, by the road of every deploy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fleetctl.apply import together
from fleetctl.apply.deploy import Tell
from fleetctl.apply.outcome import Outcome
from fleetctl.apply.session import Session
from fleetctl.apply.wish import Wish
from fleetctl.config.secrets import resolve_secrets, within_reach
from fleetctl.errors import FleetError, RefusedError, RemoteError
from fleetctl.fleet.nodes import Nodes
from fleetctl.model.fleet import Target
from fleetctl.model.revision import Revision, choose, profile_from_json
from fleetctl.patching import deploying


def revisions(session: Session, target: Target, *, contents: bool = False) -> list[Revision]:
    """Return the kept revisions of a service, the newest first. Raises FleetError."""
    args = {"service": target.service.name, "contents": contents}
    said = session.call("revisions.list", args)["revisions"]
    try:
        return [Revision.from_json(r) for r in said]
    except (TypeError, ValueError, KeyError) as error:
        raise RemoteError(
            "bad-revision",
            f"a revision there cannot be read: {error}",
            where=str(target),
            hint="see /var/lib/fleetctl/revisions on the host",
        ) from error


def wish_for(session: Session, target: Target, to: int | None, base: Wish, site: Path) -> Wish:
    """Return the wish that brings a revision back, its secrets resolved from their references.

    ``base`` holds what the person allowed. Raises RefusedError ``no-revision`` or ``secret-gone``.
    """
    found = choose(revisions(session, target, contents=True), to)
    if isinstance(found, str):
        raise RefusedError(
            "no-revision", found, where=str(target), hint=f"`fleetctl history {target}` lists them"
        )
    profile, patches = deploying.asked(profile_from_json(found.profile), (), site)
    secrets, _ = within_reach(profile) if base.dry_run else (None, "")
    if not base.dry_run:
        try:
            secrets = resolve_secrets(profile)
        except FleetError as error:
            raise RefusedError(
                "secret-gone",
                f"revision {found.number} needs a secret: {error}",
                where=str(target),
                hint=error.hint or "revisions hold no secrets; make its reference resolve again",
            ) from error
    return replace(
        base,
        profile=profile,
        secrets=secrets,
        patches=patches,
        revision=found,
        overrides=(),  # those of the deploy that failed are not the old launch's
        reason=base.reason or f"rollback to revision {found.number}",
    )


def wishes(
    targets: Sequence[Target], to: int | None, base: Wish, site: Path
) -> tuple[dict[str, Wish], list[tuple[Target, FleetError]]]:
    """Return the wish of each target, and those that have none with the reason."""
    found: dict[str, Wish] = {}
    faults: list[tuple[Target, FleetError]] = []

    def one(target: Target) -> Wish | FleetError:
        try:
            return wish_for(hosts.session(target), target, to, base, site)
        except FleetError as error:
            return error

    with together.crew() as hosts:
        for target, answer in zip(targets, hosts.each(one, targets), strict=True):
            if isinstance(answer, FleetError):
                faults.append((target, answer))
            else:
                found[str(target)] = answer
    return found, faults


def carry_out(
    targets: Sequence[Target],
    found: Mapping[str, Wish],
    tell: Tell,
    confirm: together.Confirm,
    done: Callable[[Outcome], None],
    typed: Callable[[str], bool],
) -> list[Outcome]:
    """Bring the revisions back. Those of a server over several hosts go together, rank by rank.

    Raises RefusedError ``nodes-together`` when some of its hosts are missing.
    """
    count = max((w.profile.nodes for w in found.values()), default=1)
    if count < 2:
        return together.deploy(targets, found, tell, confirm, done, typed)
    ranks = {str(t): int(str(found[str(t)].profile.flags.get("node-rank", -1))) for t in targets}
    if sorted(ranks.values()) != list(range(count)):
        raise RefusedError(
            "nodes-together",
            f"that server runs on {count} hosts, and its ranks {sorted(ranks.values())} would go back",
            hint="name all of its hosts, and one revision of each with --to",
        )
    ordered = sorted(targets, key=lambda t: ranks[str(t)])
    return Nodes(ordered, found, tell, done, confirm).deploy()


def rendered_text(wishes: Mapping[str, Wish], name: Callable[[str], str] = str) -> str:
    """Return which revision each target goes back to, for a question to a person."""
    parts = []
    for target, wish in wishes.items():
        assert wish.revision is not None
        config = wish.revision.config
        parts.append(f"{name(target)} to revision {wish.revision.number} ({config.profile})")
    return ", ".join(parts)
