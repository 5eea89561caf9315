"""What proves that a given SGLang is ready. Pure; read from the releases 0.4.0 to 0.5.23.

``/v1/models`` and an open port prove nothing: they answer while the scheduler is still starting or hangs.
SGLang's own ready line proves as much as a deep check: it is printed once a request through every DP
rank was answered with 200 (``_wait_and_warmup``). Not so without that request, and not where prefill
and decode are apart: there the line is printed although the request failed. ``warms_up`` of
``fleetctl.engines.sglang.warmup`` tells from the arguments.
"""

from __future__ import annotations

import re
from typing import Any

DEEP_SECONDS = 25.0  # a deep check takes 1 s when well and up to 20 s when not
QUICK_SECONDS = 5.0

_RELEASE = re.compile(r"^v?(\d+)\.(\d+)(?:\.(\d+))?")


def release(version: str | None) -> tuple[int, int, int] | None:
    """Return (major, minor, patch) of a version, or None when it is not known."""
    match = _RELEASE.match(version or "")
    if match is None:
        return None
    return (int(match.group(1)), int(match.group(2)), int(match.group(3) or 0))


class Probe:
    """What to ask, in order; every answer must be 200 for the server to count as ready."""

    def __init__(
        self,
        paths: tuple[tuple[str, float], ...],
        identity: str,
        ready_line: bool = False,
        after_line: tuple[tuple[str, float], ...] | None = None,
    ) -> None:
        self.paths = paths  # (path, timeout in seconds)
        self.identity = identity  # says which model is served
        self.ready_line = ready_line  # the log must have said so too
        self.after_line = after_line  # all that is left to ask after it; None: it proves nothing


def probe_for(
    version: str | None,
    shallow_health: bool = False,
    skip_warmup: bool = False,
    warms_up: bool = False,
) -> Probe:
    """Return the right probe of a version.

    ``shallow_health``: the unit sets SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=0, so that ``/health``
    no longer asks the scheduler. An unknown version gets what every version answers deeply.
    ``warms_up``: the arguments are known, and a request of its own is answered before the ready line.
    """
    probe = _probe_for(version, shallow_health, skip_warmup)
    known = release(version)
    if warms_up and known is not None:
        probe.after_line = (("/ready", QUICK_SECONDS),) if known >= (0, 5, 20) else ()
    return probe


def _probe_for(version: str | None, shallow_health: bool, skip_warmup: bool) -> Probe:
    known = release(version)
    if known is None:
        return Probe((("/health_generate", DEEP_SECONDS),), "/get_model_info")
    identity = "/model_info" if known >= (0, 5, 6) else "/get_model_info"
    if known >= (0, 5, 20):
        deep = "/health_generate" if shallow_health else "/health"
        return Probe((("/ready", QUICK_SECONDS), (deep, DEEP_SECONDS)), identity)
    if known >= (0, 4, 10):
        if skip_warmup and known < (0, 5, 1):
            # 0.4.10 leaves its status at "starting" without a warm-up: /health says 503 for ever.
            return Probe(((identity, QUICK_SECONDS),), identity, ready_line=True)
        deep = "/health_generate" if shallow_health else "/health"
        return Probe(((deep, DEEP_SECONDS),), identity)
    return Probe((("/health_generate", DEEP_SECONDS),), identity, ready_line=True)


def wrong_model(info: dict[str, Any], model: str, served_name: str | None = None) -> str:
    """Return what is wrong with the identity that the server gave, or "".

    Only names that the server did give are compared: older releases leave some out.
    """
    path = info.get("model_path")
    if model and path and _plain(path) != _plain(model):
        return "serves %s, not %s" % (path, model)
    name = info.get("served_model_name")
    if served_name and name and name != served_name:
        return "serves under the name %s, not %s" % (name, served_name)
    return ""


def _plain(path: Any) -> str:
    return str(path).rstrip("/")


def backoff(attempt: int, jitter: float, first: float = 0.25, most: float = 5.0) -> float:
    """Return seconds to the next poll: doubling to ``most``, up to a quarter off by ``jitter`` in [0, 1)."""
    return min(most, first * 2.0 ** min(attempt, 16)) * (0.75 + 0.25 * jitter)
