"""How every command says which hosts it means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli import complete
from fleetctl.errors import UsageError

if TYPE_CHECKING:
    from fleetctl.config.site import Site
    from fleetctl.model.fleet import Target

Selectors = Annotated[
    list[str],
    typer.Argument(
        metavar="[SELECTOR]...",
        autocompletion=complete.hosts,
        help="HOST, HOST/SERVICE, a glob, a range as in b300-[01-04], or @GROUP.",
        show_default=False,
    ),
]
Everything = Annotated[bool, typer.Option("--all", help="Every service of every host.")]
Everywhere = Annotated[bool, typer.Option("--all", help="Every host of the inventory.")]


def chosen(site: Site, selectors: list[str], everything: bool) -> list[Target]:
    """Return the targets; UsageError for none, and for names beside --all."""
    return site.select(patterns_of(selectors, everything))


def patterns_of(selectors: list[str], everything: bool) -> list[str]:
    """Return the patterns to select by; UsageError for names beside --all."""
    if everything and selectors:
        raise UsageError("all-and-names", "--all and names together", hint="give one of the two")
    return ["--all"] if everything else selectors
