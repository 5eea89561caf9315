"""SGLang in virtual environments side by side, /opt/sglang/NAME: install, verify, list, remove.

A venv cannot be moved once it is made, so it is made in its place; until ``engine.json`` is in it, it
does not count, and a failed one is taken away whole.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
from typing import Any

from fleetctl.remote import files, lock, places, records, revisions, shell, unit
from fleetctl.remote.agent import AgentError

ROOT = places.ROOT + "/opt/sglang"
BUNDLES = places.STATE + "/engine-bundles"
SECONDS = 3600.0
DISK = 1 << 30  # bytes that must be free before anything is fetched from an index
_NAME = re.compile(r"^\.?[A-Za-z0-9][A-Za-z0-9._+-]{0,80}$")  # .venv is where profiles look first
# What has to fit SGLang to the exact version it asks for: compiled against each other.
MATCHED = ("torch", "sgl-kernel", "sglang-kernel", "flashinfer-python", "torchvision", "torchaudio")

_LOOK = """
import json, sys
from importlib import metadata
found = {"python": ".".join(map(str, sys.version_info[:3])), "versions": {}, "needs": []}
for d in metadata.distributions():
    found["versions"][str(d.metadata["Name"]).lower().replace("_", "-")] = d.version
try:
    found["needs"] = list(metadata.requires("sglang") or [])
except metadata.PackageNotFoundError:
    pass
print(json.dumps(found))
"""


def folder_of(name: str) -> str:
    """Return where an engine of that name lies. AgentError: wrong-name."""
    if not _NAME.match(name):
        raise AgentError("wrong-name", "not a name for an engine: %r" % name, exit_code=2)
    return os.path.join(ROOT, name)


def python_of(folder: str) -> str:
    """Return the interpreter of a venv."""
    return os.path.join(folder, "bin", "python")


def look(folder: str) -> dict[str, Any]:
    """Return versions and needs by the venv's own interpreter; empty when it does not run."""
    return shell.json_object(shell.run((python_of(folder), "-c", _LOOK), 60.0).out)


def mismatches(needs: list[str], versions: dict[str, str]) -> list[str]:
    """Return which compiled parts are not the exact version that SGLang asks for. Pure."""
    found = []
    for need in needs:
        match = re.match(r"^([A-Za-z0-9._-]+)\s*\(?==\s*([^;,)\s]+)\)?\s*(;.*)?$", need)
        if not match or "extra ==" in (match.group(3) or ""):
            continue
        name = match.group(1).lower().replace("_", "-")
        have = versions.get(name)
        # A local part (2.9.1+cu129) says how it was built, not which release it is.
        if (
            name in MATCHED
            and have is not None
            and have.split("+")[0] != match.group(2).split("+")[0]
        ):
            found.append("%s is %s, sglang asks for %s" % (name, have, match.group(2)))
    return found


def installed(name: str) -> dict[str, Any] | None:
    """Return what is known of a finished engine, or None."""
    return records.read_object(os.path.join(folder_of(name), "engine.json"))


# --- verbs ---


def _install(args: dict[str, Any], session: Any) -> dict[str, Any]:
    """Make the venv, install into it, verify it; a second run with the same source changes nothing."""
    name, folder = args["name"], folder_of(args["name"])
    there = installed(name)
    if there is not None and there.get("source") == args["source"] and look(folder):
        return dict(there, state="unchanged")
    if os.path.exists(folder) and not os.path.exists(os.path.join(folder, ".fleetctl-unfinished")):
        raise AgentError(
            "engine-exists",
            "%s is there and is not this engine" % folder,
            where=folder,
            hint="install under another --name, or `fleetctl engine remove %s`" % name,
            exit_code=7,
        )
    held = lock.acquire("engine", args["lock"])
    try:
        records.audit({"do": "engine-install", "engine": name, "source": args["source"],
                       "by": args["lock"].get("who", "")})  # fmt: skip
        shutil.rmtree(folder, ignore_errors=True)
        return dict(_make(args, folder, session), state="installed")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        held.release()


def _make(args: dict[str, Any], folder: str, session: Any) -> dict[str, Any]:
    os.makedirs(folder, mode=0o755)
    files.write_atomic(os.path.join(folder, ".fleetctl-unfinished"), "")
    free = shutil.disk_usage(folder).free
    if free < int(args.get("bytes") or DISK):
        raise AgentError("disk-low", "%s has %d MiB left" % (ROOT, free >> 20), where=folder)
    wheels = _unpack(args["bundle"], folder) if args.get("bundle") else None
    uv = shutil.which("uv", path=shell.ENV["PATH"])
    _step(session, "venv", folder)
    base = args.get("python") or "python3"
    own_pip = _pip_of(wheels)
    if uv:
        make: tuple[str, ...] = (uv, "venv", "--python", base, "--allow-existing", folder)
    else:
        make = (base, "-m", "venv", *(("--without-pip",) if own_pip else ()), folder)
    shell.must(make, "venv-failed", 300.0, "Debian and Ubuntu: apt-get install python3-venv")
    _step(session, "install", args["requirement"])
    python = python_of(folder)
    if uv:
        pip: tuple[str, ...] = (uv, "pip", "install", "--python", python)
    else:
        called = (own_pip,) if own_pip else ("-m", "pip")
        pip = (python, *called, "install", "--disable-pip-version-check", "--no-input")
    where = ("--no-index", "--find-links", wheels) if wheels else tuple(args.get("index") or ())
    shell.must((*pip, *where, args["requirement"]), "install-failed", SECONDS)
    _step(session, "verify", folder)
    body = _verified(args, folder)
    if wheels:
        shutil.rmtree(wheels)
    files.write_atomic(os.path.join(folder, "engine.json"), records.line_of(body))
    os.unlink(os.path.join(folder, ".fleetctl-unfinished"))
    return body


def _pip_of(wheels: str | None) -> str | None:
    """Return how to run the pip of a bundle: a wheel of pip is a program, for hosts that have none."""
    names = (
        sorted(n for n in os.listdir(wheels) if re.match(r"pip-\d.*\.whl$", n)) if wheels else []
    )
    return os.path.join(str(wheels), names[-1], "pip") if names else None


def _verified(args: dict[str, Any], folder: str) -> dict[str, Any]:
    seen = look(folder)
    versions = seen.get("versions") or {}
    if "sglang" not in versions:
        raise AgentError("no-sglang", "%s has no sglang after the installation" % folder)
    wrong = mismatches(seen.get("needs") or [], versions)
    if wrong:
        raise AgentError("engine-mismatch", "; ".join(wrong), where=folder,
                         hint="nothing was kept; pin what fits, or take another release")  # fmt: skip
    kept = ("sglang", *MATCHED)
    return {
        "name": args["name"], "path": folder, "interpreter": python_of(folder),
        "source": args["source"], "python": seen["python"], "at": records.now(),
        "by": args["lock"].get("who", ""), "versions": {k: versions[k] for k in kept if k in versions},
    }  # fmt: skip


def _step(session: Any, do: str, target: str) -> None:
    if session.cancelled():
        raise AgentError("interrupted", "nothing was kept", exit_code=130)
    session.emit({"event": "step", "do": "engine-" + do, "state": "issued", "target": target,
                  "seconds": 0.0})  # fmt: skip


def _unpack(bundle: str, folder: str) -> str:
    """Unpack the wheels of a bundle below the engine's folder; each has the hash that its manifest says."""
    path = os.path.join(BUNDLES, places.safe_name(bundle))
    wheels = os.path.join(folder, ".wheels")
    os.mkdir(wheels, 0o700)
    try:
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                name = places.safe_name(member.name)
                source = tar.extractfile(member) if member.isreg() else None
                if source is None:
                    raise AgentError("bad-bundle", "the bundle holds %r" % member.name)
                with source, open(os.path.join(wheels, name), "xb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)
        with open(os.path.join(wheels, "manifest.json"), encoding="utf-8") as manifest:
            said = json.load(manifest)["files"]
        for name, digest in said.items():
            if files.sha256(os.path.join(wheels, places.safe_name(name))) != digest:
                raise AgentError("bad-bundle", "%s is not what the bundle says" % name)
    except (OSError, ValueError, KeyError, tarfile.TarError) as error:
        raise AgentError("bad-bundle", "it cannot be unpacked: %s" % error, where=path) from error
    finally:
        if os.path.exists(path):
            os.unlink(path)
    return wheels


def users(folder: str) -> dict[str, list[str]]:
    """Return which services run from a venv now, and which could be rolled back to it."""
    inside = folder + os.sep
    units = shell.run(("systemctl", "list-units", "--plain", "--no-legend", "--type=service",
                       "--all", "sglang-*"), 10.0).out  # fmt: skip
    running = []
    for line in units.splitlines():
        name = (line.split() or [""])[0]
        if name and inside in unit.show(name, ("ExecStart",)).get("ExecStart", ""):
            running.append(name)
    kept = []
    for service in sorted(os.listdir(places.REVISIONS)) if os.path.isdir(places.REVISIONS) else []:
        for revision in revisions.everything(service):
            python = str((revision.get("profile") or {}).get("python") or "")
            if python.startswith(inside):
                kept.append("%s revision %s" % (service, revision["number"]))
    return {"units": running, "revisions": kept}


def _list(_args: dict[str, Any], _session: Any) -> dict[str, Any]:
    found = []
    for name in sorted(os.listdir(ROOT)) if os.path.isdir(ROOT) else []:
        if not _NAME.match(name):
            continue
        body = installed(name)
        if body is None:
            seen = look(os.path.join(ROOT, name))
            if not seen:
                continue
            versions = seen["versions"]
            kept = {k: versions[k] for k in ("sglang", *MATCHED) if k in versions}
            body = {"name": name, "path": os.path.join(ROOT, name), "source": None,
                    "interpreter": python_of(os.path.join(ROOT, name)),
                    "python": seen["python"], "at": None, "by": "", "versions": kept}  # fmt: skip
        found.append(dict(body, used_by=users(body["path"])))
    return {"engines": found}


def _remove(args: dict[str, Any], _session: Any) -> dict[str, Any]:
    folder = folder_of(args["name"])
    if not os.path.isdir(folder):
        return {"name": args["name"], "state": "unchanged"}
    used = users(folder)
    if used["units"] or (used["revisions"] and not args.get("force")):
        raise AgentError(
            "engine-in-use",
            "%s is used by %s" % (folder, ", ".join(used["units"] + used["revisions"])),
            where=folder,
            hint="deploy another one first" if used["units"] else
            "those could not be rolled back to any more; --force removes it all the same",
            exit_code=7,
        )  # fmt: skip
    if installed(args["name"]) is None and not args.get("force"):
        raise AgentError("foreign-engine", "%s was not installed by fleetctl" % folder, where=folder,
                         hint="--force removes it all the same", exit_code=7)  # fmt: skip
    held = lock.acquire("engine", args["lock"])
    try:
        records.audit({"do": "engine-remove", "engine": args["name"], "by": args["lock"]["who"]})
        shutil.rmtree(folder)
    finally:
        held.release()
    return {"name": args["name"], "state": "removed"}


VERBS = {"install": _install, "list": _list, "remove": _remove}
