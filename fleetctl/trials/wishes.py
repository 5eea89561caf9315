"""What was asked of a bisect is kept in its state: whoever goes on with it judges trials in the same way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fleetctl.bisect.state import State
from fleetctl.errors import UsageError

if TYPE_CHECKING:
    from fleetctl.trials.start import Asked

LARGE = 256 << 10  # bytes of requests beyond which the file has to be given again
RULES = ("port", "timeout", "stall")


def kept(asked: Asked) -> dict[str, Any]:
    """Return the options of a state that say how its trials are launched and judged."""
    requests = list(asked.rules.requests)
    text = json.dumps(requests, sort_keys=True)
    return {
        **{name: getattr(asked.rules, name) for name in RULES},
        "gpu_limit_mib": asked.rules.gpu_limit_mib,
        "check": asked.how.check,
        "fast_load": asked.how.fast,
        "fast_layers": asked.how.fast_layers,
        "split": asked.how.split,
        "drain": asked.drain,
        "undrain": asked.undrain,
        "requests": requests if len(text) <= LARGE else [],
        "requests_hash": _hash(text) if requests else "",
    }


def again(asked: Asked, state: State) -> Asked:
    """Return what is asked now, with all that the state remembers and nobody changed.

    UsageError ``other-judgement``: another check or request than its launches were judged by;
    ``needs-request``: a request too large to be kept.
    """
    options = state.options
    rules, how = asked.rules, asked.how
    requests = rules.requests or tuple(options.get("requests") or ())
    digest = _hash(json.dumps(list(requests), sort_keys=True)) if requests else ""
    if "requests_hash" in options and digest != options["requests_hash"]:
        _refuse_request(state, digest)
    check = how.check or str(options.get("check") or "")
    if how.check and "check" in options and how.check != options["check"]:
        raise UsageError(
            "other-judgement",
            f"the launches of {state.id} were judged by {options['check'] or 'no check'}",
            where="--check",
            hint="leave --check out, or start a new bisect",
        )
    rules = replace(
        rules,
        requests=requests,
        port=_first(rules.port, options, "port"),
        timeout=_first(rules.timeout, options, "timeout"),
        stall=_first(rules.stall, options, "stall"),
        gpu_limit_mib=rules.gpu_limit_mib
        if rules.gpu_limit_mib != type(rules)().gpu_limit_mib
        else float(options.get("gpu_limit_mib") or rules.gpu_limit_mib),
    )
    how = replace(
        how,
        check=check,
        fast=how.fast or bool(options.get("fast_load")),
        fast_layers=_first(how.fast_layers, options, "fast_layers"),
        split=how.split and options.get("split") is not False,
    )
    return replace(
        asked,
        rules=rules,
        how=how,
        drain=asked.drain or str(options.get("drain") or ""),
        undrain=asked.undrain or str(options.get("undrain") or ""),
    )


def _refuse_request(state: State, digest: str) -> None:
    if not digest:
        raise UsageError(
            "needs-request",
            f"{state.id} sends a request that is too large to be kept",
            hint="give --request FILE again",
        )
    had = "another request" if state.options["requests_hash"] else "no request"
    raise UsageError(
        "other-judgement",
        f"the launches of {state.id} were judged by {had}",
        where="--request",
        hint="leave --request out, or start a new bisect",
    )


def _first(given: Any, options: Mapping[str, Any], name: str) -> Any:
    return given if given is not None else options.get(name)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
