"""The Python sources of a package: in a folder of an installed tree, or inside a wheel."""

from __future__ import annotations

import os
import re
from typing import Iterator, NamedTuple

from fleetctl.remote import instrument

MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\Z")


class Found(NamedTuple):
    """A file that defines a symbol: its path inside the tree, its bytes, the lines of the defs."""

    path: str
    data: bytes
    lines: list[int]


class FolderTree:
    """Packages as folders below one root (the folder that holds ``sglang/``)."""

    def __init__(self, root: str) -> None:
        self.root = root

    def files(self, module: str) -> Iterator[str]:
        """Yield the relative paths of a module, or of every module of a package, sorted."""
        base = os.path.join(self.root, *module.split("."))
        if os.path.isfile(base + ".py"):
            yield module.replace(".", "/") + ".py"
        for folder, names, files in os.walk(base):
            names[:] = sorted(n for n in names if n != "__pycache__")
            for name in sorted(files):
                if name.endswith(".py"):
                    path = os.path.relpath(os.path.join(folder, name), self.root)
                    yield path.replace(os.sep, "/")

    def read(self, path: str) -> bytes:
        """Return one file's bytes."""
        with open(os.path.join(self.root, *path.split("/")), "rb") as file:
            return file.read()


class WheelTree:
    """Packages inside a wheel or another zip file."""

    def __init__(self, path: str) -> None:
        import zipfile  # hosts look into folders only

        self.zip = zipfile.ZipFile(path)
        self.names = sorted(n for n in self.zip.namelist() if n.endswith(".py"))

    def files(self, module: str) -> Iterator[str]:
        """Yield the paths of a module, or of every module of a package, sorted."""
        base = module.replace(".", "/")
        return (n for n in self.names if n == base + ".py" or n.startswith(base + "/"))

    def read(self, path: str) -> bytes:
        """Return one file's bytes."""
        return self.zip.read(path)


def find(tree: FolderTree | WheelTree, module: str, symbol: str) -> list[Found]:
    """Return every file of a module or package that defines a function of that qualified name.

    A file that cannot be parsed does not define it. The text is looked at before it is parsed.
    """
    wanted = re.compile(rb"\bdef[ \t\f\\]+" + re.escape(symbol.split(".")[-1].encode()) + rb"\b")
    found = []
    for path in tree.files(module):
        data = tree.read(path)
        if wanted.search(data) is None:
            continue
        try:
            source = instrument.Source(data)
        except instrument.InstrumentError:
            continue
        lines = [n.lineno for n in instrument.definitions(source.tree, symbol)]
        if lines:
            found.append(Found(path, data, lines))
    return found
