"""The lint gate of a deploy: against the flags of the SGLang that the host has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetctl.apply.session import Session
from fleetctl.config import flagsets, lintable
from fleetctl.engines.sglang import schema as schemas
from fleetctl.engines.sglang.schema import Schema
from fleetctl.errors import ConfigError, FleetError, ManyErrors
from fleetctl.lint import Finding, ModelFacts, allowances, blocking, lint_profile, settle, void
from fleetctl.model.facts import HostFacts
from fleetctl.model.fleet import Profile, Target


def check(
    session: Session,
    target: Target,
    profile: Profile,
    facts: HostFacts,
    folder: Mapping[str, Any] | None,
    no_lint: frozenset[str] = frozenset(),
) -> list[Finding]:
    """Return the findings that do not stop the launch. Raises ConfigError or ManyErrors for those that do.

    ``folder`` is what ``model_folder.read`` says of the model, None where it has none on the host.
    A host that says it has a release is believed as long as nothing is wrong; only then are its
    sources read (0.3 s there), for a fork may carry the number of the release that it began from.
    """
    context = _context(target, profile, facts, folder)
    schema = _release(profile, facts)
    found: list[Finding] = []
    if schema is not None:
        found = _left(profile, schema, context, no_lint)
    if profile.schema == flagsets.INSTALLED and (schema is None or blocking(found)):
        own = _of_host(session, profile)
        if own is not None:
            found = _left(profile, own, context, no_lint)
    wrong = [_fault(f) for f in blocking(found)]
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        raise ManyErrors(list[FleetError](wrong))
    return found


def _release(profile: Profile, facts: HostFacts) -> Schema | None:
    if profile.schema != flagsets.INSTALLED:
        return flagsets.named(profile.schema)
    version = facts.interpreter.sglang
    return schemas.load(version) if version in schemas.shipped() else None


def _of_host(session: Session, profile: Profile) -> Schema | None:
    """Return the schema of what is installed there, None where its sources cannot be read."""
    try:
        return flagsets.of_host(session, profile.python, profile.env)
    except FleetError as error:
        if error.reference in ("no-sglang", "no-python", "unknown-flag-layout"):
            return None
        raise


def _left(
    profile: Profile, schema: Schema, context: dict[str, Any], no_lint: frozenset[str]
) -> list[Finding]:
    texts = lintable.texts([profile])
    allowed = {path: allowances(text) for path, text in texts.items()}
    found = [*lint_profile(profile, schema, **context), *void(texts)]
    return settle(found, no_lint=no_lint, allowed=allowed)


def _context(
    target: Target, profile: Profile, facts: HostFacts, folder: Mapping[str, Any] | None
) -> dict[str, Any]:
    wanted = target.service.gpus
    gpus = [g for g in facts.gpus if wanted is None or g.index in wanted]
    context: dict[str, Any] = {"gpus": len(gpus) or len(wanted or ()) or target.host.gpus or None}
    if gpus:
        context["gpu_memory"] = min(g.memory_total for g in gpus) or None
    if folder is not None and folder["config"] is not None:
        context["model"] = ModelFacts(folder["config"], folder["weights"], profile.model)
    return context


def _fault(finding: Finding) -> ConfigError:
    hint = f"{finding.hint}; to go on all the same: " if finding.hint else "to go on all the same: "
    return ConfigError(
        finding.id, finding.message, where=finding.where, hint=f"{hint}--no-lint={finding.id}"
    )
