"""YAML as people mean it: unique keys, YAML 1.2 booleans, the text as written, and a place for every value."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fleetctl.errors import ConfigError, FleetError, ManyErrors

Path_ = tuple[str | int, ...]
_PLAIN_TAGS = {f"tag:yaml.org,2002:{t}" for t in ("str", "seq", "map")}
DEPTH_LIMIT = 64
NODE_LIMIT = 200_000


class Plain(str):
    """A scalar that was written without quotes: it alone can mean true, false or null."""

    __slots__ = ()


def is_null(value: Any) -> bool:
    """Return whether a value is an unquoted null of the YAML 1.2 core schema."""
    return isinstance(value, Plain) and value in ("", "~", "null", "Null", "NULL")


def as_bool(value: Any) -> bool | None:
    """Return the boolean of the YAML 1.2 core schema, or None: ``no`` and ``on`` are text."""
    if isinstance(value, Plain) and value in ("true", "True", "TRUE"):
        return True
    if isinstance(value, Plain) and value in ("false", "False", "FALSE"):
        return False
    return None


_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def as_json(value: Any) -> Any:
    """Return a value as JSON has it: unquoted numbers, booleans and null become what they look like."""
    if isinstance(value, dict):
        return {str(k): as_json(v) for k, v in value.items()}
    if isinstance(value, list):
        return [as_json(v) for v in value]
    if is_null(value):
        return None
    if (flag := as_bool(value)) is not None:
        return flag
    if isinstance(value, Plain) and _NUMBER.fullmatch(value):
        return float(value) if set(value) & set(".eE") else int(value)
    return str(value)


@dataclass(frozen=True, slots=True)
class Document:
    """A file's values (dict, list, text) and where each stands, by its path of keys and indices."""

    path: Path
    value: Any
    marks: dict[Path_, tuple[int, int]] = field(default_factory=dict)
    key_marks: dict[Path_, tuple[int, int]] = field(default_factory=dict)
    faults: tuple[
        FleetError, ...
    ] = ()  # what was left out of the values, for who shows all faults at once

    def where(self, path: Path_ = (), *, key: bool = False) -> str:
        """Return ``file:line:col`` of a value (or of its key), else of the nearest thing around it."""
        table = self.key_marks if key else self.marks
        for end in range(len(path), -1, -1):
            mark = table.get(path[:end]) or self.marks.get(path[:end])
            if mark is not None:
                return f"{shown_path(self.path)}:{mark[0]}:{mark[1]}"
        return shown_path(self.path)


def shown_path(path: Path) -> str:
    """Return the path as a person here would type it: relative when it lies below the working folder."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # chosen at run time
    """Takes every scalar as text; what it means is the reader's to say."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012  PyYAML's own class attribute


def load(path: Path, *, keep_faults: bool = False) -> Document:
    """Read one YAML file. Raises ConfigError, or ManyErrors for all repeated keys and odd tags at once.

    With ``keep_faults`` those two are left to ``validate``, which raises them with its own.
    """
    return parse(read_text(path, "utf-8-sig"), path, keep_faults=keep_faults)


def read_text(path: Path, encoding: str) -> str:
    """Return a file that people write. Raises ConfigError ``unreadable`` or ``not-utf8``."""
    try:
        return path.read_text(encoding=encoding)
    except UnicodeDecodeError as error:
        raise ConfigError(
            "not-utf8", f"byte {error.start} is not UTF-8", where=shown_path(path)
        ) from error
    except OSError as error:
        raise ConfigError(
            "unreadable", error.strerror or str(error), where=shown_path(path)
        ) from error


def parse(text: str, path: Path, *, keep_faults: bool = False) -> Document:
    """Read YAML text as if it stood in ``path``."""
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise _syntax(error, path) from error
    document = Document(path, {})
    if root is None:
        document.marks[()] = (1, 1)
        return document
    reader = _Reader(document)
    value = reader.read(root, ())
    if reader.errors and not keep_faults:
        raise ManyErrors(reader.errors) if len(reader.errors) > 1 else reader.errors[0]
    return Document(path, value, document.marks, document.key_marks, tuple(reader.errors))


def _syntax(error: yaml.YAMLError, path: Path) -> ConfigError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    hint = "one file holds one document" if "document" in str(problem) else ""
    return ConfigError("yaml-syntax", str(problem), where=f"{shown_path(path)}{place}", hint=hint)


class _Reader:
    """Walks the node tree once, noting marks and collecting faults."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.errors: list[FleetError] = []
        self._nodes = 0

    def read(self, node: yaml.Node, path: Path_) -> Any:
        self._nodes += 1
        self.document.marks[path] = _mark(node)
        if len(path) > DEPTH_LIMIT or self._nodes > NODE_LIMIT:
            raise ConfigError(
                "yaml-too-large",
                "nested too deeply, or aliases that unfold without end",
                where=self.document.where(path),
            )
        if node.tag not in _PLAIN_TAGS and node.tag != "!":
            self._fault("yaml-tag", f"the tag {node.tag} has no meaning here", node)
        if isinstance(node, yaml.MappingNode):
            return dict(self._pairs(node, path))
        if isinstance(node, yaml.SequenceNode):
            return [self.read(child, (*path, n)) for n, child in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return str(node.value) if node.style else Plain(node.value)

    def _pairs(self, node: yaml.MappingNode, path: Path_) -> Iterator[tuple[str, Any]]:
        seen: dict[str, tuple[int, int]] = {}
        for key, child in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._fault("yaml-key", "a key must be text", key)
                continue
            name = str(key.value)
            if name in seen:
                self._fault(
                    "duplicate-key",
                    f"{name!r} stands here twice, first in line {seen[name][0]}",
                    key,
                )
                continue
            seen[name] = self.document.key_marks[(*path, name)] = _mark(key)
            yield name, self.read(child, (*path, name))

    def _fault(self, reference: str, message: str, node: yaml.Node) -> None:
        line, column = _mark(node)
        where = f"{shown_path(self.document.path)}:{line}:{column}"
        self.errors.append(ConfigError(reference, message, where=where))


def _mark(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1
