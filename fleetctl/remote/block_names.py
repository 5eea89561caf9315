"""Which names a block reads, and whether the function that it goes into has them.

A function whose arguments were renamed would else fail by the block itself, in a server that serves.
"""

from __future__ import annotations

import ast
import builtins
from typing import Any, Sequence

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
KNOWN = {*dir(builtins), "__file__"}
ALL = "*"


def missing(block: Sequence[Any], node: Any, tree: ast.AST) -> list[str]:
    """Return the names that a block reads and that are no argument, no global and not its own."""
    wanted = reads(block) - arguments(node) - KNOWN
    if not wanted:
        return []
    found = _outside(tree, node)
    return [] if ALL in found else sorted(wanted - found)


def arguments(node: Any) -> set[str]:
    """Return the names of a function's arguments."""
    found = [*getattr(node.args, "posonlyargs", []), *node.args.args, *node.args.kwonlyargs]
    return {a.arg for a in [*found, node.args.vararg, node.args.kwarg] if a is not None}


def reads(block: Sequence[Any]) -> set[str]:
    """Return the names that statements read where they stand and do not bind themselves."""
    loads: set[str] = set()
    binds: set[str] = set()
    stack: list[Any] = list(block)
    while stack:
        node = stack.pop()
        if isinstance(node, (*FUNCTIONS, ast.Lambda)):  # what stands inside is looked up later
            stack += [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
        else:
            stack += list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            loads.add(node.id)
        binds |= _bound(node)
    return loads - binds


def _bound(node: Any) -> set[str]:
    """Return the names that one node binds in its scope."""
    if isinstance(node, ast.Name):
        return set() if isinstance(node.ctx, ast.Load) else {node.id}
    if isinstance(node, SCOPES):
        return {node.name}
    if isinstance(node, ast.alias):
        return {(node.asname or node.name).split(".")[0]}
    return {node.name} if isinstance(node, ast.ExceptHandler) and node.name else set()


def _outside(tree: ast.AST, node: Any) -> set[str]:
    """Return the names of the module and of the functions around one."""
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    found = _bound_in(tree)
    while node in parents:
        node = parents[node]
        if isinstance(node, FUNCTIONS):
            found |= arguments(node) | _bound_in(node)
    return found | {n for g in ast.walk(tree) if isinstance(g, ast.Global) for n in g.names}


def _bound_in(scope: ast.AST) -> set[str]:
    """Return the names that a scope itself binds."""
    found: set[str] = set()
    stack: list[Any] = list(ast.iter_child_nodes(scope))
    while stack:
        node = stack.pop()
        found |= _bound(node)
        if not isinstance(node, SCOPES):
            stack += list(ast.iter_child_nodes(node))
    return found
