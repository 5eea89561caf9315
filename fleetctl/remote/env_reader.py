"""Reads the environment variables that an SGLang tree looks at, without importing it."""

from __future__ import annotations

import ast
import re
from typing import Any, Dict, Set

from fleetctl.remote import static_python, static_values

# Names that end in "_" are prefixes put together at run time.
_NAME = re.compile(rb"\b(?:SGLANG|SGL)_[A-Z0-9_]*[A-Z0-9]\b")
_PAIR = re.compile(r"""_print_deprecated_env\(\s*["'](\w+)["'],\s*["'](\w+)["']""")
_SIGNATURE = re.compile(r"def _print_deprecated_env\(\s*(\w+)")
_TO_FLAG = re.compile(r"""_warn_deprecated_env_to_cli_flag\(\s*"(\w+)",\s*\(?\s*f?"([^"]*)\"""")
_CLI = re.compile(r"--[a-z][\w-]+")
SOURCES = (".py", ".cu", ".cuh", ".h", ".cpp", ".rs")


def read_env(tree: static_python.Tree, *, everywhere: bool = True) -> Dict[str, Any]:
    """Return ``{"declared": {name: {kind, default}}, "used": [names], "deprecated": {name: replacement}}``.

    ``declared`` are the fields of ``srt/environ.py``; ``used`` are further SGLANG_ and SGL_ names that
    stand anywhere in the sources (left out with ``everywhere=False``, which reads one file only).
    """
    package = static_python.Package(tree)
    module = package.module("sglang.srt.environ")
    declared = {} if module is None else _declared(module)
    deprecated = {} if module is None else _deprecated(module)
    used: Set[str] = set()
    if everywhere:
        for path in tree.files(SOURCES):
            data = tree.read_bytes(path) or b""
            if b"SGL" in data:
                used.update(m.decode("ascii") for m in _NAME.findall(data))
    return {
        "declared": declared,
        "used": sorted(used - set(declared) - set(deprecated)),
        "deprecated": deprecated,
    }


def _declared(module: static_python.Module) -> Dict[str, Any]:
    owner = module.find("Envs")
    if not isinstance(owner, ast.ClassDef):
        return {}
    scope = static_values.Scope(module)
    found: Dict[str, Any] = {}
    for statement in owner.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            for name in static_python.defined_by(statement):
                if name.isupper():
                    found[name] = _field(statement.value, scope)
    return found


def _field(call: ast.Call, scope: static_values.Scope) -> Dict[str, Any]:
    kind = static_python.last_name(call.func).replace("Env", "", 1).replace("WithAlias", "").lower()
    entry: Dict[str, Any] = {"kind": kind}
    try:
        value = static_values.value_of(call.args[0], scope) if call.args else None
        entry["default"] = getattr(value, "value", value)
    except static_values.Unresolved:
        entry["unresolved"] = static_python.source_text(call.args[0], scope.module)
    return entry


def _deprecated(module: static_python.Module) -> Dict[str, Any]:
    """Return old name → what to use instead ("" where SGLang names nothing)."""
    signature = _SIGNATURE.search(module.text)
    old_first = bool(signature and signature.group(1).startswith("old"))
    found: Dict[str, Any] = {}
    for first, second in _PAIR.findall(module.text):
        old, new = (first, second) if old_first else (second, first)
        found[old] = new
    for old, advice in _TO_FLAG.findall(module.text):
        match = _CLI.search(advice)
        found[old] = match.group() if match else ""
    table = module.find("_DEPRECATED_ENVS")
    if isinstance(table, (ast.Assign, ast.AnnAssign)) and isinstance(table.value, ast.Dict):
        for key, value in zip(table.value.keys, table.value.values):
            if isinstance(key, ast.Constant) and isinstance(value, ast.Call):
                found[str(key.value)] = _successor(value)
    owner = module.find("Envs")
    for node in ast.walk(owner) if owner is not None else ():
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            for keyword in node.value.keywords:
                if keyword.arg == "deprecated_name" and isinstance(keyword.value, ast.Constant):
                    found[str(keyword.value.value)] = static_python.defined_by(node)[0]
    return found


def _successor(call: ast.Call) -> str:
    """Return the new name or flag that a ``_DeprecatedEnv(...)`` entry speaks of."""
    for value in [*call.args, *(k.value for k in call.keywords)]:
        for node in ast.walk(value):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                match = re.search(r"\bSGLANG_[A-Z0-9_]+|--[a-z][\w-]+", node.value)
                if match:
                    return match.group()
    return ""
