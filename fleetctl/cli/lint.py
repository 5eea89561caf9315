"""``fleetctl lint``: what is wrong with a profile, in milliseconds and before anything waits for it."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli import complete, options, show
from fleetctl.cli.app import new_app
from fleetctl.errors import ConfigError, Exit, FleetError, ManyErrors

if TYPE_CHECKING:
    from fleetctl.engines.sglang.schema import Schema
    from fleetctl.lint import Finding
    from fleetctl.model.fleet import Profile

app = new_app()
COLOURS = {"error": "31", "warning": "33", "info": "36"}


@app.command(
    epilog="Exit code: 0 no errors, 1 errors found, 3 a file cannot be read. A finding is overridden by "
    "--no-lint=ID, or by `# fleetctl: allow ID` in the profile, on the line or the line above."
)
def lint(
    profiles: Annotated[
        list[str],
        typer.Argument(metavar="PROFILE|FILE...", autocompletion=complete.profiles),
    ],
    sglang: Annotated[
        str,
        typer.Option(metavar="VERSION|FILE", help="Against this release, wheel, tree or schema file."),
    ] = "",
    host: Annotated[
        str,
        typer.Option(metavar="HOST[/SERVICE]", autocompletion=complete.hosts,
                     help="Against what this host has installed, its GPUs and its model folder."),
    ] = "",
    model_dir: Annotated[
        str, typer.Option(metavar="DIR", help="A copy of the model's config.json and weights here.")
    ] = "",
    gpus: Annotated[int, typer.Option(min=0, help="GPUs that the service has on one host.")] = 0,
    gpu_memory: Annotated[
        float, typer.Option(metavar="GIB", min=0, help="Memory of one GPU, for the estimate.")
    ] = 0.0,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings are errors.")] = False,
    no_lint: options.NoLint = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> int:  # fmt: skip
    """Check profiles against the flags of an SGLang: names, values, combinations, the model's sizes."""
    from fleetctl.cli import overrides
    from fleetctl.config import lintable
    from fleetctl.lint import allowances, blocking, settle, void

    overridden = overrides.known(no_lint)
    unread: list[FleetError] = []
    found: list[Finding] = []
    read: list[Profile] = []
    versions: list[str] = []
    context: dict[str, Any] = {}
    at_host = _ask(host) if host else None
    for text in profiles:
        hidden = False
        try:
            profile = lintable.profile(text)
        except (ConfigError, ManyErrors) as error:
            faults = _faults(error)
            if any(e.reference in ("unreadable", "no-site") for e in faults):
                unread.append(error)
                continue
            found += _as_findings(faults)
            rest = lintable.rough(text)
            if rest is None:
                continue
            profile, hidden = rest, any(map(_hides_model, faults))
        read.append(profile)
        if at_host is not None:
            schema, context = at_host(profile)
        else:
            schema, context = _schema(profile, sglang), _here(profile, model_dir)
        versions.append(schema.version or schema.digest)
        if gpus:
            context["gpus"] = gpus
        if gpu_memory:
            context["gpu_memory"] = int(gpu_memory * 1024**3)
        said = _lint(profile, schema, context)
        found += [f for f in said if not (hidden and f.id == "missing-model")]
    if unread and not (read or found):
        raise unread[0]
    texts = lintable.texts(read)
    allowed = {path: allowances(body) for path, body in texts.items()}
    once = dict.fromkeys([*found, *void(texts)])  # profiles may share a parent
    left = settle(once, no_lint=overridden, allowed=allowed, strict=strict)
    wrong = blocking(left)
    if as_json:
        show.json_line({
            "schema": "fleetctl.lint/1", "sglang": sorted(set(versions)),
            "findings": [f.to_json() for f in left], "ok": not (wrong or unread),
        })  # fmt: skip
    else:
        _print(left, sorted(set(versions)))
    if unread:
        raise unread[0] if len(unread) == 1 else ManyErrors(unread)
    return int(Exit.NEGATIVE) if wrong else int(Exit.OK)


def remarks(profile: Profile, sglang: str, no_lint: Collection[str]) -> bool:
    """Note the findings about a profile on standard error; return whether there is no error.

    Nothing is noted for ``schema: installed`` without a version: only the host knows its flags.
    """
    from fleetctl.cli import overrides
    from fleetctl.config import flagsets, lintable
    from fleetctl.lint import allowances, blocking, settle, void

    overridden = overrides.known(no_lint)
    if profile.schema == flagsets.INSTALLED and not sglang:
        return True
    texts = lintable.texts([profile])
    allowed = {p: allowances(t) for p, t in texts.items()}
    found = [*_lint(profile, _schema(profile, sglang), _here(profile, "")), *void(texts)]
    left = settle(found, no_lint=overridden, allowed=allowed)
    for finding in left:
        if finding.severity != "info":
            show.note(str(finding) + (f" ({finding.hint})" if finding.hint else ""))
    return not blocking(left)


def _lint(profile: Profile, schema: Schema, context: dict[str, Any]) -> list[Finding]:
    from fleetctl.lint import lint_profile

    return lint_profile(profile, schema, **context)


def _schema(profile: Profile, wanted: str) -> Schema:
    """Return the schema that was asked for, the profile's own, else the newest that is shipped."""
    from fleetctl.config import flagsets

    if wanted:
        return flagsets.named(wanted, _fetch)
    if profile.schema == flagsets.INSTALLED:
        schema = flagsets.newest()
        show.note(
            f"{profile.name}: against sglang {schema.version}, the newest known here; "
            "--host or --sglang says which it will be"
        )
        return schema
    origin = profile.origins.get("sglang.schema")
    beside = Path(origin.where.rsplit(":", 2)[0]).parent.parent if origin else Path()
    local = beside / profile.schema
    try:
        return flagsets.named(str(local) if local.is_file() else profile.schema, _fetch)
    except FleetError as error:
        if origin and not error.where:
            error.where = origin.where
        raise


def _fetch(version: str) -> Path:
    from fleetctl.patching import wheels

    cached = wheels.cached(version)
    if cached is not None:
        return cached
    show.note(f"fetching the wheel of sglang {version} (2 to 40 MB, once)")
    return wheels.fetch(version)


def _here(profile: Profile, model_dir: str) -> dict[str, Any]:
    """Return the model's facts when its folder is on this computer."""
    folder = Path(model_dir or profile.model or "/nowhere")
    if not folder.is_dir():
        if model_dir:
            raise ConfigError("no-model-folder", "no such folder", where=model_dir)
        return {}
    from fleetctl.lint import ModelFacts
    from fleetctl.remote import model_folder

    facts = model_folder.read({"path": str(folder)})
    if facts["config"] is None:
        if model_dir:
            raise ConfigError(
                "no-model-config", "no config.json here that can be read", where=model_dir
            )
        return {}
    return {"model": ModelFacts(facts["config"], facts["weights"], str(folder))}


def _ask(selector: str) -> Any:
    """Return what asks one host for a profile's schema and facts."""
    from fleetctl.fleet.hostlint import HostLint

    return HostLint(selector)


def _faults(error: FleetError) -> list[FleetError]:
    return list(error.errors) if isinstance(error, ManyErrors) else [error]


def _as_findings(faults: list[FleetError]) -> list[Finding]:
    """Return the faults of a profile's files as findings that nothing overrides."""
    from fleetctl.lint import Finding, Severity

    return [
        Finding(e.reference, Severity.ERROR, e.message, where=e.where, hint=e.hint, fault=True)
        for e in faults
    ]


def _hides_model(fault: FleetError) -> bool:
    """Return whether the profile may have a model after all, behind this fault."""
    near = fault.hint if fault.hint.startswith("did you mean") else ""
    return (
        fault.reference in ("unknown-profile", "extends-cycle")
        or "model" in f"{fault.message} {near}"
    )


def _print(findings: list[Finding], versions: list[str]) -> None:
    for finding in findings:
        kind = str(finding.severity)
        mark = f"\x1b[{COLOURS[kind]}m{kind}\x1b[0m" if show.colour(sys.stdout) else kind
        place = f"{show.safe_line(finding.where)}: " if finding.where else ""
        print(f"{mark}[{finding.id}]: {place}{show.safe_line(finding.message)}")
        if finding.hint:
            print(f"  hint: {show.safe_line(finding.hint)}")
    counts = {k: sum(f.severity == k for f in findings) for k in COLOURS}
    told = ", ".join(f"{n} {k}{'s' * (n != 1)}" for k, n in counts.items() if n) or "nothing to say"
    sys.stdout.flush()
    show.note(f"{told} (sglang {', '.join(versions) or '?'})")
    ids = sorted({f.id for f in findings if f.severity == "error" and not f.fault})
    if ids:
        show.note(f"to go on all the same: {' '.join(f'--no-lint={i}' for i in ids)}")
