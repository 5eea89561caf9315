"""patch.toml as pydantic models: what may be written, and what each key means."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from fleetctl.config.schema import Written
from fleetctl.patching.model import NAME, AtExpiry, Rung, Value

_UNITS = {"m": 60, "h": 3600, "d": 86400}
_SYMBOL = re.compile(
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:(?:(?:[A-Za-z_]\w*|\*|<locals>)\.)*[A-Za-z_]\w*\Z"
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
MAXIMUM_DAYS = 30


def seconds(text: object) -> object:
    """Return the seconds of ``30m``, ``4h`` or ``2d``; anything else as it is."""
    match = re.fullmatch(r"(\d{1,4})([mhd])", text) if isinstance(text, str) else None
    return int(match[1]) * _UNITS[match[2]] if match else text


def duration(text: object) -> float:
    """Return seconds between a minute and 30 days. Raises ValueError."""
    found = seconds(text)
    if not isinstance(found, int) or not 60 <= found <= MAXIMUM_DAYS * 86400 or found is True:
        raise ValueError(f"30m, 4h or 2d is wanted, at most {MAXIMUM_DAYS}d")
    return float(found)


def _specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError("a version specifier is wanted, as in >=0.5.10,<0.6") from error
    return text


def _name(text: str) -> str:
    if not NAME.match(text):
        raise ValueError("a-z, 0-9 and dashes are wanted, at most 63")
    return text


def _symbol(text: str) -> str:
    if not _SYMBOL.match(text):
        raise ValueError("module.or.package:function or …:Class.method is wanted")
    return text


def _file(text: str) -> str:
    if "/" in text or text.startswith(".") or not text.endswith((".j2", ".py", ".patch", ".diff")):
        raise ValueError("a file of this folder is wanted: NAME.py.j2, NAME.py, NAME.patch")
    return text


def _variable(text: str) -> str:
    if not _VARIABLE.match(text):
        raise ValueError("the name of a variable is wanted")
    return text


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return text


Specifier = Annotated[str, AfterValidator(_specifier)]
Name = Annotated[str, AfterValidator(_name)]
FileName = Annotated[str, AfterValidator(_file)]
Variable = Annotated[str, AfterValidator(_variable)]
Duration = Annotated[float, BeforeValidator(duration)]
Line = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\n]*$")]


class Strict(Written):
    """TOML has types: what is written as another one is a fault, as is an unknown key."""

    model_config = ConfigDict(strict=True)


class TargetEntry(Strict):
    """One function, wherever the installed version defines it."""

    symbol: Annotated[str, AfterValidator(_symbol)]
    block: FileName
    sglang: Specifier = ""
    optional: bool = False
    variables: dict[Variable, Value] = Field(default_factory=dict)
    rebinds: list[Variable] = Field(default_factory=list)


class DiffEntry(Strict):
    """A unified diff for the versions it was made for."""

    file: FileName
    sglang: Specifier = Field(min_length=1)
    base: dict[str, Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]] = Field(default_factory=dict)


class ParameterEntry(Strict):
    """A value that ``--param`` may set; its type is that of the default."""

    default: Value
    help: str = ""
    choices: list[Value] = Field(default_factory=list)
    minimum: float | int | None = None
    maximum: float | int | None = None


class MarkerEntry(Strict):
    """What the patch says, and what silence means."""

    regex: Annotated[str, AfterValidator(_regex)] = ""
    captures: dict[Variable, Line] = Field(default_factory=dict)
    silent: Line | None = None


class PatchFile(Strict):
    """The whole file."""

    name: Name
    summary: Line
    why: str = ""
    sglang: Specifier = Field(min_length=1)
    tried: list[str] = Field(default_factory=list)
    rung: Annotated[Rung, BeforeValidator(lambda v: _member(Rung, v))] = Rung.OVERLAY
    expire: Duration
    at_expiry: Annotated[AtExpiry, BeforeValidator(lambda v: _member(AtExpiry, v))] = AtExpiry.WARN
    target: list[TargetEntry] = Field(default_factory=list)
    diff: list[DiffEntry] = Field(default_factory=list)
    environment: dict[Variable, str] = Field(default_factory=dict)
    parameters: dict[Variable, ParameterEntry] = Field(default_factory=dict)
    marker: MarkerEntry = Field(default_factory=MarkerEntry)
    schema_: Literal["fleetctl.patch/1"] = Field("fleetctl.patch/1", alias="schema")


def _member(kind: type[Rung] | type[AtExpiry], value: object) -> object:
    try:
        return kind(str(value))
    except ValueError as error:
        raise ValueError(f"{' or '.join(kind)} is wanted") from error
