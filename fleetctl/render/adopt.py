"""A server that somebody else set up, as a profile and a service: what renders equal, and what does not."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.engines.sglang.schema import Schema
from fleetctl.errors import ConfigError
from fleetctl.model.fleet import FlagValue, Profile, SecretRef, Service
from fleetctl.render import shell_launch, unit_file
from fleetctl.render.shell_launch import Launch
from fleetctl.render.unit_file import UnitFile

MASKED = "<redacted"
RESTARTS = ("on-failure", "always", "no")
# fleetctl's unit says these itself, or they say nothing about the server.
OWN = {
    "Unit": {"Description", "Documentation", "After", "Wants", "Requires", "StartLimitBurst",
             "StartLimitIntervalSec", "StartLimitInterval"},
    "Install": {"WantedBy", "RequiredBy", "Alias"},
    "Service": {"Type", "ExecStart", "Environment", "EnvironmentFile", "User", "WorkingDirectory",
                "LimitNOFILE", "LimitMEMLOCK", "TimeoutStopSec", "Restart", "RestartSec", "KillMode",
                "SyslogIdentifier", "StandardOutput", "StandardError", "LogRateLimitIntervalSec",
                "LogRateLimitBurst", "TasksMax", "TimeoutStartSec", "TimeoutSec", "KillSignal",
                "StartLimitBurst", "StartLimitInterval"},
}  # fmt: skip
INTERESTING = re.compile(
    r"(?:SGLANG|SGL|NCCL|CUDA|HF|HUGGINGFACE|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|OMP|UCX|GLOO|NVSHMEM|MC|MOONCAKE"
    r"|TRANSFORMERS|TOKENIZERS|FLASHINFER|DG|NVTE|VLLM)_\w+|LD_LIBRARY_PATH|LD_PRELOAD|PYTHONPATH"
)
SELF_MADE = ("PATH", "PYTHONUNBUFFERED", "CUDA_VISIBLE_DEVICES")  # rendered from elsewhere


@dataclass(frozen=True)
class Adopted:
    """What was found. ``words`` and ``env`` are the original's, for a comparison with what is rendered."""

    profile: Profile
    service: Service
    source: str  # running | unit
    words: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()  # the unit on disk against what runs


def adopt(answer: Mapping[str, Any], schema: Schema, *, name: str, service: str) -> Adopted:
    """Return the profile and service of what a host showed (``adopt.look``).

    Raises ConfigError ``not-a-server`` when nothing there starts SGLang, ``container`` for one in a container.
    """
    unit = unit_file.read(_texts(answer))
    notes: list[str] = [
        f"{p} cannot be read: {why}" for p, why in answer.get("unreadable", {}).items()
    ]
    given = _environment(unit, answer)
    filling = _only_filling(unit, given)
    static = _static(unit, answer, given, notes)
    running = answer.get("running")
    if not running and not static.words:
        raise ConfigError(
            "not-a-server", f"{answer.get('unit') or 'that process'} does not start sglang.launch_server",
            hint="; ".join(static.notes) or "start it once, then its running words can be read",
        )  # fmt: skip
    words = list(running["argv"]) if running else static.words
    python, rest = _interpreter(words, running, static, notes)
    env = _variables(given | static.env, running, bool(answer.get("files")), notes)
    builder = _Builder(schema, answer, notes)
    builder.take(rest)
    differs = _differs(schema, static, rest) if running and static.words else ()
    if not running:
        notes += static.notes
    gpus = _gpus(env, notes)
    settings = _settings(unit, answer, static, notes)
    _leftovers(unit, notes)
    secret_env = {n: SecretRef("env", n) for n, v in env.items() if v.startswith(MASKED)}
    if filling:
        notes.append(
            f"variables that only fill the command line are left out: {', '.join(filling)}"
        )
    secret_env = {n: r for n, r in secret_env.items() if n not in filling}
    plain = {n: v for n, v in env.items() if n not in (*secret_env, *SELF_MADE, *filling)}
    plain = {n: v for n, v in plain.items() if not v.startswith(MASKED)}
    profile = Profile(
        name=name, model=builder.model, flags=builder.flags, env=plain, secret_flags=builder.secrets,
        secret_env=secret_env, python=python, unit=settings,
    )  # fmt: skip
    return Adopted(
        profile=profile,
        service=Service(service, builder.port, gpus),
        source="running" if running else "unit",
        words=tuple(builder.words),
        env=plain,
        notes=tuple(dict.fromkeys(notes)),
        differs=differs,
    )


def _texts(answer: Mapping[str, Any]) -> list[str]:
    props, files = answer.get("properties") or {}, answer.get("files") or {}
    paths = [props.get("FragmentPath", ""), *str(props.get("DropInPaths", "")).split()]
    return [files[p] for p in paths if p in files]


def _environment(unit: UnitFile, answer: Mapping[str, Any]) -> dict[str, str]:
    """Return what systemd would set: Environment=, then the files over it."""
    env = unit_file.environment(unit.all("Environment"), str(answer.get("unit") or ""))
    for line in unit.all("EnvironmentFile"):
        path = unit_file.specifiers(line.lstrip("-").strip("\"'"), str(answer.get("unit") or ""))
        text = (answer.get("files") or {}).get(path)
        env |= unit_file.environment_file(text) if text else {}
    return env


def _only_filling(unit: UnitFile, env: Mapping[str, str]) -> list[str]:
    """Return the unit's variables that stand in ExecStart= and that no program reads by such a name."""
    line = unit.last("ExecStart") or ""
    used = re.findall(r"\$\{?(\w+)", line)
    return sorted({n for n in used if n in env and not INTERESTING.fullmatch(n)})


def _static(
    unit: UnitFile, answer: Mapping[str, Any], env: Mapping[str, str], notes: list[str]
) -> Launch:
    """Return the launch as the unit's text has it, through a wrapper where there is one."""
    line = unit.last("ExecStart")
    if line is None:
        return Launch()
    started = unit_file.command(line, str(answer.get("unit")), env)
    words, taken, own = shell_launch.unwrapped(started)
    notes += [f"`{t}` in front of the server is not carried over" for t in taken]
    found = _started(words, answer, {**env, **own})
    found.env = own | found.env
    return found


def _started(words: list[str], answer: Mapping[str, Any], env: Mapping[str, str]) -> Launch:
    """Return what the words of ExecStart= start, by themselves or through a shell."""
    program = posixpath.basename(words[0]) if words else ""
    if program in ("docker", "podman", "nerdctl"):
        raise ConfigError(
            "container", f"{answer.get('unit')} starts a container ({program} run)",
            hint="fleetctl keeps units on the host itself; write a profile by hand from its arguments",
        )  # fmt: skip
    if shell_launch.is_launch(words):
        return Launch(words)
    if (
        program in shell_launch.SHELLS
        and len(words) > 2
        and words[1].startswith("-")
        and "c" in words[1]
    ):
        return shell_launch.from_shell(words[2], env)
    script = words[1] if program in shell_launch.SHELLS and len(words) > 1 else (words or [""])[0]
    text = (answer.get("files") or {}).get(script)
    if text is None:
        return Launch(notes=[f"{script or 'ExecStart='} is not looked into"])
    given = {str(n): w for n, w in enumerate(words[words.index(script) + 1 :], 1)}
    found = shell_launch.from_shell(text, {**env, **given})
    found.notes.insert(0, f"{script} is a wrapper; the profile has what it starts")
    return found


def _interpreter(
    words: list[str], running: Mapping[str, Any] | None, static: Launch, notes: list[str]
) -> tuple[str, list[str]]:
    """Return SGLang's Python and the words that SGLang gets."""
    for number, word in enumerate(words[:8]):
        if word == "sglang.launch_server":
            break
        if word == "serve" and posixpath.basename(words[number - 1]) == "sglang":
            break
    else:
        raise ConfigError("not-a-server", f"{' '.join(words[:4])} … is no sglang.launch_server")
    first = words[0]
    if posixpath.basename(first) == "sglang":  # the console script; its interpreter lies beside it
        first = posixpath.join(posixpath.dirname(first), "python") if "/" in first else "python"
    options = [w for w in words[1:number] if w not in ("-m", "-u") and not w.endswith("/sglang")]
    if options:
        notes.append(f"options of Python are not carried over: {' '.join(options)}")
    python = (running or {}).get("python") or first
    if posixpath.basename(python) == "sglang":
        python = posixpath.join(posixpath.dirname(python), "python")
    if not python.startswith("/") and static.bin:
        python = f"{static.bin}/{python}"
    if not python.startswith("/"):
        notes.append(f"{python} is looked up in PATH; name its path in the profile")
        python = Profile(name="", model="").python
    return python, words[number + 1 :]


def _variables(
    given: dict[str, str], running: Mapping[str, Any] | None, unit: bool, notes: list[str]
) -> dict[str, str]:
    """Return the variables that make the launch, with the values that run.

    Those are the unit's own; of a bare process, those that programs around SGLang read.
    """
    if running is None:
        return dict(given)
    now = running["env"]
    if unit:
        wanted = [n for n in now if n in given or INTERESTING.fullmatch(n)]
        return {n: now[n] for n in wanted}
    left = [n for n in now if not INTERESTING.fullmatch(n)]
    if left:
        notes.append(f"variables left out: {', '.join(sorted(left)[:12])}")
    return {n: v for n, v in now.items() if INTERESTING.fullmatch(n)}


class _Builder:
    """Takes SGLang's words apart into flags, model, port and secrets."""

    def __init__(self, schema: Schema, answer: Mapping[str, Any], notes: list[str]) -> None:
        self.schema = schema
        self.answer = answer
        self.notes = notes
        self.flags: dict[str, FlagValue] = {}
        self.secrets: dict[str, SecretRef] = {}
        self.model = ""
        self.port = Service().port
        self.words: list[str] = []

    def take(self, words: list[str]) -> None:
        """Take the words of a command line; those of a ``--config`` file count first, as in SGLang."""
        parsed = self.schema.parse(words)
        for use in parsed.uses:
            if use.flag.dest == "config":
                self.take(self._config(use.values[0]))
        for use in parsed.uses:
            if use.flag.dest != "config":
                self._use(use)
        for problem in parsed.problems:
            if problem.kind == "required":
                continue
            self.notes.append(
                f"SGLang {self.schema.version} would refuse it: {problem.message[:160]}"
            )

    def _use(self, use: Any) -> None:
        name, value = use.spelling[2:], self._value(use)
        self.words += [use.spelling, *use.values]
        if use.flag.dest == "model_path":
            self.model = use.values[0]
        elif use.flag.dest == "port":
            self.port = self._port(use.values[0])
        elif isinstance(value, str) and value.startswith(MASKED):
            self.secrets[name] = SecretRef("env", name.upper().replace("-", "_"))
            self.notes.append(
                f"--{name} is a secret: give its value by ${self.secrets[name].value}"
            )
        else:
            self.flags[name] = value

    def _port(self, text: str) -> int:
        if text.isdecimal() and 1 <= int(text) <= 65535:
            return int(text)
        whose = self.answer.get("unit") or "the process"
        raise ConfigError(
            "bad-port",
            f"--port {text} of {whose}: a port is a number from 1 to 65535",
            hint="a server that is started so does not listen there: set it right first",
        )

    @staticmethod
    def _value(use: Any) -> FlagValue:
        if use.flag.switch:
            return True
        if use.flag.many:
            return tuple(use.values)
        return use.values[0] if use.values else True

    def _config(self, path: str) -> list[str]:
        """Return the words that SGLang makes of a --config file: one flag a key, lists as several values."""
        cwd = (self.answer.get("running") or {}).get("cwd") or "/"
        text = (self.answer.get("files") or {}).get(posixpath.join(cwd, path))
        if text is None:
            self.notes.append(f"--config {path} cannot be read")
            return []
        from fleetctl.config.nodes import as_bool, parse

        words: list[str] = []
        for key, value in parse(text, path_of(path)).value.items():
            name = "--" + str(key).replace("_", "-")
            flag = as_bool(value)
            if flag is None:
                words += [name, *(map(str, value) if isinstance(value, list) else [str(value)])]
            elif flag:
                words.append(name)
        self.notes.append(f"the flags of --config {path} stand in the profile now")
        return words


def path_of(text: str) -> Any:
    """Return a path object for messages."""
    from pathlib import PurePosixPath

    return PurePosixPath(text)


def _differs(schema: Schema, static: Launch, rest: list[str]) -> tuple[str, ...]:
    """Return what the unit on disk would start otherwise than what runs."""
    try:
        _, words = _interpreter(static.words, None, static, [])
    except ConfigError:
        return ()
    return differences(schema, words, rest, ("the unit", "running"))


def differences(
    schema: Schema, one: list[str], other: list[str], names: tuple[str, str]
) -> tuple[str, ...]:
    """Return where two command lines differ in what SGLang reads out of them."""
    left, right = schema.parse(one), schema.parse(other)
    a, b = left.values(), right.values()
    told = [
        f"{dest}: {names[0]} {a.get(dest, 'unset')}, {names[1]} {b.get(dest, 'unset')}"
        for dest in sorted(a.keys() | b.keys())
        if a.get(dest) != b.get(dest) and not _masked(a.get(dest), b.get(dest))
    ]
    extra = [w for _, w in left.extras], [w for _, w in right.extras]
    if extra[0] != extra[1]:
        told.append(f"words: {names[0]} {' '.join(extra[0])}, {names[1]} {' '.join(extra[1])}")
    return tuple(told)


def _masked(*values: Any) -> bool:
    return any(isinstance(v, str) and v.startswith(MASKED) for v in values)


def _gpus(env: Mapping[str, str], notes: list[str]) -> tuple[int, ...] | None:
    text = env.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return None
    if re.fullmatch(r"\d+(,\d+)*", text):
        return tuple(int(n) for n in text.split(","))
    notes.append(f"CUDA_VISIBLE_DEVICES={text} names no numbers; the service takes all GPUs")
    return None


def _settings(
    unit: UnitFile, answer: Mapping[str, Any], static: Launch, notes: list[str]
) -> dict[str, Any]:
    """Return the unit's settings that differ from fleetctl's own, as the profile names them."""
    from fleetctl.config.schema import USER_FORM
    from fleetctl.render.unit import DEFAULTS

    found: dict[str, Any] = {}
    user = unit.last("User")
    found["user"] = None if user in (None, "root") else user
    if user and not re.fullmatch(USER_FORM, user):
        found["user"] = None
        notes.append(f"User={user} is not taken over; name the user in the profile")
    cwd = unit.last("WorkingDirectory") or static.cwd
    found["working_directory"] = (
        cwd.lstrip("-") if cwd and cwd.lstrip("-").startswith("/") else None
    )
    limit = (unit.last("LimitNOFILE") or "").rpartition(":")[2] or str(static.nofile or "")
    found["limit_nofile"] = int(limit) if limit.isdigit() else DEFAULTS["limit_nofile"]
    if limit and not limit.isdigit() and limit != "infinity":  # the kernel has an end too
        notes.append(f"LimitNOFILE={limit} becomes {DEFAULTS['limit_nofile']}")
    for key, setting in (("TimeoutStopSec", "timeout_stop"), ("RestartSec", "restart_sec")):
        text = unit.last(key)
        span = unit_file.seconds(text) if text else None
        found[setting] = span if span is not None else DEFAULTS[setting]
        if text and span is None:
            notes.append(f"{key}={text} becomes {DEFAULTS[setting]}")
    restart = unit.last("Restart")
    found["restart"] = restart if restart in RESTARTS else DEFAULTS["restart"]
    if restart and restart not in RESTARTS:
        notes.append(f"Restart={restart} becomes {DEFAULTS['restart']}")
    for key, setting in (
        ("StartLimitBurst", "start_limit_burst"),
        ("StartLimitIntervalSec", "start_limit_interval"),
    ):
        text = unit.last(key, "Unit") or unit.last(key)
        number = unit_file.seconds(text) if text else None
        found[setting] = number if number is not None else DEFAULTS[setting]
    found["enable"] = (answer.get("properties") or {}).get("UnitFileState") == "enabled"
    return {k: v for k, v in found.items() if v != DEFAULTS[k]}


def _leftovers(unit: UnitFile, notes: list[str]) -> None:
    """Name the settings that neither the profile nor fleetctl's unit has."""
    for section, key in unit.values:
        values = unit.all(key, section)
        if values and key not in OWN.get(section, set()):
            notes.append(
                f"not carried over: {key}={values[-1][:80]} (a drop-in of the new unit can have it)"
            )
    for key in ("StandardOutput", "StandardError"):
        target = unit.last(key)
        if target and target not in ("journal", "inherit", "journal+console"):
            notes.append(f"{key}={target}: the new unit logs to the journal")
