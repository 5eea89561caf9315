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
    if not isinstance(document.value, dict):
        raise ConfigError("wrong-value", "a mapping is wanted", where=document.where())
    try:
        found = model.model_validate(document.value)
    except ValidationError as error:
        faults = [_fault(model, document, dict(e)) for e in error.errors(include_url=False)]
        raise combined([*document.faults, *faults]) from error
    raise_all(list(document.faults))
    return found


def raise_all(errors: list[FleetError]) -> None:
    """Raise nothing for none, the error for one, ManyErrors for more."""
    if errors:
        raise combined(errors)


def combined(errors: Sequence[FleetError]) -> FleetError:
    """Return the only error, or ManyErrors of all."""
    return errors[0] if len(errors) == 1 else ManyErrors(list(errors))


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
