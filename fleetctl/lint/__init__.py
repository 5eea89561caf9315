"""Checks a profile before anything waits for it: pure, over a flag schema, in milliseconds."""

from __future__ import annotations

from fleetctl.engines.sglang.schema import Schema
from fleetctl.lint import conflicts, flags, modelsize, variables
from fleetctl.lint.finding import Finding, Severity, blocking, settle
from fleetctl.lint.modelsize import ModelFacts
from fleetctl.lint.remarks import allowances, void
from fleetctl.lint.words import words_of
from fleetctl.model.fleet import Profile
from fleetctl.render import in_the_open

__all__ = [
    "Finding",
    "ModelFacts",
    "Severity",
    "allowances",
    "blocking",
    "lint_profile",
    "settle",
    "void",
]


def lint_profile(
    profile: Profile,
    schema: Schema,
    *,
    gpus: int | None = None,
    model: ModelFacts | None = None,
    gpu_memory: int | None = None,
    multicast: bool | None = None,
) -> list[Finding]:
    """Return every finding about a profile, unsettled (see ``settle``).

    ``gpus``: how many the service has on one host; ``model``: its folder's config.json and weights;
    ``gpu_memory``: bytes of its smallest GPU; ``multicast``: whether the host's driver offers NVLink
    multicast. What is None is not checked.
    """
    words = words_of(profile, schema)
    found = [*_model(profile, schema), *_secrets(profile)]
    found += [*flags.check(words), *variables.check(words)]
    found += conflicts.check(words, gpus=gpus, multicast=multicast)
    if model is not None:
        found += modelsize.check(words, model, gpu_memory=gpu_memory)
    return found


def _model(profile: Profile, schema: Schema) -> list[Finding]:
    if profile.model:
        return []
    origin = profile.origins.get("name") or next(iter(profile.origins.values()), None)
    where = f"{origin.where.rsplit(':', 2)[0]}:1:1" if origin and ":" in origin.where else ""
    message = f"profile {profile.name} names no model; sglang {schema.version} wants --model-path"
    return [
        Finding(
            "missing-model", Severity.ERROR, message, "--model-path", where, "add `model: /path`"
        )
    ]


def _secrets(profile: Profile) -> list[Finding]:
    return [
        Finding(
            "secret-in-the-open",
            Severity.ERROR,
            e.message,
            f"--{name}",
            e.where,
            e.hint,
            fault=True,
        )
        for name, e in in_the_open.faults(profile.flags, profile.origins)
    ]
