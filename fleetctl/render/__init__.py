"""From a profile to what a host is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetctl.render.launch import Rendered, compare, render

__all__ = ["Rendered", "compare", "render"]


def __getattr__(name: str) -> Any:
    """Import the renderer (Jinja, pydantic) when it is used: lint wants its argument words only."""
    if name not in __all__:
        raise AttributeError(name)
    from fleetctl.render import launch

    return getattr(launch, name)
