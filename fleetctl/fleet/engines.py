"""SGLang releases on hosts: what is asked for, bundles for hosts without network, and their transfer."""

from __future__ import annotations

import hashlib
import importlib.resources
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetctl.apply import audit
from fleetctl.apply.session import Session, Sink
from fleetctl.apply.wish import token
from fleetctl.errors import FleetError, RemoteError, UsageError
from fleetctl.model.fleet import Host
from fleetctl.transport import connect

INSTALL_SECONDS = 3900.0
CHUNK = 1 << 20
STORE = "/var/lib/fleetctl/engine-bundles"
BUNDLE = "fleetctl.engine-bundle/1"
_VERSION = re.compile(r"\d+(\.\d+)*([a-z]+\d*)?(\.(post|dev)\d+)?(\+[a-z0-9.]+)?")


@dataclass(frozen=True, slots=True)
class Source:
    """What to install: a requirement for pip, the name it gets, and a bundle that has it."""

    text: str  # as it was asked for; a second install of the same changes nothing
    requirement: str
    name: str
    bundle: Path | None = None


def source(text: str, name: str = "") -> Source:
    """Read VERSION, WHEEL, BUNDLE.tar or git+URL@SHA. Raises UsageError ``bad-engine``.

    A wheel of this machine needs its dependencies too: ``engine bundle`` packs it with them.
    """
    if _VERSION.fullmatch(text):
        return Source(text, f"sglang[all]=={text}", name or text)
    if text.startswith("git+"):
        url, _, commit = text.partition("#")[0].rpartition("@")
        if not re.fullmatch(r"[0-9a-f]{7,40}", commit) or "://" not in url:
            raise UsageError("bad-engine", f"{text}: git+URL@SHA is wanted, with a commit's hash")
        whole = text if "#" in text else f"{text}#subdirectory=python"
        return Source(text, f"sglang[all] @ {whole}", name or f"git-{commit[:12]}")
    path = Path(text).expanduser()
    if path.suffix == ".tar" and path.is_file():
        manifest = manifest_of(path)
        digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
        return Source(
            f"bundle:{digest[:16]}", manifest["requirement"], name or manifest["name"], path
        )
    if path.suffix == ".whl" and path.is_file():
        raise UsageError(
            "bad-engine", f"{text} is a wheel without what it needs",
            hint=f"`fleetctl engine bundle {text} -o engine.tar` packs both; then install engine.tar",
        )  # fmt: skip
    raise UsageError(
        "bad-engine", f"{text} is no release, bundle or commit",
        hint="0.5.12.post1, engine.tar, or git+https://github.com/sgl-project/sglang@SHA",
    )  # fmt: skip


def manifest_of(path: Path) -> dict[str, Any]:
    """Return the manifest of a bundle. Raises UsageError ``bad-engine``."""
    try:
        with tarfile.open(path, "r:") as tar:
            file = tar.extractfile("manifest.json")
            assert file is not None
            body: dict[str, Any] = json.load(file)
        if body["schema"] != BUNDLE:
            raise ValueError(body["schema"])
        return body
    except (OSError, ValueError, KeyError, tarfile.TarError) as error:
        raise UsageError("bad-engine", f"no engine bundle: {error}", where=str(path)) from error


def bundle(text: str, out: Path, pip_options: Sequence[str], name: str = "") -> dict[str, Any]:
    """Fetch a release, wheel or commit with all it needs into one file; return its manifest.

    ``pip_options`` go to ``pip download`` (platform, Python version, index). Raises FleetError
    ``bundle-failed`` with what pip said.
    """
    path = Path(text).expanduser()
    if path.suffix == ".whl" and path.is_file():
        found, version = str(path), path.name.split("-")[1]
        asked = Source(text, f"sglang=={version}", name or version)
    else:
        asked = source(text, name)
        found = asked.requirement
    with tempfile.TemporaryDirectory(prefix="fleetctl-bundle-") as folder:
        argv = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input",
                "--dest", folder, *pip_options, found]  # fmt: skip
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            said = tuple((done.stderr or done.stdout).strip().splitlines()[-8:])
            raise FleetError("bundle-failed", "pip could not fetch it", where=text, context=said)
        _add_pip(Path(folder))
        wheels = sorted(Path(folder).iterdir())
        manifest = {
            "schema": BUNDLE, "name": asked.name, "requirement": _pinned(wheels, asked),
            "source": text, "files": {w.name: _sha256(w) for w in wheels},
            "bytes": sum(w.stat().st_size for w in wheels),
        }  # fmt: skip
        _pack(out, manifest, wheels)
    return manifest


def _add_pip(folder: Path) -> None:
    """Put the pip that comes with this Python into the bundle: many a host has none, nor ensurepip."""
    if any(folder.glob("pip-*.whl")):
        return
    for wheel in (Path(str(importlib.resources.files("ensurepip"))) / "_bundled").glob("pip-*.whl"):
        shutil.copy(wheel, folder)


def _pinned(wheels: Sequence[Path], asked: Source) -> str:
    """Return the requirement that the bundle satisfies without an index."""
    found = [w.name.split("-")[1] for w in wheels if re.match(r"sglang-\d", w.name)]
    if len(found) != 1:
        raise FleetError("bundle-failed", "there is no wheel of sglang in it", where=asked.text)
    return f"sglang=={found[0]}"


def _pack(out: Path, manifest: dict[str, Any], wheels: Sequence[Path]) -> None:
    part = out.with_name(out.name + ".part")
    with tarfile.open(part, "w:") as tar:
        text = json.dumps(manifest, indent=1).encode()
        head = tarfile.TarInfo("manifest.json")
        head.size = len(text)
        tar.addfile(head, io.BytesIO(text))
        for wheel in wheels:
            tar.add(wheel, arcname=wheel.name, recursive=False)
    part.replace(out)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def send(host: Host, path: Path) -> str:
    """Copy a bundle to a host in pieces, and return its name there. Raises FleetError."""
    name = f"{token()}.tar"
    place = shlex.quote(f"{STORE}/{name}")
    text = f"umask 077 && mkdir -p {STORE} && cat > {place} || {{ rm -f {place}; exit 1; }}"
    command = f"sudo -n sh -c {shlex.quote(text)}" if host.become else text
    connection = connect(host)
    try:
        channel = connection.open(command)
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                channel.send(chunk)
        channel.close_stdin()
        if channel.wait(600.0):
            said = channel.stderr().decode("utf-8", "replace").strip()
            raise RemoteError(
                "transfer-failed", said or "the bundle was not written", where=host.name
            )
    finally:
        connection.close()
    return name


def install(
    session: Session, host: Host, asked: Source, tell: Sink, *, python: str = "", index: str = ""
) -> dict[str, Any]:
    """Install an engine on a host, beside those that are there; return what is there now. Raises FleetError."""
    known = {e["name"]: e for e in listed(session)}
    sent = None
    if asked.bundle is not None and (known.get(asked.name) or {}).get("source") != asked.text:
        tell({"event": "step", "do": "engine-send", "state": "issued", "target": asked.bundle.name,
              "seconds": 0.0})  # fmt: skip
        sent = send(host, asked.bundle)
    args = {
        "name": asked.name, "source": asked.text, "requirement": asked.requirement,
        "bundle": sent, "python": python, "index": ["--index-url", index] if index else [],
        "bytes": 2 * asked.bundle.stat().st_size if asked.bundle else None, "lock": _lock(asked.name),
    }  # fmt: skip
    with audit.change(
        {"do": "engine-install", "host": host.name, "engine": asked.name, "source": asked.text}
    ):
        return session.call("engine.install", args, on_event=tell, timeout=INSTALL_SECONDS)


def listed(session: Session) -> list[dict[str, Any]]:
    """Return the engines of a host. Raises FleetError."""
    found: list[dict[str, Any]] = session.call("engine.list", {})["engines"]
    return found


def remove(session: Session, host: Host, name: str, *, force: bool) -> dict[str, Any]:
    """Remove an engine that nothing uses. Raises FleetError ``engine-in-use``."""
    args = {"name": name, "force": force, "lock": _lock(name)}
    with audit.change({"do": "engine-remove", "host": host.name, "engine": name}):
        return session.call("engine.remove", args, timeout=300.0)


def _lock(name: str) -> dict[str, str]:
    return {"token": token(), "who": audit.who(), "why": f"engine {name}",
            "command": audit.command_line()}  # fmt: skip
