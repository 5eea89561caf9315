"""What a doctor looks at around SGLang: interpreter, packages, py-spy, the unit, patches, the model."""

from __future__ import annotations

import os
import re
from typing import Any

from fleetctl.remote import facts, model_folder, patch_store, revisions, shell, unit

PACKAGES = (
    "sglang", "torch", "triton", "flashinfer-python", "sgl-kernel", "sglang-kernel", "transformers",
    "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13",
)  # fmt: skip
LIMITS = (
    "LimitNOFILESoft",
    "LimitNOFILE",
    "LimitMEMLOCK",
    "LogRateLimitIntervalUSec",
    "User",
    "TasksMax",
)

_ASK = """
import json, sys
from importlib import metadata
names = %r
def version(name):
    try:
        return metadata.version(name)
    except Exception:
        return None
try:
    needs = [r for r in metadata.requires("sglang") or [] if "extra ==" not in r]
except Exception:
    needs = []
import re
wanted = {re.split(r"[ ;<>=!~\\\\[(]", r, maxsplit=1)[0] for r in needs}
print(json.dumps({"version": ".".join(map(str, sys.version_info[:3])), "needs": needs,
                  "packages": {n: version(n) for n in sorted(wanted | set(names))}}))
"""


DEFAULT = "/opt/sglang/.venv/bin/python"


def interpreter_of(unit_name: str) -> str | None:
    """Return the interpreter that a unit starts, else the usual one where it exists, else None."""
    text = unit.show(unit_name, ("ExecStart",)).get("ExecStart", "")
    match = re.search(r"path=(\S+)", text)
    if match and "python" in os.path.basename(match.group(1)):
        return match.group(1)
    return DEFAULT if os.path.exists(DEFAULT) else None


def python(path: str | None) -> dict[str, Any] | None:
    """Return ``{path, exists, version, packages, needs, error, py_spy}`` of SGLang's interpreter."""
    if path is None:
        return None
    found: dict[str, Any] = {
        "path": path,
        "exists": os.path.exists(path),
        "packages": {},
        "needs": [],
    }
    if not found["exists"]:
        return found
    done = shell.run((path, "-I", "-c", _ASK % (PACKAGES,)), timeout=20.0)
    answer = shell.json_object(done.out)
    if done.rc != 0 or not answer:
        said = done.err.strip().splitlines()
        return dict(found, error=said[-1] if said else "ended with status %d" % done.rc)
    found.update(answer)
    return dict(found, py_spy=_py_spy(path))


def _py_spy(path: str) -> str | None:
    """Return where the unit would find py-spy: its PATH begins with the interpreter's folder."""
    for folder in (os.path.dirname(path), *shell.ENV["PATH"].split(":")):
        candidate = os.path.join(folder, "py-spy")
        if folder and os.access(candidate, os.X_OK):
            return candidate
    return None


def service(name: str, unit_name: str) -> dict[str, Any]:
    """Return the unit: its state, its limits, and what somebody changed since fleetctl wrote it."""
    props = unit.show(unit_name, (*unit.PROPERTIES, *LIMITS))
    found = facts.unit_facts(unit_name, props)
    found["limits"] = {k: props.get(k, "") for k in LIMITS}
    found["drift"] = revisions.drift(name)
    return found


def patches(service_name: str) -> list[dict[str, Any]]:
    """Return the patches that a service has on this host, with their expiry."""
    state = patch_store.load(service_name) or {"patches": []}
    return [
        {
            "name": p["name"], "expires_at": p["expires_at"], "by": p["by"],
            "orphaned": patch_store.changed(state, p),
        }
        for p in state["patches"]
    ]  # fmt: skip


def model(path: str | None) -> dict[str, Any] | None:
    """Return the model's folder; None for no model or one that is no path."""
    if not path or not path.startswith("/"):
        return None
    found = model_folder.read({"path": path})
    found["config"] = found["config"] is not None
    return found


def safe(text: str) -> str:
    """Return a name that is a service's."""
    return text if re.match(r"^[\w.-]+$", text) else "main"
