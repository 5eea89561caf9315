"""Asks SGLang's own resolver what it makes of a command line: no GPU memory is taken, no server started.

``prepare_server_args(argv)`` parses; up to 0.5.15.post1 it also resolves, from 0.5.19 ``resolve_once()`` does
and ``resolved_dict()`` tells. ``_set_envs_and_config`` of the engine then writes NCCL's variables and
``check_server_args()`` looks at combinations, as they do before a start. The program runs with the
interpreter and the environment of the unit.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from fleetctl.remote import redact
from fleetctl.remote.agent import AgentError

SECONDS = 180.0
LOG_LINES = 30
SECRET = ("api_key", "admin_api_key", "ssl_keyfile_password")

# Importing costs seconds, so it is done once; each command line is then tried in a fork of its own,
# because resolving writes the environment and may leave half-made state behind. Where the import has
# touched the GPU, CUDA refuses to work in a fork: then each gets a program of its own, four at a time.
PROGRAM = r"""
import json, os, random, subprocess, sys, tempfile, time, traceback
from concurrent.futures import ThreadPoolExecutor

def plain(value, depth=0):
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if depth > 6:
        return str(value)
    if isinstance(value, dict):
        return {str(k): plain(v, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
        return [plain(v, depth + 1) for v in items]
    if hasattr(value, "value") and hasattr(value, "name"):
        return plain(value.value, depth + 1)
    if hasattr(value, "__dataclass_fields__"):
        return {k: plain(getattr(value, k, None), depth + 1) for k in value.__dataclass_fields__}
    return str(value)

def fields(args):
    if hasattr(args, "resolved_dict"):
        return args.resolved_dict()
    names = getattr(type(args), "__dataclass_fields__", None) or vars(args)
    return {name: getattr(args, name, None) for name in names}

def where(error):
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "sglang" in f.filename]
    return "%s:%d" % (frames[-1].filename, frames[-1].lineno) if frames else ""

def attempt(argv):
    before = dict(os.environ)
    random.seed(0)  # a drawn seed is no effect of a flag
    try:
        args = prepare_server_args(argv)
        if hasattr(args, "resolve_once"):
            args.resolve_once()
        found = {"ok": True, "resolved": plain(fields(args))}
        if engine is not None:
            engine(args)
        if hasattr(args, "check_server_args"):
            args.check_server_args()
    except SystemExit as error:
        found = {"ok": False, "error": {"type": "argparse", "message": "", "where": "", "status": error.code}}
    except BaseException as error:
        found = {"ok": False, "error": {"type": type(error).__name__, "message": str(error),
                                        "where": where(error)}}
    names = sorted(set(before) | set(os.environ))
    found["env_changes"] = {n: [before.get(n), os.environ.get(n)] for n in names
                            if before.get(n) != os.environ.get(n) and n != "SGLANG_RUN_ID"}
    return found

def isolated(argv):
    begun = time.monotonic()
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as log:
        pid = os.fork()
        if pid == 0:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            try:
                answer.write(json.dumps(attempt(argv), default=str).encode())
                answer.flush()
            finally:
                os._exit(0)
        status = os.waitpid(pid, 0)[1]
        answer.seek(0)
        text = answer.read()
        log.seek(0)
        lines = log.read()[-65536:].decode("utf-8", "replace").splitlines()
    if text:
        found = json.loads(text)
    else:
        found = {"ok": False, "env_changes": {}, "error": {
            "type": "died", "message": "the resolver ended with wait status %d" % status, "where": ""}}
    if not found["ok"] and found["error"]["type"] == "argparse":
        said = [line for line in lines if ": error: " in line]
        found["error"]["message"] = said[-1].partition(": error: ")[2] if said else "\n".join(lines[-3:])
    found["log"] = [line for line in lines if line.strip() and not line.startswith(("usage:", "  "))]
    found["seconds"] = round(time.monotonic() - begun, 3)
    return found

def spoiled(found):
    return not found["ok"] and "CUDA in forked subprocess" in found["error"]["message"]

def alone(argv):
    whole = json.dumps({"cases": [argv], "program": request["program"], "fork": False}).encode()
    done = subprocess.run([sys.executable, "-c", request["program"]], input=whole, stdout=subprocess.PIPE)
    return json.loads(done.stdout.splitlines()[-1])

def answers(cases):
    if not request["fork"]:
        for argv in cases:
            found = attempt(argv)
            if not found["ok"] and found["error"]["type"] == "argparse":
                found = isolated(argv)  # what argparse printed is read from there; it touches no GPU
            yield dict({"log": [], "seconds": 0.0}, **found)
        return
    for number, argv in enumerate(cases):
        found = isolated(argv)
        if spoiled(found):
            with ThreadPoolExecutor(4) as pool:
                yield from pool.map(alone, cases[number:])
            return
        yield found

request = json.load(sys.stdin)
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
begun = time.monotonic()
from sglang.srt.server_args import prepare_server_args
engine, missing = None, ""
try:
    from sglang.srt.entrypoints.engine import _set_envs_and_config as engine
except Exception as error:
    missing = "%s: %s" % (type(error).__name__, error)
imported = round(time.monotonic() - begun, 3)
for found in answers(request["cases"]):
    out.write(json.dumps(dict({"import_seconds": imported, "engine": missing or None}, **found)) + "\n")
    out.flush()
"""


def _environment(env: dict[str, str]) -> dict[str, str]:
    """Return the unit's environment: its own variables over the few that systemd would set."""
    kept = {k: os.environ[k] for k in ("PATH", "HOME", "LANG", "TMPDIR") if k in os.environ}
    return {**kept, **{k: str(v) for k, v in env.items()}}


def resolve_many(args: dict[str, Any], _session: Any = None) -> dict[str, Any]:
    """Return ``{"results": [...]}`` for ``{python, cases: [argv, …], env, cwd, timeout}``, in order.

    Each result is ``{ok, resolved, env_changes: {name: [before, after]}, error, log, seconds,
    import_seconds, engine}``; ``engine`` says why the engine's own variables are not among the changes
    (null: they are). AgentError: resolver-unavailable when SGLang cannot be imported there,
    resolver-timeout after ``timeout`` seconds (default 180).
    """
    python = str(args["python"])
    cases = [[str(word) for word in argv] for argv in args["cases"]]
    limit = float(args.get("timeout") or SECONDS)
    request = json.dumps({"cases": cases, "program": PROGRAM, "fork": True}).encode("utf-8")
    try:
        with subprocess.Popen(
            [python, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(args.get("env") or {}),
            cwd=args.get("cwd") or "/",
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(request, limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                raise AgentError("resolver-timeout", "no answer after %g s" % limit, where=python)
    except OSError as error:
        raise AgentError("resolver-unavailable", error.strerror or str(error), where=python)
    results = [json.loads(line) for line in out.decode("utf-8").splitlines()]
    if len(results) != len(cases):
        said = redact.redact(err.decode("utf-8", "replace")).strip().splitlines()
        raise AgentError(
            "resolver-unavailable",
            said[-1] if said else "SGLang's resolver ended with status %s" % process.returncode,
            where=python,
            context=said[-6:-1],
            hint="python -c 'import sglang.srt.server_args' says more",
        )
    return {"results": [_safe(result) for result in results]}


def _safe(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result without secrets and with a bounded log."""
    resolved = result.get("resolved") or {}
    for name in SECRET:
        if resolved.get(name):
            resolved[name] = "<redacted>"
    result["resolved"] = resolved
    result["log"] = [redact.redact(line)[:500] for line in result.get("log", [])[-LOG_LINES:]]
    error = result.setdefault("error", None)
    if error:
        error["message"] = redact.redact(error["message"])[:2000]
    return result


def resolve(args: dict[str, Any], _session: Any = None) -> dict[str, Any]:
    """Return one result for ``{python, argv, env}``; see ``resolve_many``."""
    many = dict(args, cases=[args["argv"]])
    result: dict[str, Any] = resolve_many(many)["results"][0]
    return result


VERBS = {"resolve": resolve, "resolve_many": resolve_many}
