"""Works out the value of an expression that needs no running program: constants, names, lists, Enum members."""

from __future__ import annotations

import ast
from typing import Any, Dict, List, Mapping, Optional, Tuple

from fleetctl.remote import static_python

Unresolved = static_python.Unresolved
COLLECTIONS = ("list", "tuple", "set", "sorted", "frozenset")
ENUMS = ("Enum", "IntEnum", "StrEnum", "str_enum", "IntFlag", "Flag")
DEPTH = 40


class Scope:
    """Where names are looked up: local assignments, a class's fields, then the module and its imports."""

    def __init__(
        self,
        module: static_python.Module,
        fields: Optional[Dict[str, Tuple[Any, Any]]] = None,
        names: Optional[Mapping[str, Any]] = None,
        bound: Optional[Dict[str, Any]] = None,
    ) -> None:
        self.module = module
        self.fields = fields or {}  # ServerArgs field → (default's expression, module it stands in)
        self.names = dict(names or {})  # local variable → expression
        self.bound = bound or {}  # loop variable → value

    def inside(self, module: static_python.Module) -> Scope:
        """Return the scope of another module with the same fields."""
        return Scope(module, self.fields)


def value_of(node: Optional[ast.AST], scope: Scope, depth: int = 0) -> Any:
    """Return the value; raise Unresolved with the expression's text when it cannot be known."""
    if depth > DEPTH:
        raise Unresolved("too deep")
    handler = HANDLERS.get(type(node).__name__)
    if handler is None or node is None:
        raise Unresolved(_text(node, scope))
    return handler(node, scope, depth + 1)


def _text(node: Optional[ast.AST], scope: Scope) -> str:
    return "" if node is None else static_python.source_text(node, scope.module)


def _constant(node: Any, _scope: Scope, _depth: int) -> Any:
    return node.value


def _sequence(node: Any, scope: Scope, depth: int) -> List[Any]:
    items: List[Any] = []
    for element in node.elts:
        if isinstance(element, ast.Starred):
            items += list(value_of(element.value, scope, depth))
        else:
            items.append(value_of(element, scope, depth))
    return items


def _dict(node: Any, scope: Scope, depth: int) -> Dict[Any, Any]:
    found: Dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values):
        if key is None:
            found.update(value_of(value, scope, depth))
            continue
        try:
            found[value_of(key, scope, depth)] = value_of(value, scope, depth)
        except Unresolved:
            found[value_of(key, scope, depth)] = None  # a class, say: only keys are ever asked for
    return found


def _name(node: Any, scope: Scope, depth: int) -> Any:
    if node.id in scope.bound:
        return scope.bound[node.id]
    if node.id in scope.names:
        return value_of(scope.names[node.id], scope, depth)
    return _global(node.id, scope.module, scope, depth)


def _global(name: str, module: static_python.Module, scope: Scope, depth: int) -> Any:
    """Return the value of a module's variable, or the members of its Enum class."""
    found = lookup(name, module)
    if found is not None:
        statement, home = found
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            return value_of(statement.value, scope.inside(home), depth)
        if isinstance(statement, ast.ClassDef) and is_enum(statement):
            return members(statement, scope.inside(home), depth)
    raise Unresolved(name)


def lookup(
    name: str, module: static_python.Module, hops: int = 6
) -> Optional[Tuple[Any, static_python.Module]]:
    """Return the statement that defines a name and its module, following imports."""
    statement = module.find(name)
    if statement is not None:
        return statement, module
    target = module.imported(name) if hops else None
    return lookup(target[1], target[0], hops - 1) if target else None


def is_enum(node: ast.ClassDef) -> bool:
    """Return whether a class derives from one of the Enum classes."""
    return any(static_python.last_name(b) in ENUMS for b in node.bases)


def members(node: ast.ClassDef, scope: Scope, depth: int = 0) -> List[static_python.EnumMember]:
    """Return the members of an Enum class in order."""
    found = []
    for statement in node.body:
        if not isinstance(statement, ast.Assign):
            continue
        for name in static_python.defined_by(statement):
            try:
                value = value_of(statement.value, scope, depth)
            except Unresolved:
                value = None  # auto(), say: the name is still known
            found.append(static_python.EnumMember(name, value))
    return found


def _attribute(node: Any, scope: Scope, depth: int) -> Any:
    if isinstance(node.value, ast.Name):
        owner = node.value.id
        if owner in scope.bound:
            return _of_member(scope.bound[owner], node.attr)
        if owner == "argparse" and node.attr == "SUPPRESS":
            return "==SUPPRESS=="
        if owner == "sys" and node.attr == "maxsize":
            return 2**63 - 1  # SGLang runs on 64-bit Linux only
        if owner == "ServerArgs" and node.attr in scope.fields:
            return default_of(node.attr, scope, depth)
        return _class_attribute(owner, node.attr, scope, depth)
    return _of_member(value_of(node.value, scope, depth), node.attr)


def _of_member(value: Any, attr: str) -> Any:
    if isinstance(value, static_python.EnumMember) and attr in ("name", "value"):
        return getattr(value, attr)
    raise Unresolved(attr)


def _class_attribute(owner: str, attr: str, scope: Scope, depth: int) -> Any:
    found = lookup(owner, scope.module)
    if found is None or not isinstance(found[0], ast.ClassDef):
        raise Unresolved(owner + "." + attr)
    statement, module = found
    names = {
        name: node.value
        for node in statement.body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for name in static_python.defined_by(node)
    }
    if attr not in names:
        raise Unresolved(owner + "." + attr)
    own = names.pop(attr)
    value = value_of(own, Scope(module, scope.fields, names), depth)
    return static_python.EnumMember(attr, value) if is_enum(statement) else value


def default_of(name: str, scope: Scope, depth: int = 0) -> Any:
    """Return the default of a ServerArgs field."""
    expression, module = scope.fields[name]
    return value_of(expression, scope.inside(module), depth)


def _binary(node: Any, scope: Scope, depth: int) -> Any:
    left, right = value_of(node.left, scope, depth), value_of(node.right, scope, depth)
    try:
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.Pow) and abs(right) < 64:
            return left**right
    except TypeError:
        pass
    raise Unresolved(_text(node, scope))


def _subscript(node: Any, scope: Scope, depth: int) -> Any:
    place = (
        getattr(node.slice, "value", node.slice)
        if type(node.slice).__name__ == "Index"
        else node.slice
    )
    try:
        return value_of(node.value, scope, depth)[value_of(place, scope, depth)]
    except (LookupError, TypeError):
        raise Unresolved(_text(node, scope))


def _unary(node: Any, scope: Scope, depth: int) -> Any:
    value = value_of(node.operand, scope, depth)
    if isinstance(node.op, ast.USub) and isinstance(value, (int, float)):
        return -value
    if isinstance(node.op, ast.Not):
        return not value
    raise Unresolved(_text(node, scope))


def _call(node: Any, scope: Scope, depth: int) -> Any:
    name = static_python.last_name(node.func)
    if isinstance(node.func, ast.Attribute) and not node.args:
        return _method(node, name, scope, depth)
    if name == "field":
        return _field(node, scope, depth)
    if name == "_declared_default" and node.args:
        return default_of(value_of(node.args[0], scope, depth), scope, depth)
    if name in COLLECTIONS and len(node.args) <= 1:
        items = list(value_of(node.args[0], scope, depth)) if node.args else []
        return sorted(items) if name == "sorted" else items
    if isinstance(node.func, ast.Name) and not node.args and not node.keywords:
        return _function(node, name, scope, depth)
    raise Unresolved(_text(node, scope))


def _field(node: Any, scope: Scope, depth: int) -> Any:
    """Work out a dataclass or msgspec ``field(...)``."""
    for keyword in node.keywords:
        if keyword.arg == "default":
            return value_of(keyword.value, scope, depth)
        if keyword.arg == "default_factory":
            if isinstance(keyword.value, ast.Lambda):
                return value_of(keyword.value.body, scope, depth)
            empty: Dict[str, Any] = {"list": [], "dict": {}, "tuple": [], "set": []}
            if static_python.last_name(keyword.value) in empty:
                return empty[static_python.last_name(keyword.value)]
    raise Unresolved(_text(node, scope))


def _method(node: Any, name: str, scope: Scope, depth: int) -> Any:
    """Work out ``x.keys()``, ``x.values()``, ``s.lower()``, ``s.upper()``, ``s.strip()`` of a known x."""
    owner = node.func.value
    if name == "field":
        return _field(node, scope, depth)
    value = value_of(owner, scope, depth)
    if isinstance(value, dict) and name in ("keys", "values"):
        return list(getattr(value, name)())
    if isinstance(value, str) and name in ("lower", "upper", "strip"):
        return getattr(value, name)()
    raise Unresolved(_text(node, scope))


def _function(node: Any, name: str, scope: Scope, depth: int) -> Any:
    """Work out a call without arguments of a function that ends in ``return``, with its own imports."""
    found = lookup(name, scope.module)
    if found is None or not isinstance(found[0], ast.FunctionDef) or not found[0].body:
        raise Unresolved(_text(node, scope))
    function, module = found
    last = function.body[-1]
    if not isinstance(last, ast.Return) or last.value is None:
        raise Unresolved(_text(node, scope))
    inner = scope.inside(module)
    for statement in function.body:
        if isinstance(statement, ast.ImportFrom) and statement.module:
            source: Any = module.package.module(statement.module)
            for alias in statement.names if source is not None else ():
                name = alias.asname or alias.name
                inner.bound[name] = _global(alias.name, source, scope, depth)
    return value_of(last.value, inner, depth)


def _comprehension(node: Any, scope: Scope, depth: int) -> List[Any]:
    loop = node.generators[0]
    if len(node.generators) != 1 or loop.ifs or not isinstance(loop.target, ast.Name):
        raise Unresolved(_text(node, scope))
    results = []
    for item in value_of(loop.iter, scope, depth):
        inner = Scope(
            scope.module, scope.fields, scope.names, {**scope.bound, loop.target.id: item}
        )
        results.append(value_of(node.elt, inner, depth))
    return results


def _joined(node: Any, scope: Scope, depth: int) -> str:
    """Work out an f-string; a part that is not known becomes an ellipsis (only help texts use them)."""
    parts = []
    for piece in node.values:
        inner = piece.value if isinstance(piece, ast.FormattedValue) else piece
        try:
            parts.append(str(value_of(inner, scope, depth)))
        except Unresolved:
            parts.append("…")
    return "".join(parts)


HANDLERS = {
    "Constant": _constant,
    "List": _sequence,
    "Tuple": _sequence,
    "Set": _sequence,
    "Dict": _dict,
    "Name": _name,
    "Attribute": _attribute,
    "BinOp": _binary,
    "UnaryOp": _unary,
    "Subscript": _subscript,
    "Call": _call,
    "ListComp": _comprehension,
    "SetComp": _comprehension,
    "GeneratorExp": _comprehension,
    "JoinedStr": _joined,
}
