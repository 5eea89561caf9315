"""Several verbs side by side in one request: one way to the host and back for all of them."""

from __future__ import annotations

from typing import Any

from fleetctl.remote import agent, threads


def run(args: dict[str, Any], session: Any) -> dict[str, Any]:
    """Return verb → result for ``{verbs: {verb: args}}``; the first fault in their order is raised."""
    verbs = args["verbs"]
    work = {v: threads.Work(_call, v, of or {}, session) for v, of in verbs.items()}
    return {verb: one.result() for verb, one in work.items()}


def _call(verb: str, args: dict[str, Any], session: Any) -> dict[str, Any]:
    return agent.verb_of(verb)(args, session)


VERBS = {"run": run}
