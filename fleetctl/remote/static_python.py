"""Reads values out of Python source without importing it: from a wheel, an installed tree or a checkout.

What cannot be worked out raises ``Unresolved`` with the source text of the expression: nothing is guessed.
"""

from __future__ import annotations

import ast
import os
import re
import zipfile
from typing import Any, Dict, Iterator, List, Optional, Tuple

_IMPORT = re.compile(r"^from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n(]+)", re.M)
_NEXT = re.compile(r"^[\w@#\"']", re.M)
_COMMENT = re.compile(r"#[^\n]*")
_DEF = re.compile(r"^( *)(?:async )?def (\w+)")


class Unresolved(Exception):
    """An expression whose value only a running program knows; the text is the expression's."""


class EnumMember:
    """A member of an Enum class: its name and its value."""

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value


class Tree:
    """The files of one package, by their path inside it, from a folder or a zip file."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._zip: Optional[zipfile.ZipFile] = None
        self._prefix = ""
        if os.path.isfile(root):
            self._zip = zipfile.ZipFile(root)
            self._prefix = "sglang/"

    def read(self, path: str) -> Optional[str]:
        """Return a file's text, or None when there is no such file."""
        data = self.read_bytes(path)
        return None if data is None else data.decode("utf-8", "replace")

    def read_bytes(self, path: str) -> Optional[bytes]:
        """Return a file's bytes, or None when there is no such file."""
        try:
            if self._zip is not None:
                return self._zip.read(self._prefix + path)
            with open(os.path.join(self.root, path), "rb") as file:
                return file.read()
        except (KeyError, FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def files(self, suffixes: Tuple[str, ...]) -> Iterator[str]:
        """Yield the paths of all files with one of those endings."""
        if self._zip is not None:
            for name in self._zip.namelist():
                if name.startswith(self._prefix) and name.endswith(suffixes):
                    yield name[len(self._prefix) :]
            return
        for folder, _, names in os.walk(self.root):
            for name in names:
                if name.endswith(suffixes):
                    yield os.path.relpath(os.path.join(folder, name), self.root)


class Module:
    """One source file; it is parsed as far as it is asked about."""

    def __init__(self, package: Package, path: str, text: str) -> None:
        self.package = package
        self.path = path
        self.text = text
        self._tree: Optional[ast.Module] = None
        self._found: Dict[str, Optional[ast.stmt]] = {}

    def skim(self, keep: Tuple[str, ...]) -> ast.Module:
        """Return the file parsed without the bodies of functions that are not named: a third of the time."""
        if self._tree is None:
            try:
                self._tree = ast.parse(without_bodies(self.text, keep))
            except SyntaxError:
                self._tree = ast.parse(self.text)
        return self._tree

    def find(self, name: str) -> Optional[ast.stmt]:
        """Return the last top-level statement that defines a name, imports left out."""
        if name not in self._found:
            self._found[name] = self._chunk(name)
        return self._found[name]

    def _whole(self, name: str) -> Optional[ast.stmt]:
        found: Optional[ast.stmt] = None
        for node in ast.parse(self.text).body:
            if name in defined_by(node):
                found = node
        return found

    def _chunk(self, name: str) -> Optional[ast.stmt]:
        """Parse only the statement: a file of 4,000 lines costs 80 ms, its one list none."""
        pattern = r"^(?:(?:async )?def|class)[ \t]+%s\b|^%s[ \t]*(?::[^=\n]+)?=(?!=)" % (name, name)
        starts = [m.start() for m in re.finditer(pattern, self.text, re.M)]
        if not starts:
            return None
        start = starts[-1]
        above = "\n" * self.text.count("\n", 0, start)  # keeps the line numbers
        for match in _NEXT.finditer(self.text, self.text.find("\n", start) + 1):
            try:
                return ast.parse(above + self.text[start : match.start()]).body[0]
            except SyntaxError:
                continue
        try:
            return ast.parse(above + self.text[start:]).body[0]
        except SyntaxError:
            return self._whole(name)

    def imported(self, name: str) -> Optional[Tuple[Module, str]]:
        """Return the module of the same package and the name there that an import brings in."""
        for match in _IMPORT.finditer(self.text):
            for item in _COMMENT.sub("", match.group(2)).strip("()").split(","):
                words = item.split()
                if words and words[-1] in (name, "*"):
                    module = self.package.module(self._absolute(match.group(1)))
                    if words[-1] == name:
                        return None if module is None else (module, words[0])
                    if module is not None and module is not self and module.find(name):
                        return module, name
        return None

    def _absolute(self, dotted: str) -> str:
        if not dotted.startswith("."):
            return dotted
        up = len(dotted) - len(dotted.lstrip("."))
        here = self.path.split("/")[:-up]
        return ".".join(["sglang", *here, *filter(None, [dotted.lstrip(".")])])


class Package:
    """The modules of one tree by dotted name."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._modules: Dict[str, Optional[Module]] = {}

    def module(self, dotted: str) -> Optional[Module]:
        """Return a module of the package, or None for another package's."""
        if not dotted.startswith("sglang."):
            return None
        if dotted not in self._modules:
            base = dotted[len("sglang.") :].replace(".", "/")
            self._modules[dotted] = None
            for path in (base + ".py", base + "/__init__.py"):
                text = self.tree.read(path)
                if text is not None:
                    self._modules[dotted] = Module(self, path, text)
                    break
        return self._modules[dotted]


def without_bodies(text: str, keep: Tuple[str, ...]) -> str:
    """Return source with the bodies of other functions emptied; line numbers stay."""
    lines = text.split("\n")
    inside: Optional[int] = None  # the indentation of the function being emptied
    for number, line in enumerate(lines):
        depth = len(line) - len(line.lstrip(" "))
        if inside is not None:
            if not line.strip() or depth > inside or line.lstrip().startswith(")"):
                lines[number] = ""
                continue
            inside = None
        match = _DEF.match(line)
        if match and match.group(2) not in keep and depth <= 4:
            inside = depth
            lines[number] = match.group(1) + "def " + match.group(2) + "(): pass"
    return "\n".join(lines)


def defined_by(node: ast.stmt) -> List[str]:
    """Return the names that a statement defines, imports left out."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        return [node.target.id] if isinstance(node.target, ast.Name) else []
    if isinstance(node, ast.Assign):
        return [t.id for t in node.targets if isinstance(t, ast.Name)]
    return []


def last_name(node: Optional[ast.AST]) -> str:
    """Return ``c`` of ``a.b.c``, "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def source_text(node: Any, module: Module) -> str:
    """Return an expression as one line of source (``ast.unparse`` is newer than Python 3.8)."""
    if not hasattr(node, "lineno"):
        return ast.dump(node)
    lines = module.text.split("\n")[node.lineno - 1 : node.end_lineno]
    raw = [line.encode("utf-8") for line in lines]
    raw[-1] = raw[-1][: node.end_col_offset]
    raw[0] = raw[0][node.col_offset :]
    return " ".join(b" ".join(raw).decode("utf-8", "replace").split())
