"""The doctor's gate of a deploy: what would only show after minutes of loading, or never be told.

Disks, rights, systemd and the interpreter are looked at by the plan itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetctl.config import expectations, places
from fleetctl.doctor import Finding, Look, critical
from fleetctl.doctor.expect import parse
from fleetctl.errors import FleetError, ManyErrors, RefusedError
from fleetctl.model.facts import HostFacts
from fleetctl.model.fleet import Profile, Target

GROUPS = ("names", "memory", "model", "gpu")


def request(target: Target, profile: Profile) -> dict[str, Any]:
    """Return what ``doctor.look`` is asked for."""
    return {
        "service": target.service.name,
        "unit": target.service.unit,
        "python": profile.python,
        "model": profile.model,
        "only": list(GROUPS),
    }


def check(
    answer: Mapping[str, Any],
    target: Target,
    profile: Profile,
    facts: HostFacts,
    skip: frozenset[str],
) -> None:
    """Judge what ``doctor.look`` answered. Raises RefusedError or ManyErrors for what stops a launch."""
    value, where = expectations.read(places.site_folder())
    expect = parse(value, target.host.name, where)
    said = dict(answer)
    python = facts.interpreter
    packages = {"sglang": python.sglang, "torch": python.torch}
    said["python"] = {"path": python.path, "exists": True, "packages": packages}
    said["kernel"] = {"release": facts.kernel}
    look = Look(said, expect, gpus=target.host.gpus, model=profile.model)
    wrong = [_fault(f, str(target)) for f in critical(look, skip=skip)]
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        raise ManyErrors(wrong)


def _fault(finding: Finding, where: str) -> FleetError:
    fix = f"{finding.fix}; to go on all the same: " if finding.fix else "to go on all the same: "
    return RefusedError(
        finding.id,
        finding.message,
        where=where,
        hint=f"{fix}--no-lint={finding.id}",
        context=(finding.evidence,) if finding.evidence else (),
    )
