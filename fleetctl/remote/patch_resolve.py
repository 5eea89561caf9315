"""Which Python files a unit really runs: its own interpreter, environment and working directory answer.

Nothing of SGLang or torch is imported; the import machinery is only asked where it would look.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
import subprocess
from typing import Any, NamedTuple, Sequence

from fleetctl.remote import files, procs, shell
from fleetctl.remote.agent import AgentError

REFUSED = 7  # exit code of the command line
PYTHON = re.compile(r"(?:python|pypy)[0-9.]*t?\Z")
CONTAINERS = ("docker", "podman", "nerdctl", "apptainer", "singularity")
PROPERTIES = (
    "LoadState", "ActiveState", "InvocationID", "MainPID", "ControlGroup", "ExecStart",
    "Environment", "EnvironmentFiles", "WorkingDirectory", "User",
)  # fmt: skip
WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NETWORK = (
    "nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "9p", "afs", "glusterfs",
    "fuse.", "virtiofs",
)  # fmt: skip

# importlib.metadata would take half of the time: the folder beside the package says the same.
PROBE = r"""
import importlib.util, json, os, sys
if SCRIPT_FOLDER is not None:
    sys.path[0:1] = [SCRIPT_FOLDER]
spec = importlib.util.find_spec("sglang")
where = list(spec.submodule_search_locations or []) if spec else []
copies, info = [], None
for entry in sys.path:
    folder = entry or os.getcwd()
    try:
        names = os.listdir(folder)
    except OSError:
        continue
    if "sglang" in names and os.path.isdir(os.path.join(folder, "sglang")):
        copies.append(os.path.join(folder, "sglang"))
    for name in names:
        if info is None and name.startswith("sglang-") and name.endswith((".dist-info", ".egg-info")):
            info = os.path.join(folder, name)
print(json.dumps({
    "executable": sys.executable, "python": list(sys.version_info[:3]), "prefix": sys.prefix,
    "locations": [os.path.abspath(w) for w in where], "tag": sys.implementation.cache_tag,
    "copies": copies, "info": info,
}))
"""
COMPILE = r"""
import json, sys
for path, shown in json.load(sys.stdin):
    with open(path, "rb") as file:
        data = file.read()
    try:
        compile(data, shown, "exec", dont_inherit=True)
    except Exception as error:
        print("%s: %s" % (shown, error))
        sys.exit(3)
"""


class Launch(NamedTuple):
    """How a unit starts Python: interpreter with its options, environment, folder, user."""

    python: str
    options: list[str]
    env: dict[str, str]
    cwd: str
    user: str
    script_folder: str | None  # what stands first on sys.path; None: the working folder


class Unit(NamedTuple):
    """What systemd says of a unit, as far as patching needs it."""

    name: str
    load_state: str
    active_state: str
    invocation: str
    main_pid: int
    group: str
    exec_path: str
    argv: list[str]
    environment: list[str]
    environment_files: list[str]
    cwd: str
    user: str

    @property
    def alive(self) -> bool:
        """Return whether it runs, or is about to."""
        return self.active_state in ("active", "activating", "reloading", "deactivating")


def read_unit(name: str) -> Unit:
    """Return the unit's facts. AgentError: no-systemd when systemctl does not answer."""
    done = shell.run(
        ("systemctl", "--no-pager", "show", "-p", ",".join(PROPERTIES), "--", name), 10.0
    )
    if done.rc != 0:
        raise AgentError("no-systemd", (done.err.strip() or "systemctl does not answer")[:300])
    many: dict[str, list[str]] = {}
    for line in done.out.splitlines():
        key, mark, value = line.partition("=")
        if mark:
            many.setdefault(key, []).append(value)

    def one(key: str) -> str:
        return (many.get(key) or [""])[-1]

    start = re.search(r"\{ path=(.*?) ; argv\[\]=(.*?) ; ignore_errors=", one("ExecStart"))
    return Unit(
        name=name,
        load_state=one("LoadState"),
        active_state=one("ActiveState"),
        invocation=one("InvocationID"),
        main_pid=int(one("MainPID") or 0),
        group=one("ControlGroup"),
        exec_path=start.group(1) if start else "",
        argv=start.group(2).split() if start else [],
        environment=_words(one("Environment")),
        environment_files=[
            f.split(" (ignore_errors")[0] for f in many.get("EnvironmentFiles", []) if f
        ],
        cwd=one("WorkingDirectory").lstrip("-!") or "/",
        user=one("User"),
    )


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def environment_of(unit: Unit) -> dict[str, str]:
    """Return the environment that systemd would give the unit's process."""
    home = "/root"
    if unit.user:
        try:
            home = pwd.getpwnam(unit.user).pw_dir
        except KeyError:
            home = "/"
    env = {"PATH": DEFAULT_PATH, "HOME": home, "LANG": "C.UTF-8"}
    for text in unit.environment:
        name, _, value = text.partition("=")
        env[name] = value
    for path in unit.environment_files:
        env.update(_environment_file(path))
    return env


def _environment_file(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read().replace("\\\n", "")
    except OSError:
        return {}
    found = {}
    for line in text.splitlines():
        name, mark, value = line.strip().partition("=")
        if mark and name and name[0] not in "#;":
            found[name] = " ".join(_words(value)) if value[:1] in "\"'" else value
    return found


def launch_of(unit: Unit, python: str = "") -> Launch:
    """Return how the unit starts Python; ``python`` overrides what its ExecStart says.

    AgentError: container-unit with the volume option that would do it, unknown-interpreter.
    """
    env = environment_of(unit)
    cwd = unit.cwd if os.path.isdir(unit.cwd) else "/"
    if python:
        return Launch(python, [], env, cwd, unit.user, None)
    words = [unit.exec_path, *unit.argv]
    runner = next((w for w in map(os.path.basename, words) if w in CONTAINERS), None)
    if runner is not None:
        raise _container(unit, runner)
    found = _from_argv(unit, env) or _from_shebang(unit, env) or _from_process(unit)
    if found is None:
        raise AgentError(
            "unknown-interpreter",
            "%s does not start Python itself: %s" % (unit.name, unit.exec_path or "no ExecStart"),
            hint="name the interpreter with --python PATH",
            exit_code=REFUSED,
        )
    interpreter, options, folder = found
    return Launch(interpreter, options, env, cwd, unit.user, folder)


def _container(unit: Unit, runner: str) -> AgentError:
    version = re.search(r":v?([0-9]+[.][0-9]+[.][0-9]+(?:[.]post[0-9]+)?)", " ".join(unit.argv))
    return AgentError(
        "container-unit",
        "%s starts a container with %s: its files are not this host's" % (unit.name, runner),
        hint="write the patched files with `fleetctl patch check NAME --sglang %s --write FOLDER`, "
        "put them on the host, and add the option below for each to %s's command"
        % (version.group(1) if version else "VERSION", runner),
        context=["-v FOLDER/sglang/…/FILE.py:PACKAGES-IN-THE-IMAGE/sglang/…/FILE.py:ro"],
        exit_code=REFUSED,
    )


def _from_argv(unit: Unit, env: dict[str, str]) -> tuple[str, list[str], str | None] | None:
    words = unit.argv[:]
    if words and PYTHON.match(os.path.basename(unit.exec_path)):
        words[0] = unit.exec_path
    for at, word in enumerate(words):
        if PYTHON.match(os.path.basename(word)) and not word.startswith("-"):
            path = word if "/" in word else (shell.which(word, env["PATH"]) or None)
            return (path, *_options(words[at + 1 :])) if path else None
    return None


def _options(words: Sequence[str]) -> tuple[list[str], str | None]:
    """Return Python's own options, and the folder of the script when one is run."""
    options: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-m", "-c") or not word.startswith("-"):
            return options, os.path.dirname(word) if not word.startswith("-") else None
        options.append(word)
        if word in WITH_VALUE and rest:
            options.append(rest.pop(0))
    return options, None


def _from_shebang(unit: Unit, env: dict[str, str]) -> tuple[str, list[str], str | None] | None:
    """A console script such as ``sglang serve``: its first line names the interpreter."""
    for path in [unit.exec_path, *unit.argv[1:4]]:
        try:
            with open(path, "rb") as file:
                first = file.readline(512).decode("utf-8", "replace")
        except (OSError, ValueError):
            continue
        words = first[2:].split() if first.startswith("#!") else []
        if words and os.path.basename(words[0]) == "env":
            words = [shell.which(words[-1], env["PATH"])]
        if words and PYTHON.match(os.path.basename(words[0])):
            return words[0], words[1:], os.path.dirname(path)
    return None


def _from_process(unit: Unit) -> tuple[str, list[str], str | None] | None:
    """A wrapper that became Python by exec: the running process tells."""
    words = procs.read("/proc/%d/cmdline" % unit.main_pid).split("\0") if unit.main_pid else []
    if words and words[0].startswith("/") and PYTHON.match(os.path.basename(words[0])):
        return (words[0], *_options(words[1:]))
    return None


def probe(launch: Launch) -> dict[str, Any]:
    """Return what the interpreter says of itself and of sglang.

    AgentError: no-interpreter, probe-failed, no-sglang.
    """
    program = PROBE.replace("SCRIPT_FOLDER", repr(launch.script_folder))
    text = _python(launch, program, "", launch.options)
    try:
        found: dict[str, Any] = json.loads(text.splitlines()[-1])
    except (ValueError, IndexError):
        raise AgentError("probe-failed", "no answer: %r" % text[-200:], where=launch.python)
    if not found["locations"]:
        raise AgentError("no-sglang", "sglang cannot be imported there", where=launch.python)
    return dict(found, **_metadata(found["info"] or ""))


def _metadata(folder: str) -> dict[str, Any]:
    """Return what the package's metadata says; ``record`` identifies what was installed."""

    def text(name: str) -> str:
        return procs.read(os.path.join(folder, name)) if folder else ""

    version = re.search(r"^Version:\s*(\S+)", text("METADATA") or text("PKG-INFO"), re.M)
    return {
        "version": version.group(1) if version else None,
        "editable": re.search(r'"editable"\s*:\s*true', text("direct_url.json")) is not None,
        "installer": text("INSTALLER").strip() or None,
        "record": files.sha256(os.path.join(folder, "RECORD")) if folder else None,
    }


def compile_check(launch: Launch, files: Sequence[tuple[str, str]]) -> None:
    """Compile files (path, name to show) with the unit's interpreter. AgentError: does-not-compile."""
    _python(launch, COMPILE, json.dumps(list(files)), ["-I", "-S"], "does-not-compile")


def _python(
    launch: Launch,
    program: str,
    stdin: str,
    options: Sequence[str],
    reference: str = "probe-failed",
) -> str:
    env = dict(launch.env, PYTHONDONTWRITEBYTECODE="1")
    try:
        done = subprocess.run(
            [launch.python, *options, "-c", program],
            input=stdin.encode("utf-8"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=env, cwd=launch.cwd, timeout=60.0, check=False,
            preexec_fn=_become(launch.user),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise AgentError(reference, "no answer within 60 s", where=launch.python)
    except OSError as error:
        raise AgentError(
            "no-interpreter",
            error.strerror or str(error),
            where=launch.python,
            hint="the unit's ExecStart names it; was the environment moved or rebuilt?",
        )
    out = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        said = (out + done.stderr.decode("utf-8", "replace")).strip().splitlines()
        raise AgentError(reference, said[-1][:500] if said else "no reason", where=launch.python)
    return out


def _become(user: str) -> Any:
    if not user or os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        return None

    def become() -> None:
        os.initgroups(entry.pw_name, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)

    return become


def file_system(path: str) -> str:
    """Return the type of the file system that holds a path, or ""."""
    best, kind = "", ""
    for line in procs.read("/proc/self/mountinfo").splitlines():
        left, mark, right = line.partition(" - ")
        fields = left.split()
        if not mark or len(fields) < 5:
            continue
        point = fields[4].replace("\\040", " ")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind


def is_network(kind: str) -> bool:
    """Return whether a file system type means that other hosts may use the same files."""
    return any(kind == n or (n.endswith(".") and kind.startswith(n)) for n in NETWORK)


def other_units(prefix: str, own: str) -> list[str]:
    """Return the loaded services whose command lies in the same environment."""
    done = shell.run(
        ("systemctl", "--no-pager", "show", "-p", "Id,ExecStart", "--", "*.service"), 15.0
    )
    found = []
    inside = re.escape(prefix.rstrip("/")) + "/"
    if prefix in ("/usr", "/usr/local"):  # every program lies there; those that are Python count
        inside += r"bin/(?:python|pypy)[0-9.]*[ ;]"
    for block in done.out.split("\n\n"):
        name = re.search(r"^Id=(.+)$", block, re.M)
        uses = re.search(r"[=\s]" + inside, block)
        if name and uses and name.group(1) != own:
            found.append(name.group(1))
    return sorted(found)
