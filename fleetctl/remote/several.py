"""Several verbs side by side in one request: one way to the host and back for all of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fleetctl.remote import agent


def run(args: dict[str, Any], session: Any) -> dict[str, Any]:
    """Return verb → result for ``{verbs: {verb: args}}``; the first fault in their order is raised."""
    verbs = args["verbs"]
    with ThreadPoolExecutor(max_workers=len(verbs) or 1) as pool:
        work = {v: pool.submit(agent.verb_of(v), of or {}, session) for v, of in verbs.items()}
        return {verb: one.result() for verb, one in work.items()}


VERBS = {"run": run}
