"""``--set`` and ``--unset``: a profile changed for one launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from fleetctl.config.check import raise_all
from fleetctl.config.nearest import did_you_mean
from fleetctl.config.nodes import Plain, parse
from fleetctl.config.profiles import Merge
from fleetctl.config.schema import REMOVED, EnvName, Flag, FlagName, UnitEntry
from fleetctl.errors import FleetError, UsageError
from fleetctl.model.fleet import Origin

_FLAG: TypeAdapter[Any] = TypeAdapter(Flag)
_FLAG_NAME: TypeAdapter[str] = TypeAdapter(FlagName)
_ENV_NAME: TypeAdapter[str] = TypeAdapter(EnvName)


def apply(merge: Merge, sets: tuple[str, ...], unsets: tuple[str, ...]) -> None:
    """Change the merged values. ``name``, ``env.NAME``, ``unit.name`` and ``model`` can be given.

    Unsets come first, so that a flag can be taken away and set anew. Raises UsageError, or
    ManyErrors for all wrong options at once.
    """
    errors: list[FleetError] = []
    for option, texts, act in (("--unset", unsets, _unset), ("--set", sets, _set)):
        for text in texts:
            try:
                act(merge, text, Origin(f"{option} {text}"))
            except UsageError as error:
                errors.append(error)
            except (ValidationError, ValueError) as error:
                errors.append(UsageError("bad-set", f"{option} {text}: {_reason(error)}"))
    raise_all(errors)


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        reason = first.get("ctx", {}).get("error")
        return str(reason or first["msg"]).replace("Input should be", "should be")
    return str(error)


def value_of(text: str) -> Any:
    """Return what ``--set name=TEXT`` means: a list or a mapping in brackets, else the text as typed."""
    if text[:1] in ("[", "{"):
        try:
            return parse(text, Path("--set")).value
        except FleetError:
            return text  # it only looked like YAML: pass it on as it is
    return Plain(text) if text else ""


def _set(merge: Merge, text: str, origin: Origin) -> None:
    name, equals, written = text.partition("=")
    value = value_of(written) if equals else True
    kind, _, rest = name.partition(".")
    if name == "model":
        if not written:
            raise ValueError("a model is wanted")
        merge.model = written
        merge.origins["model"] = origin
    elif kind == "env" and rest:
        merge.put("env", _ENV_NAME.validate_python(rest), _env_text(written), origin)
    elif kind == "unit" and rest:
        _set_unit(merge, rest, value, origin)
    else:
        merge.put("flags", _FLAG_NAME.validate_python(name), _FLAG.validate_python(value), origin)


def _env_text(text: str) -> str:
    if any(c in text for c in "\0\n\r"):
        raise ValueError("one line of text is wanted")
    return text


def _set_unit(merge: Merge, name: str, value: Any, origin: Origin) -> None:
    if name not in UnitEntry.model_fields:
        raise UsageError(
            "unknown-key",
            f"unit has no {name!r}",
            hint=did_you_mean(name, UnitEntry.model_fields, ", ".join(UnitEntry.model_fields)),
        )
    checked: BaseModel = UnitEntry.model_validate({name: value})
    merge.unit[name] = getattr(checked, name)
    merge.origins[f"unit.{name}"] = origin


def _unset(merge: Merge, name: str, origin: Origin) -> None:
    del origin
    known = [*_names(merge, "flags"), *(f"env.{n}" for n in _names(merge, "env"))]
    known += [f"unit.{n}" for n in merge.unit]
    if name not in known:
        raise UsageError(
            "unset-nothing",
            f"--unset {name}: the profile does not have it",
            hint=did_you_mean(name, known, f"it has {', '.join(known) or 'no flags'}"),
        )
    kind, _, rest = name.partition(".")
    if kind == "unit" and rest:
        del merge.unit[rest]
        merge.origins.pop(name, None)
    elif kind == "env" and rest:
        merge.put("env", rest, REMOVED, Origin(""))
    else:
        merge.put("flags", name, REMOVED, Origin(""))


def _names(merge: Merge, kind: str) -> list[str]:
    plain, secret = merge.tables(kind)
    return [*plain, *secret]
