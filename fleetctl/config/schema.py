"""What people write: hosts.yaml and profile files, as pydantic models that refuse what they do not know."""

from __future__ import annotations

import re
from enum import Enum
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    WithJsonSchema,
    model_validator,
)

from fleetctl.config.nodes import Plain, as_bool, as_json, is_null

USER_FORM = r"^[a-z_][a-z0-9_-]*$"
FOLDER_FORM = r"^/[^%$\"'\\]*$"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SERVICE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
FLAG_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Removed(Enum):
    """``false`` or ``null``: take the inherited value away."""

    REMOVED = "removed"


REMOVED = Removed.REMOVED


def _bool(value: Any) -> Any:
    found = as_bool(value)
    return value if found is None else found


def _whole(value: Any) -> Any:
    if isinstance(value, Plain) and re.fullmatch(r"[0-9]+", value):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("a whole number is wanted")


def _text(value: Any) -> str:
    if not isinstance(value, str) or is_null(value):
        raise ValueError("text is wanted")
    if any(c in value for c in "\0\n\r"):
        raise ValueError("one line of text is wanted")
    return str(value)


def _text_list(value: Any) -> Any:
    return [value] if isinstance(value, str) and not is_null(value) else value


def _flag(value: Any) -> Any:
    """Return True, REMOVED, text as written, a tuple of texts, or a dict for JSON."""
    if is_null(value) or as_bool(value) is False or value is False or value is None:
        return REMOVED
    if value is True or as_bool(value):
        return True
    if isinstance(value, dict):
        return as_json(value)
    if isinstance(value, list):
        if not value:
            raise ValueError("an empty list passes no value; null takes the flag away")
        if any(not isinstance(v, str) or is_null(v) for v in value):
            raise ValueError("a list holds plain values; write JSON as a mapping or as quoted text")
        return tuple(_text(v) for v in value)
    return _text(value)


def _env(value: Any) -> Any:
    return REMOVED if is_null(value) or value is None else _text(value)


def _flag_name(name: str) -> str:
    bare = name.lstrip("-").replace("_", "-").lower()
    if name in ("model", "model-path"):
        raise ValueError("write it as `model:` of the profile")
    if name == "port":
        raise ValueError("the port belongs to the service, in hosts.yaml")
    if name == "config":
        raise ValueError("fleetctl passes secrets by --config itself; write its flags here")
    if not FLAG_NAME.fullmatch(name):
        raise ValueError(f"SGLang's spelling without the dashes is wanted: {bare}")
    return name


def _env_name(name: str) -> str:
    if not ENV_NAME.fullmatch(name):
        raise ValueError("letters, digits and _ are allowed in the name of a variable")
    return name


def _gpu_list(value: Any) -> Any:
    """Return the numbers of ``[0, 1]`` or of the text ``0-3``."""
    if isinstance(value, Plain) and re.fullmatch(r"[0-9]+(-[0-9]+)?", value):
        first, _, last = value.partition("-")
        return list(range(int(first), int(last or first) + 1))
    return value


def _become(value: Any) -> Any:
    return None if as_bool(value) is False else value


_SCALAR = {"type": ["string", "number"]}
Bool = Annotated[StrictBool, BeforeValidator(_bool)]
Whole = Annotated[int, BeforeValidator(_whole)]
Text = Annotated[str, BeforeValidator(_text), WithJsonSchema(_SCALAR)]
TextList = Annotated[
    list[Text],
    BeforeValidator(_text_list),
    WithJsonSchema({"anyOf": [_SCALAR, {"type": "array", "items": _SCALAR}]}),
]
Port = Annotated[int, Field(ge=1, le=65535), BeforeValidator(_whole)]
FlagName = Annotated[str, AfterValidator(_flag_name)]
EnvName = Annotated[str, AfterValidator(_env_name)]
Flag = Annotated[
    Any,
    BeforeValidator(_flag),
    WithJsonSchema({
        "description": "true: a bare switch; false or null: take an inherited one away; "
        "a list: several values; a mapping: JSON",
        "type": ["string", "number", "boolean", "null", "array", "object"],
    }),
]  # fmt: skip
Env = Annotated[
    Any,
    BeforeValidator(_env),
    WithJsonSchema({"type": ["string", "number", "boolean", "null"]}),
]


def _takes_none(annotation: Any) -> bool:
    return type(None) in get_args(annotation)


class Written(BaseModel):
    """The base of everything people write. A key without a value counts as not written."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _nulls(cls, value: Any) -> Any:
        if is_null(value):
            return {}
        if not isinstance(value, dict):
            return value
        optional = {f.alias or n for n, f in cls.model_fields.items() if _takes_none(f.annotation)}
        return {
            k: None if is_null(v) else v
            for k, v in value.items()
            if k in optional or k not in cls.known_keys() or not is_null(v)
        }

    @classmethod
    def known_keys(cls) -> list[str]:
        """Return the keys as they are written."""
        return [f.alias or n for n, f in cls.model_fields.items()]


class ServiceEntry(Written):
    """One server on a host."""

    gpus: Annotated[
        list[Whole] | None,
        BeforeValidator(_gpu_list),
        WithJsonSchema(
            {"anyOf": [{"type": "array", "items": {"type": "integer"}}, _SCALAR, {"type": "null"}]}
        ),
    ] = Field(None, description="Indices of its GPUs, as [0, 1] or 0-3; default: all of the host's")
    port: Port = Field(30000, description="HTTP port")


class HostDefaults(Written):
    """Settings that a host takes unless it says otherwise."""

    user: Text | None = Field(None, description="Login name; default: as ssh_config says")
    port: Port | None = Field(None, description="SSH port")
    key: Text | None = Field(None, description="Private key file")
    known_hosts: Text | None = Field(None, description="known_hosts file of its own")
    jump: Text | None = Field(None, description="A host of this inventory or an ssh_config alias")
    become: Annotated[Literal["sudo"] | None, BeforeValidator(_become)] = Field(
        None, description="sudo: run the agent as root by `sudo -n`; false: as the login user"
    )
    groups: TextList = Field(default_factory=list, description="Selected by @group")
    protected: Bool = Field(False, description="Ask for the host's name before a stop")
    gpus: Whole = Field(0, description="How many GPUs the host has")
    services: dict[str, ServiceEntry] | None = Field(
        None, description="Default: one, `main`; {}: none, as for a bastion"
    )
    transport: Literal["ssh", "local"] = Field("ssh", description="local: this very machine")
    python: Text = Field("python3", description="Runs the agent (3.8 or newer)")
    env: dict[EnvName, Env] = Field(default_factory=dict, description="Over the profile's env")
    flags: dict[FlagName, Flag] = Field(
        default_factory=dict, description="Over the profile's flags"
    )


class HostEntry(HostDefaults):
    """One host, or a range of hosts."""

    address: Text | None = Field(
        None, description="Name or address; {n}: the range's number, {name}: the host's name"
    )


class HostsFile(Written):
    """hosts.yaml: the machines of a site."""

    defaults: HostDefaults = Field(default_factory=lambda: HostDefaults.model_validate({}))
    hosts: dict[str, HostEntry]


class SecretEntry(Written):
    """Where a secret comes from; exactly one of the three."""

    env: Text | None = Field(None, description="A variable of the operator's environment")
    file: Text | None = Field(None, description="A file on the operator's machine")
    command: Text | None = Field(None, description="A command that prints it (run without a shell)")

    @model_validator(mode="after")
    def _one(self) -> SecretEntry:
        if sum(v is not None for v in (self.env, self.file, self.command)) != 1:
            raise ValueError("one of env, file or command is wanted")
        return self


def _none(value: Any) -> Any:
    return None if is_null(value) or as_bool(value) is False else value


# None takes an inherited one away.
Secret = Annotated[SecretEntry | None, BeforeValidator(_none)]


class SecretsEntry(Written):
    """Secrets by reference. Flags go to SGLang in a 0600 file, variables in another."""

    flags: dict[FlagName, Secret] = Field(default_factory=dict)
    env: dict[EnvName, Secret] = Field(default_factory=dict)


class SglangEntry(Written):
    """Which SGLang runs."""

    python: Text | None = Field(None, description="Absolute path of its interpreter on the host")
    schema_: Text | None = Field(
        None,
        alias="schema",
        description="Where flags are looked up: installed, a version, or a schema file of the site",
    )


class UnitEntry(Written):
    """Settings of the systemd unit; docs/howto/profiles.md has the reason of each default."""

    timeout_stop: Whole | None = Field(None, description="Seconds for a stop; default 180")
    restart: Literal["on-failure", "always", "no"] | None = Field(
        None, description="Default on-failure"
    )
    restart_sec: Whole | None = Field(None, description="Seconds before a restart; default 15")
    start_limit_burst: Whole | None = Field(None, description="Starts allowed …; default 3")
    start_limit_interval: Whole | None = Field(
        None, description="… within these seconds; default 3600"
    )
    user: Annotated[Text, Field(pattern=USER_FORM)] | None = Field(
        None, description="User that runs SGLang; default root"
    )
    working_directory: Annotated[Text, Field(pattern=FOLDER_FORM)] | None = None
    limit_nofile: Whole | None = Field(None, description="Open files; default 1048576")
    enable: Bool | None = Field(None, description="Start at boot; default false")


DIAG = ("request-dumps", "cuda-coredumps", "user-coredumps", "flight-recorder", "nccl-log")
Diag = Literal["request-dumps", "cuda-coredumps", "user-coredumps", "flight-recorder", "nccl-log"]


class ProfileFile(Written):
    """profiles/<name>.yaml: what should run, not yet where."""

    name: Text | None = Field(None, description="The file's own name")
    description: Text | None = None
    extends: TextList = Field(
        default_factory=list, description="Profiles to start from; later wins"
    )
    model: Text | None = Field(None, description="Path or name of the model")
    flags: dict[FlagName, Flag] = Field(default_factory=dict)
    env: dict[EnvName, Env] = Field(default_factory=dict)
    secrets: SecretsEntry = Field(default_factory=lambda: SecretsEntry.model_validate({}))
    sglang: SglangEntry = Field(default_factory=lambda: SglangEntry.model_validate({}))
    runtime: Literal["systemd", "systemd-user", "docker", "process"] | None = None
    unit: UnitEntry = Field(default_factory=lambda: UnitEntry.model_validate({}))
    diag: list[Diag] | None = Field(None, description="Named diagnostics; none by default")
    nodes: Annotated[int, Field(ge=1), BeforeValidator(_whole)] | None = None
    patches: list[Text] | None = Field(None, description="Patches that must be active")
