"""What one host adds to a lint: its own flags, its GPUs, its copy of the model."""

from __future__ import annotations

from typing import Any

from fleetctl.config import flagsets
from fleetctl.config.site import load_site
from fleetctl.engines.sglang.schema import Schema
from fleetctl.errors import UsageError
from fleetctl.lint import ModelFacts
from fleetctl.model.fleet import Profile, Target
from fleetctl.transport import connect
from fleetctl.transport.agent import Agent

MODULES = ("flags", "gpu_probe", "model_folder")


def one_target(selector: str) -> Target:
    """Return the one service that a selector picks; UsageError when it picks more."""
    targets = load_site().select([selector])
    if len(targets) != 1:
        names = ", ".join(str(t) for t in targets[:6])
        raise UsageError("one-host", f"{selector} picks {len(targets)}: {names}", hint="name one")
    return targets[0]


def host_context(agent: Agent, target: Target, profile: Profile) -> dict[str, Any]:
    """Return ``lint_profile``'s keyword arguments that the host answers."""
    wanted = list(target.service.gpus) if target.service.gpus is not None else None
    seen = agent.call("gpu_probe.read", {})
    gpus = [g for g in seen["gpus"] if wanted is None or g["index"] in wanted]
    context: dict[str, Any] = {"gpus": len(gpus) or len(wanted or ()) or target.host.gpus or None}
    if gpus:
        context["gpu_memory"] = min(g["memory_total"] for g in gpus) or None
        context["multicast"] = seen["multicast"]
    if profile.model.startswith("/"):
        facts = agent.call("model_folder.read", {"path": profile.model})
        if facts["config"] is not None:
            context["model"] = ModelFacts(facts["config"], facts["weights"], profile.model)
    return context


class HostLint:
    """Asks one host, once a profile."""

    def __init__(self, selector: str) -> None:
        self.target = one_target(selector)

    def __call__(self, profile: Profile) -> tuple[Schema, dict[str, Any]]:
        """Return the schema of the host's SGLang and the facts for a lint of this profile."""
        connection = connect(self.target.host, ask=True)
        try:
            with Agent(connection, MODULES) as agent:
                schema = flagsets.of_host(agent, profile.python, profile.env)
                return schema, host_context(agent, self.target, profile)
        finally:
            connection.close()


def host_schema(target: Target, python: str) -> Schema:
    """Return the flags of what an interpreter of a host would import."""
    connection = connect(target.host, ask=True)
    try:
        with Agent(connection, ("flags",)) as agent:
            return flagsets.of_host(agent, python)
    finally:
        connection.close()
