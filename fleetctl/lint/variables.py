"""What is wrong with a profile's environment variables."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from fleetctl.engines.sglang import history
from fleetctl.lint.finding import Finding, Severity
from fleetctl.lint.words import Words

PREFIXES = ("SGLANG_", "SGL_")


def check(words: Words) -> Iterator[Finding]:
    """Yield findings for SGLANG_ and SGL_ variables that this version does not read, or soon will not."""
    schema = words.schema
    if not schema.env_names:
        return
    old = schema.env.get("deprecated", {})
    for name in (*words.profile.env, *words.profile.secret_env):
        if not name.startswith(PREFIXES):
            continue
        where = words.where(name, "env")
        if name in old:
            yield Finding(
                "deprecated-env",
                Severity.WARNING,
                f"{name} is deprecated in sglang {schema.version}",
                flag=name,
                where=where,
                hint=f"use {old[name]} instead" if old[name] else "SGLang names no successor",
            )
        elif name not in schema.env_names and not _rewritten(name, schema.env_names):
            yield _unknown(words, name, where)


def _rewritten(name: str, known: frozenset[str]) -> bool:
    """Return whether SGLang rewrites an SGL_ name to an SGLANG_ name that it knows."""
    return name.startswith("SGL_") and f"SGLANG_{name[4:]}" in known


def _unknown(words: Words, name: str, where: str) -> Finding:
    version = words.schema.version
    life = history.variable(name)
    near = difflib.get_close_matches(name, words.schema.env_names, n=1, cutoff=0.85)
    hint = (
        f"did you mean {near[0]}?" if near else "nothing reads it: a typing error passes in silence"
    )
    message = f"sglang {version} does not read {name}"
    if life is not None and version:
        came, gone = life.came_after(version), life.gone_before(version)
        if gone:
            message = f"sglang {version} no longer reads {name}; {gone} was the last"
            hint = f"use {life.use} instead" if life.use else "take it away"
        elif came:
            message = f"{name} came with sglang {came}, this is {version}"
    return Finding("unknown-env", Severity.WARNING, message, flag=name, where=where, hint=hint)
