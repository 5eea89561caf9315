"""Reads the flag schema of the SGLang that is installed on this host, fork or release."""

from __future__ import annotations

import os
from typing import Any

from fleetctl.remote import env_reader, flag_reader, sglang_tree, shell, static_python
from fleetctl.remote.agent import AgentError

# The interpreter says where it would import sglang from; nothing of sglang is run.
_WHERE = """
import importlib.util, json
spec = importlib.util.find_spec("sglang")
print(json.dumps({"found": list(spec.submodule_search_locations or []) if spec else []}))
"""


def tree_of(python: str, env: dict[str, str] | None = None) -> static_python.Tree:
    """Return the package that an interpreter would import. AgentError: no-python, no-sglang."""
    if not os.path.exists(python):
        raise AgentError("no-python", "no such interpreter", where=python)
    command = [
        "env",
        *("%s=%s" % pair for pair in sorted((env or {}).items())),
        python,
        "-c",
        _WHERE,
    ]
    done = shell.run(command, timeout=30.0)
    for folder in shell.json_object(done.out).get("found", []):
        tree = sglang_tree.find(folder)
        if tree is not None:
            return tree
    said = done.err.strip().splitlines()
    raise AgentError(
        "no-sglang",
        said[-1] if said and done.rc else "that interpreter finds no sglang package",
        where=python,
        hint="name another interpreter (profile: sglang: {python: PATH})",
    )


def read(args: dict[str, Any], _session: Any = None) -> dict[str, Any]:
    """Return ``{path, version, digest, git, body}`` for ``{python | path, known: [digests], env}``.

    ``body`` is the schema (``fleetctl.flags/1``), None when the caller already has one of that digest.
    """
    path = args.get("path")
    tree = sglang_tree.find(path) if path else tree_of(str(args["python"]), args.get("env"))
    if tree is None:
        raise AgentError("no-sglang", "no SGLang package here", where=str(path))
    found: dict[str, Any] = {
        "path": tree.root,
        "version": sglang_tree.version(tree),
        "digest": sglang_tree.digest(tree),
        "body": None,
    }
    if found["digest"] not in (args.get("known") or ()):
        try:
            flags = flag_reader.read_flags(tree)
        except (flag_reader.UnknownLayout, SyntaxError) as error:
            raise AgentError(
                "unknown-flag-layout", "cannot read the flags: %s" % error, where=tree.root
            )
        found["body"] = {
            "schema": flag_reader.SCHEMA,
            "version": found["version"],
            "digest": found["digest"],
            "flags": flags,
            "env": env_reader.read_env(tree),
        }
    return found


VERBS = {"read": read}
