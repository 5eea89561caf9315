"""From a profile to what a host is given."""

from fleetctl.render.launch import Rendered, render

__all__ = ["Rendered", "render"]
