"""Shows how a server of this host is started: unit, drop-ins, variable files, wrapper script, running words.

Secrets stay here: their values are replaced by ``<redacted:…>`` before anything leaves.
"""

from __future__ import annotations

import os
import re
from typing import Any

from fleetctl.remote import procs, redact, shell, unit
from fleetctl.remote.agent import AgentError

LIMIT = 256 * 1024
PROPERTIES = (
    "Id", "LoadState", "ActiveState", "UnitFileState", "FragmentPath", "DropInPaths", "MainPID",
    "ControlGroup", "User", "WorkingDirectory",
)  # fmt: skip
SECRET_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$")
SECRET_FLAG = re.compile(r"^--(?:api-key|admin-api-key|ssl-keyfile-password)(=|$)")
MASK = "<redacted:value>"
# Over a whole text: the value may stand on the next line, or have blanks between its quotes.
_FLAG_VALUE = re.compile(
    r"(--(?:api-key|admin-api-key|ssl-keyfile-password)[\"']?(?:=|(?:[ \t]|\\\r?\n)+))"
    r"(?:\"(?!\$)[^\"\n]+\"|'(?!\$)[^'\n]+'|[^\s\"'$\\][^\s\"']*)"
)
_ENV_FILE = re.compile(r"^EnvironmentFiles=(.*) \(ignore_errors=\w+\)$", re.MULTILINE)
_SCRIPT = re.compile(r"^\s*ExecStart\s*=\s*[-@:+!]*(.*)$", re.MULTILINE)
_PATH = re.compile(r"(?:^|[\s'\"=])(/[^\s'\";&|]+)")


def look(args: dict[str, Any], _session: Any = None) -> dict[str, Any]:
    """Return ``{unit, properties, files: {path: text}, unreadable, running}`` for ``{unit | pid}``.

    ``running`` is ``{pid, argv, env, cwd, exe, python}`` of the process that serves, None when none runs.
    AgentError: no-such-unit, no-such-process.
    """
    name = args.get("unit") or ""
    if args.get("pid"):
        pid = int(args["pid"])
        if not procs.read("/proc/%d/cmdline" % pid):
            raise AgentError("no-such-process", "no process %d" % pid)
        name = procs.unit_of(pid)
        return _answer(name, _server(procs._tree(pid)) or pid)
    name = name if "." in name else name + ".service"
    props = unit.must_show(name, PROPERTIES)
    if props.get("LoadState") in (None, "not-found"):
        raise AgentError(
            "no-such-unit", "systemd knows no %s" % name, hint="systemctl list-units --type=service"
        )
    pids = procs.of_cgroup(props.get("ControlGroup", ""), int(props.get("MainPID") or 0))
    return _answer(name, _server(pids))


def _answer(name: str, pid: int | None) -> dict[str, Any]:
    props = unit.show(name, PROPERTIES) if name else {}
    files: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    paths = [props.get("FragmentPath", ""), *props.get("DropInPaths", "").split()]
    for path in filter(None, paths):
        _take(path, files, unreadable)
    for path in _environment_files(name):
        _take(path, files, unreadable)
    for text in list(files.values()):
        for line in _SCRIPT.findall(text):
            for path in _PATH.findall(line):
                if _is_text(path):
                    _take(path, files, unreadable)
    running = _running(pid) if pid else None
    for path in _config_files(running):
        _take(path, files, unreadable)
    return {
        "unit": name,
        "properties": props,
        "files": files,
        "unreadable": unreadable,
        "running": running,
    }


def _environment_files(name: str) -> list[str]:
    """Return the variable files of a unit as systemd resolved them, specifiers filled in."""
    if not name:
        return []
    return _ENV_FILE.findall(unit.systemctl("show", "-p", "EnvironmentFiles", "--", name).out)


def _take(path: str, files: dict[str, str], unreadable: dict[str, str]) -> None:
    """Read one file into the answer, without its secrets."""
    if path in files or path in unreadable:
        return
    try:
        with open(path, "rb") as file:
            text = file.read(LIMIT).decode("utf-8", "replace")
    except OSError as error:
        unreadable[path] = error.strerror or "unreadable"
        return
    files[path] = _text(text)


def _text(text: str) -> str:
    """Return a file without the values of secret variables and flags."""
    text = _FLAG_VALUE.sub(lambda m: m.group(1) + MASK, text)
    return "\n".join(_line(line) for line in text.split("\n"))


def _line(line: str) -> str:
    """Return a line of a unit or a variable file without the value of a secret variable."""
    match = re.match(r"^(\s*(?:export\s+)?(?:Environment=)?\"?([A-Za-z_]\w*)=)(.*)$", line)
    if match and SECRET_NAME.search(match.group(2)) and match.group(3).strip("\"' "):
        return (
            match.group(1)
            + MASK
            + ('"' if '="' in match.group(1) or match.group(1).endswith('"') else "")
        )
    if line.endswith("\\"):  # a flag's value is not the backslash
        return redact.redact(line[:-1]) + "\\"
    return redact.redact(line)


def _is_text(path: str) -> bool:
    """Return whether a path of ExecStart= is a script, not a program or a model."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
    except OSError:
        return False
    return head[:2] == b"#!" and b"python" not in head.split(b"\n", 1)[0]


def _server(pids: list[int]) -> int | None:
    """Return the process that serves: the outermost one whose words start SGLang."""
    for pid in sorted(pids):
        words = _words(pid)
        text = " ".join(words[:6])
        program = os.path.basename(words[0]) if words else ""
        serves = "sglang.launch_server" in text or re.search(r"(?:^|/)sglang serve\b", text)
        if serves and ("python" in program or program == "sglang"):
            return pid
    return None


def _words(pid: int) -> list[str]:
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            data = file.read(1024 * 1024)
    except OSError:
        return []
    return [w.decode("utf-8", "replace") for w in data.rstrip(b"\0").split(b"\0")] if data else []


def _running(pid: int) -> dict[str, Any]:
    env: dict[str, str] = {}
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            for pair in file.read(LIMIT).split(b"\0"):
                name, _, value = pair.decode("utf-8", "replace").partition("=")
                if name:
                    env[name] = MASK if SECRET_NAME.search(name) and value else value
    except OSError:
        pass
    words = _words(pid)
    return {
        "pid": pid,
        "argv": _masked(words),
        "env": env,
        "cwd": _link("/proc/%d/cwd" % pid),
        "exe": _link("/proc/%d/exe" % pid),
        "python": _interpreter(words, env),
    }


def _masked(words: list[str]) -> list[str]:
    masked: list[str] = []
    for word in words:
        match = SECRET_FLAG.match(word)
        before = SECRET_FLAG.match(masked[-1]) if masked else None
        if before and before.group(1) == "":
            masked.append(MASK)
        elif match and match.group(1):
            masked.append(word.partition("=")[0] + "=" + MASK)
        else:
            masked.append(word)
    return masked


def _interpreter(words: list[str], env: dict[str, str]) -> str | None:
    """Return the absolute path of the interpreter as it was called: a venv's own link, not its target."""
    if not words:
        return None
    if os.path.isabs(words[0]):
        return words[0]
    for folder in env.get("PATH", shell.ENV["PATH"]).split(":"):
        path = os.path.join(folder, words[0])
        if os.access(path, os.X_OK):
            return path
    return None


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _config_files(running: dict[str, Any] | None) -> list[str]:
    """Return the files that ``--config`` names."""
    words = (running or {}).get("argv") or []
    found = [w.partition("=")[2] for w in words if w.startswith("--config=")]
    found += [words[n + 1] for n in range(len(words) - 1) if words[n] == "--config"]
    cwd = (running or {}).get("cwd") or "/"
    return [os.path.join(cwd, f) for f in found]


VERBS = {"look": look}
