"""The systemd unit: settings with their defaults, and the text from the template."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from fleetctl.errors import ConfigError
from fleetctl.render.quote import Lines

# Why each is what it is: docs/howto/profiles.md.
DEFAULTS: dict[str, Any] = {
    "timeout_stop": 180,
    "restart": "on-failure",
    "restart_sec": 15,
    "start_limit_burst": 3,
    "start_limit_interval": 3600,
    "user": None,
    "working_directory": None,
    "limit_nofile": 1048576,
    "enable": False,
}
TEMPLATES = ("sglang.service.j2", "environment.j2")
RESTART_STEPS_SINCE = 254  # systemd's NEWS: RestartSteps= and RestartMaxDelaySec=


def settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return every setting of the unit, the given ones over the defaults."""
    return DEFAULTS | dict(given)


@cache
def shipped(name: str) -> str:
    """Return the text of a template that comes with the program."""
    package = Path(str(importlib.resources.files("fleetctl")))
    inside = package / "_data" / "templates" / name
    path = inside if inside.is_file() else package.parent / "templates" / name
    return path.read_text(encoding="utf-8")


def fill(name: str, own: Mapping[str, str], values: Mapping[str, Any]) -> str:
    """Return a filled template, the site's own where it has one.

    Every interpolated value must be one line. Raises ConfigError ``template-error`` with the line.
    """
    sources = {n: shipped(n) for n in TEMPLATES} | dict(own)
    environment = jinja2.Environment(
        loader=jinja2.DictLoader(sources),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  no HTML: values are quoted by systemd's rules
        finalize=_finalize,
    )
    try:
        return environment.get_template(name).render(values)
    except jinja2.TemplateError as error:
        raise _fault(name, error) from error


def _finalize(value: Any) -> Any:
    if not isinstance(value, Lines) and any(c in str(value) for c in "\0\n\r"):
        raise jinja2.TemplateRuntimeError(f"a value has several lines: {str(value)[:40]!r}")
    return value


def _fault(name: str, error: jinja2.TemplateError) -> ConfigError:
    line = getattr(error, "lineno", None)
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return ConfigError(
        "template-error",
        str(error.message or error),
        where=f"templates/{name}:{line}" if line else f"templates/{name}",
        hint="docs/howto/profiles.md lists what a template is given",
    )
