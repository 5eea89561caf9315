"""How every command says which hosts it means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli import complete
from fleetctl.errors import UsageError

if TYPE_CHECKING:
    from fleetctl.config.site import Site
    from fleetctl.model.fleet import Target


def argument(metavar: str) -> Any:
    """Return the argument that names hosts, under the name that a command has for them."""
    return typer.Argument(
        metavar=metavar,
        autocompletion=complete.hosts,
        help="HOST, HOST/SERVICE, a glob, a range as in b300-[01-04], or @GROUP.",
        show_default=False,
    )


Selectors = Annotated[list[str], argument("[SELECTOR]...")]
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
