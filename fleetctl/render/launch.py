"""A profile on a target: argument vector, environment, files, unit, and the launch configuration."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from fleetctl.config.secrets import Secrets
from fleetctl.errors import ConfigError
from fleetctl.model.fleet import Host, Profile, SecretRef, Service, Target
from fleetctl.model.launch import Atom, LaunchConfig, diff_configs
from fleetctl.model.plan import MASK, WriteFile
from fleetctl.render import in_the_open, quote, unit
from fleetctl.render.arguments import flag_words
from fleetctl.render.diag import DIAGNOSTICS, diagnostics

ETC = "/etc/fleetctl"
UNITS = "/etc/systemd/system"
COLLECTOR = "/var/lib/fleetctl/lib/collect.py"
SYSTEM_PATH = "/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MARK = "# Written by fleetctl"


@dataclass(frozen=True, slots=True)
class Rendered:
    """Everything that one launch puts on a host. ``files`` holds the unit's file too, last."""

    profile: Profile
    target: Target
    argv: tuple[str, ...]
    env: dict[str, str]
    files: tuple[WriteFile, ...]
    unit_text: str
    config: LaunchConfig
    settings: dict[str, Any]
    complete: bool  # False: secrets were not fetched, their files hold a mask
    warnings: tuple[str, ...] = ()
    version: str | None = None
    obsolete: tuple[str, ...] = field(
        default=()
    )  # files of a service that this launch has no use for

    @property
    def unit(self) -> str:
        """Return the unit's name."""
        return self.target.service.unit

    @property
    def unit_path(self) -> str:
        """Return where the unit's file goes."""
        return f"{UNITS}/{self.unit}"


def render(
    profile: Profile,
    target: Target,
    *,
    version: str | None = None,
    secrets: Secrets | None = None,
    versions: Mapping[str, str] | None = None,
    systemd: int | None = None,
    templates: Mapping[str, str] | None = None,
    patches: Mapping[str, str] | None = None,
) -> Rendered:
    """Return what the launch consists of; nothing is read but the shipped templates.

    ``version`` is the host's SGLang, ``versions`` go into the launch configuration, ``systemd`` is
    the host's major version (newer settings only when it is known), ``templates`` are the site's
    own, ``patches`` the active ones by hash. Without ``secrets`` their files hold a mask.
    Raises ConfigError for what cannot be rendered.
    """
    _refuse(profile)
    settings = unit.settings(profile.unit)
    flags, env = _merged(profile, target, version or "")
    in_the_open.refuse(flags, profile.origins)
    paths = _Paths(target.service.name)
    argv = [profile.python, "-m", "sglang.launch_server"]
    argv += ["--model-path", profile.model, "--port", str(target.service.port)]
    if profile.secret_flags:
        argv += ["--config", paths.secret_flags]
    argv += flag_words(flags)

    files = [WriteFile(paths.environment, _environment(env, templates or {}))]
    files += _secret_files(profile, secrets, paths, settings["user"], templates or {})
    text = unit.fill(
        "sglang.service.j2",
        templates or {},
        _values(profile, target, settings, argv, paths, systemd),
    )
    files.append(WriteFile(f"{UNITS}/{target.service.unit}", text))
    return Rendered(
        profile=profile,
        target=target,
        argv=tuple(argv),
        env=env,
        files=tuple(files),
        unit_text=text,
        config=_config(profile, target, flags, env, settings, versions, patches),
        settings=settings,
        complete=secrets is not None or not (profile.secret_flags or profile.secret_env),
        warnings=(
            *(f"diag {n} {DIAGNOSTICS[n].costs}" for n in profile.diag),
            *in_the_open.warnings(profile),
        ),
        version=version,
        obsolete=tuple(
            path
            for path, wanted in (
                (paths.secret_env, profile.secret_env),
                (paths.secret_flags, profile.secret_flags),
            )
            if not wanted
        ),
    )


def compare(before: Profile, after: Profile) -> tuple[Atom, ...]:
    """Return the atoms in which two profiles differ, wherever they run."""
    anywhere = Target(Host("anywhere", ""), Service())
    return diff_configs(render(before, anywhere).config, render(after, anywhere).config)


class _Paths:
    """The files of one service."""

    def __init__(self, service: str) -> None:
        self.environment = f"{ETC}/{service}/environment"
        self.secret_env = f"{ETC}/{service}/secrets.env"
        self.secret_flags = f"{ETC}/{service}/secrets.yaml"


def _refuse(profile: Profile) -> None:
    if not profile.model:
        raise ConfigError(
            "missing-model", f"profile {profile.name} names no model", hint="add `model: /path`"
        )
    if profile.runtime != "systemd":
        raise _unsupported(profile, "runtime", f"runtime {profile.runtime} cannot be deployed")
    if profile.nodes != 1 and "node-rank" not in profile.flags:
        count = f"{profile.nodes} hosts"
        raise _unsupported(profile, "nodes", f"a launch over {count} is one for them all together")


def _unsupported(profile: Profile, key: str, message: str) -> ConfigError:
    origin = profile.origins.get(key)
    return ConfigError(f"unsupported-{key}", message, where=origin.where if origin else "")


def _merged(
    profile: Profile, target: Target, version: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return flags and variables: defaults, diagnostics, profile, then the host's own."""
    diag_flags, diag_env = diagnostics(profile.diag, target.service.name, version)
    venv = posixpath.dirname(profile.python)
    env: dict[str, str | None] = {
        "PATH": f"{venv}:{SYSTEM_PATH}",
        "PYTHONUNBUFFERED": "1",  # what was printed before a crash must reach the journal
    }
    if target.service.gpus is not None:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(str(g) for g in target.service.gpus)
    env = env | diag_env | profile.env | dict(target.host.env)
    flags = diag_flags | profile.flags | dict(target.host.flags)
    return (
        {k: v for k, v in flags.items() if v is not None and k not in profile.secret_flags},
        {k: v for k, v in sorted(env.items()) if v is not None and k not in profile.secret_env},
    )


def _environment(env: Mapping[str, str], templates: Mapping[str, str]) -> str:
    lines = [quote.variable(name, env[name]) for name in sorted(env)]
    return unit.fill("environment.j2", templates, {"lines": lines})


def _secret_files(
    profile: Profile,
    secrets: Secrets | None,
    paths: _Paths,
    user: str | None,
    templates: Mapping[str, str],
) -> list[WriteFile]:
    files = []
    if profile.secret_env:
        text = MASK if secrets is None else _environment(secrets.env, templates)
        files.append(WriteFile(paths.secret_env, text, 0o600, secret=True))
    if profile.secret_flags:
        text = MASK if secrets is None else _flag_file(secrets.flags)
        # SGLang itself reads this one, as the user that it runs as.
        owner = f"{user}:root" if user else "root:root"
        files.append(WriteFile(paths.secret_flags, text, 0o600, owner, secret=True))
    return files


def _flag_file(flags: Mapping[str, str]) -> str:
    """Return the YAML for SGLang's ``--config``, which puts each entry before the arguments."""
    for name, value in flags.items():
        quote.one_line(value, name)
        if value.startswith("-"):
            raise ConfigError(
                "bad-value",
                f"the secret {name} begins with a dash: SGLang would take it for an option",
            )
    text: str = yaml.safe_dump(dict(flags), default_style='"', allow_unicode=True, width=10**9)
    return f"{MARK}; the next deploy writes it anew.\n{text}"


def _values(
    profile: Profile,
    target: Target,
    settings: dict[str, Any],
    argv: list[str],
    paths: _Paths,
    systemd: int | None,
) -> dict[str, Any]:
    """Return what the unit's template is given; every text is quoted already."""
    service = target.service.name
    python = target.host.python if target.host.python.startswith("/") else "/usr/bin/python3"
    steps = (systemd or 0) >= unit.RESTART_STEPS_SINCE
    return {
        "service": service,
        "description": f"SGLang {service}",
        "identifier": f"sglang-{service}",
        "unit": settings,
        "mounts": profile.model if quote.is_plain_path(profile.model) else "",
        "state_directory": f"fleetctl/diag/{service}" if profile.diag else "",
        "environment_files": [paths.environment]
        + ([paths.secret_env] if profile.secret_env else []),
        "exec_start": quote.command(argv),
        "collector": f"{python} {COLLECTOR} --service {service} --unit %n",
        "restart_steps": 4 if steps else 0,
        "restart_max_delay": 300,
    }


def _config(
    profile: Profile,
    target: Target,
    flags: Mapping[str, Any],
    env: Mapping[str, str],
    settings: Mapping[str, Any],
    versions: Mapping[str, str] | None,
    patches: Mapping[str, str] | None,
) -> LaunchConfig:
    def named(references: Mapping[str, SecretRef]) -> dict[str, str]:
        return {name: f"(secret: {r.kind} {r.value})" for name, r in references.items()}

    return LaunchConfig(
        profile=profile.name,
        model=profile.model,
        flags=dict(flags) | named(profile.secret_flags) | {"port": str(target.service.port)},
        env=dict(env) | named(profile.secret_env),
        unit={k: v for k, v in settings.items() if v is not None} | {"python": profile.python},
        versions=dict(versions or {}),
        patches=dict(patches or {}),
    )
