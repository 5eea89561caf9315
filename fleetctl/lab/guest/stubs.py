"""Stand-ins for packages that need a GPU to be of use: any submodule imports, any name is a dummy.

SGLang imports them while it starts, also where it then runs on the CPU and calls none of them.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any


class NoDriver:
    """What a GPU runtime says on a computer without one."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError("0 active drivers ([]). There should only be one.")


class DummyType(type):
    """A class whose every attribute is another dummy class."""

    def __getattr__(cls, name: str) -> object:
        return dummy(name)


def _hidden(name: str) -> bool:
    return name.startswith("__")


def _new(cls: type, *args: object, **kwargs: object) -> object:
    # A bare decorator hands back what it decorates.
    decorates = (
        len(args) == 1 and not kwargs and callable(args[0]) and not isinstance(args[0], type)
    )
    return args[0] if decorates else object.__new__(cls)


def _call(self: object, *args: object, **kwargs: object) -> object:
    return args[0] if len(args) == 1 and callable(args[0]) else self


def _get(self: object, name: str) -> object:
    if _hidden(name):
        raise AttributeError(name)
    return self


_BODY = {
    "__init__": lambda self, *args, **kwargs: None,
    "__new__": _new,
    "__call__": _call,
    "__getattr__": _get,
    "__getitem__": lambda self, key: self,
    "__iter__": lambda self: iter(()),
    "__lt__": lambda self, other: False,
    "__le__": lambda self, other: False,
    "__gt__": lambda self, other: False,
    "__ge__": lambda self, other: False,
    "__hash__": object.__hash__,
}


def dummy(name: str) -> object:
    """Return a dummy for a name: a class that takes anything and does nothing."""
    if _hidden(name):
        raise AttributeError(name)
    return NoDriver() if name == "driver" else DummyType(name, (object,), dict(_BODY))


class StubModule(types.ModuleType):
    """A module in which every name exists."""

    __version__: str

    def __getattr__(self, name: str) -> Any:
        value = dummy(name)
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes a stub of each module below the given packages."""

    def __init__(self, roots: tuple[str, ...]) -> None:
        self.roots = roots

    def find_spec(
        self, name: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for a stubbed package, None for any other."""
        if name.partition(".")[0] in self.roots:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> StubModule:
        """Return the empty stub."""
        module = StubModule(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Give the stub a version that passes the checks of those who import it."""
        module.__version__ = "3.5.0"  # type: ignore[attr-defined]


def install(*roots: str) -> None:
    """Stub these top-level packages from now on."""
    sys.meta_path.insert(0, Finder(roots))
