"""``fleetctl doctor``: hosts looked over before the first restart. Nothing is changed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli import complete, show
from fleetctl.cli.app import new_app
from fleetctl.cli.selectors import Everything, Selectors, chosen
from fleetctl.errors import Exit

if TYPE_CHECKING:
    from fleetctl.fleet.doctor import Visit

app = new_app()
COLOURS = {"error": "31", "warning": "33", "info": "36"}


@app.command(
    epilog="Exit code: 0 nothing but remarks, 1 errors or warnings, 4 a host cannot be reached. "
    "What a site expects (gpus, driver, shm …) stands in doctor.yaml beside hosts.yaml; "
    "docs/howto/doctor.md lists the checks."
)
def doctor(
    selectors: Selectors = [],  # noqa: B006  Typer copies it
    everything: Everything = False,
    profile: Annotated[
        str,
        typer.Option("--profile", "-p", autocompletion=complete.profiles,
                     help="Look at its interpreter and model [those of the unit and the last launch]."),
    ] = "",
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="ID", help="Only these findings.")
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option("--skip", metavar="ID", help="Not these findings.")
    ] = None,
    facts: Annotated[bool, typer.Option("--facts", help="With --json: all that the host said.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON line a host, as they answer.")] = False,
) -> int:  # fmt: skip
    """Look hosts over: system, GPUs, disks, versions, the deployed unit, the model."""
    from fleetctl.config.site import load_site
    from fleetctl.fleet.doctor import visit
    from fleetctl.fleet.fanout import common_exit

    site = load_site()
    targets = chosen(site, selectors, everything)
    launch = site.profile(profile) if profile else None
    visits: list[Visit] = []
    for one in visit(targets, site.root, profile=launch, only=only or (), skip=skip or ()):
        visits.append(one)
        if as_json:
            show.json_line(one.to_json(facts=facts))
    if not as_json:
        _print(visits)
    return common_exit(_code(v) for v in visits)


def _code(visit: Visit) -> int:
    if visit.error is not None:
        return int(visit.error.exit_code)
    return int(Exit.OK if visit.ok else Exit.NEGATIVE)


def _print(visits: list[Visit]) -> None:
    """Print hosts with the same findings once, the sound ones first."""
    from fleetctl.fleet.fold import fold, ranges

    answered = [v for v in visits if v.error is None]
    by_host = {v.host: v for v in answered}
    groups = fold((v.host, v.findings) for v in sorted(answered, key=lambda v: v.host))
    for findings, hosts in sorted(groups, key=lambda g: len(g[0])):
        slowest = max(by_host[h].seconds for h in hosts)
        counts = {k: sum(f.severity == k for f in findings) for k in COLOURS}
        told = ", ".join(f"{n} {k}{'s' * (n != 1)}" for k, n in counts.items() if n)
        remarks = "".join(f", {r}" for r in sorted({r for h in hosts for r in by_host[h].remarks}))
        show.out(f"{ranges(hosts)}: {told or 'nothing found'}{remarks} ({slowest:.1f} s)")
        for finding in findings:
            kind = str(finding.severity)
            mark = f"\x1b[{COLOURS[kind]}m{kind}\x1b[0m" if show.colour(sys.stdout) else kind
            print(f"  {mark}[{finding.id}]: {show.safe_line(finding.message)}")
            if finding.evidence:
                print(f"    seen: {show.safe_line(finding.evidence)}")
            if finding.fix:
                print(f"    fix:  {show.safe_line(finding.fix)}")
    sys.stdout.flush()
    for visit in visits:
        if visit.error is not None:
            show.fault(visit.error)
