"""From a wish to a plan for one host: facts, render, checks. Nothing on the host is changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fleetctl.apply import collector, examining, linting
from fleetctl.apply.session import Session
from fleetctl.apply.wish import Wish
from fleetctl.errors import RemoteError
from fleetctl.lint import Finding
from fleetctl.model.facts import FactsRequest, HostFacts
from fleetctl.model.fleet import Target
from fleetctl.model.launch import Atom, diff_configs
from fleetctl.model.plan import Plan
from fleetctl.plan import plan_deploy
from fleetctl.render import Rendered, render
from fleetctl.render.restore import restore

FACTS_SECONDS = 60.0
FOLDER = "model_folder.read"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan with what it was made from."""

    target: Target
    facts: HostFacts
    rendered: Rendered
    plan: Plan
    since_ready: tuple[Atom, ...] | None = None  # None: nothing was ever ready there
    last_ready_profile: str = ""
    findings: tuple[Finding, ...] = field(default=())


def gather(
    session: Session, target: Target, request: FactsRequest
) -> tuple[HostFacts, dict[str, Any]]:
    """Return the host's facts, and the raw answer."""
    raw = session.call("facts.gather", request.to_json(), timeout=FACTS_SECONDS)
    return facts_of(target, raw), raw


def facts_of(target: Target, raw: dict[str, Any]) -> HostFacts:
    """Return the facts that an answer of the host holds. Raises RemoteError ``bad-facts``."""
    try:
        return HostFacts.from_json({"host": target.host.name} | raw)
    except (TypeError, ValueError, KeyError) as error:
        raise RemoteError(
            "bad-facts",
            f"what the host says of itself cannot be read: {error}",
            where=target.host.name,
            hint="a record in /var/lib/fleetctl/launches may be damaged or of a newer fleetctl",
        ) from error


def request_for(first: Rendered) -> FactsRequest:
    """Return what to look at for a launch."""
    secret = tuple(f.path for f in first.files if f.secret)
    plain = (collector.PATH, *(f.path for f in first.files if not f.secret))
    service = first.target.service
    return FactsRequest(
        service=service.name,
        unit=service.unit,
        python=first.profile.python,
        files=plain,
        secret_files=(*secret, *first.obsolete),
        ports=(service.port,),
    )


def prepare(session: Session, target: Target, wish: Wish) -> Prepared:
    """Look at the host and make the plan. Raises ConfigError, UnreachableError, RemoteError."""
    session.open_soon()  # the way in takes as long as the first rendering
    first = render(wish.profile, target, templates=wish.templates)
    said = _look(session, target, wish, first)
    facts = facts_of(target, said["facts.gather"])
    findings: list[Finding] = []
    if facts.interpreter.sglang is not None:
        # One that comes back was let through when it came first, maybe by a remark in its profile.
        if wish.revision is None and not wish.again:
            findings = linting.check(
                session, target, wish.profile, facts, said.get(FOLDER), wish.no_lint
            )
        examining.check(said["doctor.look"], target, wish.profile, facts, wish.no_lint)
    rendered = render(
        wish.profile,
        target,
        version=facts.interpreter.sglang,
        secrets=wish.secrets,
        versions=versions(facts),
        systemd=facts.systemd,
        templates=wish.templates,
        patches=facts.patches | _patches(wish, facts, target),
    )
    if wish.revision is not None:
        rendered = restore(rendered, wish.revision)
    plan = plan_deploy(
        rendered,
        facts,
        allow=wish.allow,
        support=collector.support_files(),
        restart=wish.restart,
    )
    ready = facts.last_ready
    return Prepared(
        target=target,
        facts=facts,
        rendered=rendered,
        plan=plan,
        since_ready=None if ready is None else diff_configs(ready.config, rendered.config),
        last_ready_profile="" if ready is None else ready.config.profile,
        findings=tuple(findings),
    )


def _look(session: Session, target: Target, wish: Wish, first: Rendered) -> dict[str, Any]:
    """Return all that the checks want to know of the host, by verb: one request for the three looks."""
    verbs = {
        "facts.gather": request_for(first).to_json(),
        "doctor.look": examining.request(target, wish.profile),
    }
    if wish.profile.model.startswith("/"):
        verbs[FOLDER] = {"path": wish.profile.model}
    return session.call("several.run", {"verbs": verbs}, timeout=FACTS_SECONDS)


def _patches(wish: Wish, facts: HostFacts, target: Target) -> dict[str, str]:
    """Return the digests that the patches of the profile have once they are there."""
    if not wish.patches:
        return {}
    from fleetctl.patching import deploying

    return deploying.digests(wish.patches, facts.interpreter.sglang, str(target))


def versions(facts: HostFacts) -> dict[str, str]:
    """Return the versions that a launch configuration names."""
    found = {
        "sglang": facts.interpreter.sglang,
        "torch": facts.interpreter.torch,
        "python": facts.interpreter.version,
        "driver": facts.driver,
    }
    return {k: v for k, v in found.items() if v}
