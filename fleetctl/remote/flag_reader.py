"""Reads SGLang's launch flags from its source, without importing it.

Three layouts exist in 0.5.x: ``parser.add_argument`` calls (to 0.5.13), ``A[type, Arg(...)]`` fields of
``ServerArgs`` (0.5.14 to 0.5.19), and the same fields in ``arg_groups/fields/*.py`` (from 0.5.20).
A value that only the running program knows is named under ``unresolved``, never guessed.
"""

from __future__ import annotations

import ast
import re
from typing import Any, Dict, Iterator, List, Optional, Tuple

from fleetctl.remote import static_python, static_values

SCHEMA = "fleetctl.flags/1"
UNION = ("Optional", "Union")
SIMPLE = ("str", "int", "float")
HELP_LIMIT = 240
# The one method of ServerArgs that registers flags; the other bodies are skipped.
KEPT = ("add_cli_args",)
_DEPRECATED = re.compile(r"^\W*(?:note:\s+--[\w-]+ is )?deprecated", re.I)
_USE = re.compile(
    r"(?:use|set|favou?r of|replaced by|alias (?:for|of))[^-]{0,40}?"
    r"(--[a-z][\w-]*(?:=\w+)?|\bSGLANG_[A-Z0-9_]+(?:=\w+)?)",
    re.I,
)
_SENTENCE = re.compile(r"(?<=[^.][.!?])(?=\s+[A-Z`'\"-]|\s*$)")


class UnknownLayout(Exception):
    """The tree holds no SGLang whose flags can be read."""


def read_flags(tree: static_python.Tree) -> List[Dict[str, Any]]:
    """Return every flag as a plain object, in the order of registration."""
    package = static_python.Package(tree)
    server_args = package.module("sglang.srt.server_args")
    if server_args is None:
        raise UnknownLayout("no srt/server_args.py")
    fields: Dict[str, Tuple[Any, Any]] = {}
    classes = list(_field_classes(server_args))
    for owner, module in classes:
        for node in owner.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                fields[node.target.id] = (node.value, module)
    scope = static_values.Scope(server_args, fields)
    flags: List[Dict[str, Any]] = []
    for owner, module in classes:
        # A field written twice is one field: the later one wins, as in a dataclass.
        flags += {f["dest"]: f for f in _annotated(owner, scope.inside(module))}.values()
    rank = {name: n for n, name in enumerate(_field_order(package))}
    flags.sort(key=lambda flag: rank.get(flag["dest"], len(rank)))
    for function in _registrations(server_args):
        flags += _manual(function, scope)
    if not flags:
        raise UnknownLayout("no add_argument call and no annotated field in srt/server_args.py")
    return flags


def _field_order(package: static_python.Package) -> List[str]:
    """Return the order that collected fields are registered in; without one it is that of the classes."""
    module = package.module("sglang.srt.arg_groups.field_order")
    statement = module.find("POSITIONAL_FIELD_ORDER") if module is not None else None
    if module is None or not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return []
    found = _known(statement.value, static_values.Scope(module))
    return [str(name) for name in found or []]


def _field_classes(
    server_args: static_python.Module,
) -> Iterator[Tuple[ast.ClassDef, static_python.Module]]:
    """Yield ServerArgs, and the classes whose fields are collected into it."""
    for node in server_args.skim(KEPT).body:
        if isinstance(node, ast.ClassDef) and node.name == "ServerArgs":
            yield node, server_args
    spaces = server_args.find("_INPUT_NAMESPACES")
    if isinstance(spaces, ast.Assign) and isinstance(spaces.value, ast.List):
        for element in spaces.value.elts:
            found = static_values.lookup(static_python.last_name(element), server_args)
            if found and isinstance(found[0], ast.ClassDef):
                yield found[0], found[1]


def _registrations(module: static_python.Module) -> Iterator[ast.FunctionDef]:
    for node in module.skim(KEPT).body:
        if isinstance(node, ast.ClassDef) and node.name == "ServerArgs":
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and inner.name == "add_cli_args":
                    yield inner


def _manual(
    function: ast.FunctionDef, scope: static_values.Scope, hops: int = 3
) -> Iterator[Dict[str, Any]]:
    """Yield the flags of ``parser.add_argument`` calls, also of functions that get the parser."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            scope.names.setdefault(node.targets[0].id, node.value)
    for call in _calls(function.body):
        if static_python.last_name(call.func) != "add_argument":
            helper = _helper(call, scope) if hops else None
            if helper is not None:
                yield from _manual(helper[0], scope.inside(helper[1]), hops - 1)
            continue
        names = [a.value for a in call.args if isinstance(a, ast.Constant)]
        if names and str(names[0]).startswith("-"):
            given = {k.arg: k.value for k in call.keywords if k.arg}
            yield _flag([str(n) for n in names], given, scope, call, _dest(names))


def _calls(body: List[ast.stmt]) -> Iterator[ast.Call]:
    """Yield the calls that are statements, in order, also those under ``if``, ``for``, ``with``, ``try``."""
    for statement in body:
        if isinstance(statement, (ast.Expr, ast.Assign)) and isinstance(statement.value, ast.Call):
            yield statement.value
        for block in ("body", "orelse", "finalbody"):
            if not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                yield from _calls(getattr(statement, block, []))


def _helper(
    call: ast.Call, scope: static_values.Scope
) -> Optional[Tuple[ast.FunctionDef, static_python.Module]]:
    """Return the function or static method that a call hands ``parser`` to, where the package has it."""
    if not any(static_python.last_name(a) == "parser" for a in call.args):
        return None
    owner = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    found = static_values.lookup(static_python.last_name(owner), scope.module)
    if found is None or isinstance(found[0], ast.FunctionDef):
        return found
    for inner in getattr(found[0], "body", []):
        if isinstance(inner, ast.FunctionDef) and inner.name == static_python.last_name(call.func):
            return inner, found[1]
    return None


def _dest(names: List[Any]) -> str:
    """Return argparse's own choice of the destination: the first long spelling."""
    long = [str(n) for n in names if str(n).startswith("--")]
    return (long or [str(names[0])])[0].lstrip("-").replace("-", "_")


def _annotated(owner: ast.ClassDef, scope: static_values.Scope) -> Iterator[Dict[str, Any]]:
    """Yield the flags that SGLang derives from ``field: A[type, "help" | Arg(...)] = default``."""
    for node in owner.body:
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        parts = _annotation(node.annotation)
        given = None if parts is None else _arg(parts[1:])
        if parts is None or given is None or _known(given.get("no_cli"), scope) is True:
            continue
        field = node.target.id
        name = _known(given.pop("cli_name", None), scope) or "--" + field.replace("_", "-")
        names = [name, *(_known(given.pop("aliases", None), scope) or [])]
        if node.value is not None:
            given["default"] = node.value
        yield _flag(
            names, _as_argument(parts[0], given, node.value is None, scope), scope, node, field
        )


def _annotation(node: ast.AST) -> Optional[List[Any]]:
    if not (
        isinstance(node, ast.Subscript)
        and static_python.last_name(node.value) in ("A", "Annotated")
    ):
        return None
    inner = _slice(node)
    return list(inner.elts) if isinstance(inner, ast.Tuple) else None


def _slice(node: ast.Subscript) -> Any:
    """Return what stands between the brackets (Python 3.8 wraps it)."""
    return (
        getattr(node.slice, "value", node.slice)
        if type(node.slice).__name__ == "Index"
        else node.slice
    )


def _arg(extra: List[Any]) -> Optional[Dict[str, Any]]:
    """Return the keywords of ``Arg(...)``, or a bare help text as one; None without either."""
    for item in extra:
        if isinstance(item, ast.Call) and static_python.last_name(item.func) == "Arg":
            given: Dict[str, Any] = {k.arg: k.value for k in item.keywords if k.arg}
            if item.args:
                given.setdefault("help", item.args[0])
            return given
        if isinstance(item, (ast.Constant, ast.JoinedStr, ast.BinOp)):
            return {"help": item}
    return None


def _known(node: Any, scope: static_values.Scope) -> Any:
    try:
        return None if node is None else static_values.value_of(node, scope)
    except static_values.Unresolved:
        return None


def _as_argument(
    kind: Any, given: Dict[str, Any], required: bool, scope: static_values.Scope
) -> Dict[str, Any]:
    """Return add_argument's keywords for a field, by the rules of SGLang's ``add_cli_args_from_dataclass``."""
    keywords: Dict[str, Any] = {k: given[k] for k in ("help", "default") if k in given}
    if "action" in given:
        extra = given.get("action_kwargs")
        if isinstance(extra, ast.Dict):
            keywords.update(
                {
                    str(k.value): v
                    for k, v in zip(extra.keys, extra.values)
                    if isinstance(k, ast.Constant)
                }
            )
        return {**keywords, "action": given["action"]}
    inner = _without_none(kind)
    parser = given.get("type_parser")
    for name in ("choices", "const"):
        if name in given:
            keywords[name] = given[name]
    head = static_python.last_name(inner.value if isinstance(inner, ast.Subscript) else inner)
    if head == "Literal":
        values = _slice(inner)
        keywords.setdefault(
            "choices", values if isinstance(values, ast.Tuple) else ast.List([values])
        )
        first = values.elts[0] if isinstance(values, ast.Tuple) else values
        keywords["type"] = parser or _simple(ast.Name(type(getattr(first, "value", "")).__name__))
    elif head in ("list", "List") and parser is None:
        element = _slice(inner) if isinstance(inner, ast.Subscript) else None
        keywords["type"] = _simple(element)
        keywords["nargs"] = given.get("nargs") or ast.Constant("+")
    elif head == "bool":
        keywords.pop("choices", None)
        keywords.pop("const", None)
        keywords["action"] = ast.Constant("store_true")
    else:
        keywords["type"] = parser or _simple(inner)
        if "nargs" in given:
            keywords["nargs"] = given["nargs"]
        asked = _known(given.get("required"), scope)
        if asked is True or (asked is None and required):
            keywords["required"] = ast.Constant(True)
    return keywords


def _without_none(kind: Any) -> Any:
    """Return X of ``Optional[X]``, ``Union[X, None]`` or ``X | None``; anything else as it is."""
    if isinstance(kind, ast.Subscript) and static_python.last_name(kind.value) in UNION:
        inner = _slice(kind)
        parts = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
    elif isinstance(kind, ast.BinOp) and isinstance(kind.op, ast.BitOr):
        parts = [kind.left, kind.right]
    else:
        return kind
    rest = [p for p in parts if not (isinstance(p, ast.Constant) and p.value is None)]
    return rest[0] if len(rest) == 1 else kind


def _simple(node: Any) -> ast.Name:
    """Return the converter of a plain type: anything but int and float is read as text."""
    name = static_python.last_name(node)
    return ast.Name(name if name in SIMPLE else "str")


def _flag(
    names: List[str], given: Dict[str, Any], scope: static_values.Scope, node: Any, dest: str
) -> Dict[str, Any]:
    """Return one flag as a plain object; keys with nothing to say are left out."""
    unresolved: Dict[str, str] = {}

    def get(key: str, fallback: Any = None) -> Any:
        if key not in given:
            return fallback
        try:
            return _plain(static_values.value_of(given[key], scope))
        except static_values.Unresolved:
            unresolved[key] = static_python.source_text(given[key], scope.module)
            return None

    action = _action(given.get("action"), scope)
    kind = action["kind"]
    flag: Dict[str, Any] = {"names": names, "dest": get("dest") or dest, "action": kind}
    if kind == "boolean_optional":
        flag["names"] = names + ["--no-" + n[2:] for n in names if n.startswith("--")]
    flag["nargs"] = get("nargs", action.get("nargs"))
    if "type" in given:
        flag["type"] = _type(given["type"], scope)
    elif flag["nargs"] != 0:
        flag["type"] = "str"
    flag["choices"] = get("choices")
    flag["default"] = get("default", action.get("default"))
    flag["const"] = get("const") if "const" in given else get("const_value")
    flag["required"] = get("required", False)
    text = get("help", "") or ""
    unresolved.pop("help", None)
    _describe(flag, text, action, get("new_flag"), get("error_message"))
    if flag["default"] is None:
        del flag["default"]
    flag["file"], flag["line"] = scope.module.path, node.lineno
    flag["unresolved"] = unresolved
    return {k: v for k, v in flag.items() if k in ("default", "help") or _says(v)}


def _says(value: Any) -> bool:
    """Return whether a value says something: 0 does (a switch's nargs), None, False and {} do not."""
    return value is not None and value is not False and value != {}


def _describe(
    flag: Dict[str, Any], text: str, action: Dict[str, Any], new: Any, error: Any
) -> None:
    """Add help (its first sentence), and what is known of a deprecation."""
    flat = " ".join(str(text).split())
    flag["hidden"] = flat == "==SUPPRESS=="
    first = "" if flag["hidden"] else _SENTENCE.split(flat, maxsplit=1)[0].strip()
    flag["help"] = first if len(first) <= HELP_LIMIT else first[: HELP_LIMIT - 1] + "…"
    flag["deprecated"] = bool(action.get("deprecated") or _DEPRECATED.search(flat))
    if not flag["deprecated"]:
        return
    if not flag["hidden"]:
        flag["help"] = flat if len(flat) <= HELP_LIMIT else flat[: HELP_LIMIT - 1] + "…"
    if new is None:
        match = next((m for m in _USE.finditer(flat) if m.group(1) not in flag["names"]), None)
        new = match.group(1) if match else None
    flag["replacement"] = new
    if error or action.get("fatal"):
        flag["fatal"] = error or flat or "this flag was removed"


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; sets and Enum members lose nothing that argparse compares."""
    if isinstance(value, static_python.EnumMember):
        return value.value
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def _type(node: Any, scope: static_values.Scope) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return static_python.source_text(node, scope.module)


def _action(node: Any, scope: static_values.Scope) -> Dict[str, Any]:
    """Return an action's kind, its own nargs and default, and whether it warns or stops."""
    name = node.value if isinstance(node, ast.Constant) else static_python.last_name(node)
    if name in ("", "store", None):
        return {"kind": "store"}
    if name == "BooleanOptionalAction":
        return {"kind": "boolean_optional", "nargs": 0}
    if name in ("store_true", "store_false"):
        return {"kind": name, "nargs": 0, "default": name == "store_false"}
    if name in ("store_const", "append_const", "count", "help", "version"):
        return {"kind": name, "nargs": 0}
    if isinstance(node, ast.Constant):
        return {"kind": str(name)}
    return _custom_action(str(name), scope)


def _custom_action(name: str, scope: static_values.Scope) -> Dict[str, Any]:
    """Read an Action class of SGLang's own: defaults of ``__init__``, and whether calling it raises."""
    found = static_values.lookup(name, scope.module)
    action: Dict[str, Any] = {"kind": name, "deprecated": "Deprecated" in name}
    if found is None or not isinstance(found[0], ast.ClassDef):
        return action
    for method in found[0].body:
        if not isinstance(method, ast.FunctionDef):
            continue
        if method.name == "__init__":
            arguments = (
                method.args.args[-len(method.args.defaults) :] if method.args.defaults else []
            )
            for argument, default in zip(arguments, method.args.defaults):
                if argument.arg in ("nargs", "default"):
                    action[argument.arg] = _known(default, scope.inside(found[1]))
        elif method.name == "__call__":
            action["fatal"] = any(isinstance(s, ast.Raise) for s in method.body)
    return action
