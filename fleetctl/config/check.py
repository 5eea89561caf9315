"""From a document to a model: every fault at once, each at its line and column with a hint."""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fleetctl.config import schema
from fleetctl.config.nearest import did_you_mean
from fleetctl.config.nodes import Document, Path_
from fleetctl.errors import ConfigError, FleetError, ManyErrors

M = TypeVar("M", bound=BaseModel)


def validate(model: type[M], document: Document) -> M:
    """Return the model, or raise all of ``unknown-key``, ``missing-key`` and ``wrong-value`` at once.

    Those that the document kept come first.
    """
    found, faults = salvage(model, document)
    raise_all(faults)
    assert found is not None
    return found


def salvage(model: type[M], document: Document) -> tuple[M | None, list[FleetError]]:
    """Return the model of what is right in a document, and the faults of the rest.

    So that what only the reader of a file can tell is told together with them. No model where too
    little is left.
    """
    faults: list[FleetError] = list(document.faults)
    if not isinstance(document.value, dict):
        where = document.where()
        return None, [*faults, ConfigError("wrong-value", "a mapping is wanted", where=where)]
    value, gone = document.value, set[Path_]()
    while True:
        try:
            return model.model_validate(value), faults
        except ValidationError as error:
            wrong: list[dict[str, Any]] = [dict(e) for e in error.errors(include_url=False)]
        paths = [_left(_real(document, tuple(e["loc"])), gone) for e in wrong]
        # What contains a wrong value is wrong without it too: that is no fault of its own.
        held = {path[:end] for path in gone for end in range(len(path) + 1)}
        pairs = zip(wrong, paths, strict=True)
        faults += [_fault(model, document, e) for e, path in pairs if path not in held]
        if () in paths:
            return None, faults
        gone |= set(paths)
        value = _without(value, paths)


def _left(path: Path_, gone: set[Path_]) -> Path_:
    """Return a place that is still there: what needs a part that was taken away goes as a whole."""
    while path in gone:
        path = path[:-1]
    return path


def _without(value: Any, paths: Sequence[Path_]) -> Any:
    """Return a copy of nested values that lacks these."""
    if isinstance(value, dict):
        pairs = [(k, v, [p[1:] for p in paths if p[:1] == (k,)]) for k, v in value.items()]
        return {k: _without(v, inner) for k, v, inner in pairs if () not in inner}
    if isinstance(value, list):
        items = [(v, [p[1:] for p in paths if p[:1] == (n,)]) for n, v in enumerate(value)]
        return [_without(v, inner) for v, inner in items if () not in inner]
    return value


def raise_all(errors: list[FleetError]) -> None:
    """Raise nothing for none, the error for one, ManyErrors for more."""
    if errors:
        raise combined(errors)


def combined(errors: Sequence[FleetError]) -> FleetError:
    """Return the only error, or ManyErrors of all."""
    return errors[0] if len(errors) == 1 else ManyErrors(list(errors))


def by_place(errors: Sequence[FleetError]) -> list[FleetError]:
    """Return the errors of one file in the order of its lines."""

    def key(error: FleetError) -> tuple[int, ...]:
        return tuple(int(n) for n in error.where.split(":")[1:] if n.isdigit())

    return sorted(errors, key=key)


def gathered(error: FleetError) -> list[FleetError]:
    """Return the faults that one exception stands for."""
    return list(error.errors) if isinstance(error, ManyErrors) else [error]


def _fault(model: type[BaseModel], document: Document, error: dict[str, Any]) -> ConfigError:
    path = _real(document, error["loc"])
    name = str(path[-1]) if path else ""
    kind = error["type"]
    if kind == "extra_forbidden":
        known = _keys(model, path[:-1])
        return ConfigError(
            "unknown-key",
            f"{name!r} is not known here",
            where=document.where(path, key=True),
            hint=did_you_mean(name, known, f"known are {', '.join(known)}"),
        )
    if kind == "missing":
        return ConfigError(
            "missing-key", f"{error['loc'][-1]!r} is wanted here", where=document.where(path)
        )
    if error["loc"][-1] == "[key]":
        return ConfigError(
            "wrong-name", f"{name!r}: {_message(error)}", where=document.where(path, key=True)
        )
    if path and isinstance(path[-1], int):
        name = repr(str(error["input"]))  # one of a list has no name
    return ConfigError("wrong-value", f"{name}: {_message(error)}", where=document.where(path))


_FORMS = {
    schema.USER_FORM: "a user name is wanted: lower-case letters, digits, _ and -",
    schema.FOLDER_FORM: "an absolute path without %, $, quotes and backslashes is wanted",
}


def _message(error: dict[str, Any]) -> str:
    reason = error.get("ctx", {}).get("error")
    if reason is not None:
        return str(reason)
    match error["type"]:
        case "bool_type":
            return "true or false is wanted"
        case "list_type":
            return "a list is wanted, as in [a, b]"
        case "dict_type" | "model_type":
            return "a mapping is wanted"
        case "string_pattern_mismatch":
            return _FORMS[str(error["ctx"]["pattern"])]
        case _:
            return str(error["msg"]).replace("Input should be", "should be")


def _real(document: Document, loc: tuple[str | int, ...]) -> Path_:
    """Return the part of pydantic's path that exists in the file (it also names union members)."""
    path: Path_ = ()
    for part in loc:
        if (*path, part) in document.marks:
            path = (*path, part)
    return path


def _keys(model: type[BaseModel], path: Path_) -> list[str]:
    """Return the keys that are known at a path of the file."""
    kind: Any = model
    for part in path:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            by_key = {f.alias or n: f for n, f in kind.model_fields.items()}
            kind = _inner(by_key[str(part)].annotation)
        else:
            kind = _inner(typing.get_args(kind)[-1])
    return list(kind.known_keys())


def _inner(kind: Any) -> Any:
    """Return a type without ``Annotated`` and without ``| None``."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _inner(typing.get_args(kind)[0])
    if origin in (typing.Union, types.UnionType):
        return _inner(next(a for a in typing.get_args(kind) if a is not type(None)))
    return kind
