"""Bring a bundle home, check it, triage it, and put the failure into the incident log."""

from __future__ import annotations

import base64
import hashlib
import importlib
import importlib.metadata
import io
import json
import re
import shutil
import tarfile
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fleetctl.apply import audit
from fleetctl.apply.outcome import FAILED, Outcome, State
from fleetctl.apply.session import Session
from fleetctl.clock import SystemClock, rfc3339
from fleetctl.config import places
from fleetctl.errors import ConfigError, FleetError, RemoteError
from fleetctl.model.incident import Occurrence, occurrence_id
from fleetctl.model.launch import LaunchRecord

PACKED_LIMIT = 64 * 1024 * 1024
UNPACKED_LIMIT = 256 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")
_store_lock = threading.Lock()


def incident_id(host: str, manifest: dict[str, Any]) -> str:
    """Return the id of the failed invocation that a bundle is of."""
    return occurrence_id(
        host,
        str(manifest.get("boot_id") or ""),
        str(manifest["invocation_id"]),
        str(manifest["service"]),
    )


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a bundle that is to be recorded, of whatever origin.

    Raises ConfigError ``bad-bundle`` where it does not say which invocation failed, and when.
    """
    path = folder / "manifest.json"
    wanted = ("host", "service", "invocation_id", "created_at")
    try:
        said: dict[str, Any] = json.loads(path.read_bytes())
        whole = all(isinstance(said[name], str) and said[name] for name in wanted)
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        whole = False
    if not whole:
        raise ConfigError(
            "bad-bundle",
            f"it must say {', '.join(wanted)}; nothing was recorded",
            where=str(path),
            hint="without --record triage reads the bundle all the same",
        )
    texts = {k: said.get(k) for k in ("boot_id", "launch_id", "failed_at")}
    return said | {k: v if isinstance(v, str) else None for k, v in texts.items()}


def warm_up() -> None:
    """Load what the end of a watch needs while nothing else is to be done: half a second of imports."""
    threading.Thread(target=_load, daemon=True).start()


def _load() -> None:
    for name in ("fleetctl.incidents.store", "fleetctl.triage.engine", "fleetctl.triage.rule"):
        importlib.import_module(name)


def fetch(session: Session, manifest: dict[str, Any]) -> Path:
    """Return the folder of the bundle on this machine, fetched unless it is here already.

    Raises RemoteError ``bad-bundle`` for one that is not what its manifest says.
    """
    host = session.host.name
    folder = places.home() / "bundles" / incident_id(host, manifest)
    if _same(folder, manifest):
        return folder
    packed = bytearray()

    def take(event: dict[str, Any]) -> None:
        if event.get("event") == "chunk":
            packed.extend(base64.b64decode(event["data"]))
            if len(packed) > PACKED_LIMIT:
                raise _bad(host, "it is larger than 64 MiB")

    args = {"service": manifest["service"], "invocation_id": manifest["invocation_id"]}
    said = session.call("collect.fetch", args, on_event=take, timeout=300.0)
    if hashlib.sha256(packed).hexdigest() != said["sha256"]:
        raise _bad(host, "its bytes are not what the host sent")
    unpack(bytes(packed), folder, host)
    return folder


def unpack(packed: bytes, folder: Path, host: str) -> None:
    """Write the files of a bundle: flat names, regular files, bounded, each with its right hash."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        _extract(packed, new, host)
        _verify(new, host)
        if folder.exists():
            shutil.rmtree(folder)
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _extract(packed: bytes, new: Path, host: str) -> None:
    total = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as tar:
            for member in tar:
                total += member.size
                if not member.isreg() or _NAME.fullmatch(member.name) is None:
                    raise _bad(host, f"it holds {member.name!r}")
                if total > UNPACKED_LIMIT:
                    raise _bad(host, "it unpacks to more than 256 MiB")
                source = tar.extractfile(member)
                assert source is not None
                with source, (new / member.name).open("xb") as file:
                    shutil.copyfileobj(source, file)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise _bad(host, f"it cannot be unpacked: {error}") from error


def _verify(new: Path, host: str) -> None:
    try:
        manifest = json.loads((new / "manifest.json").read_text(encoding="utf-8"))
        files = dict(manifest["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _bad(host, "its manifest cannot be read") from error
    for name, said in files.items():
        path = new / name
        if _NAME.fullmatch(name) is None or not path.is_file():
            raise _bad(host, f"{name!r} is missing")
        if hashlib.sha256(path.read_bytes()).hexdigest() != said.get("sha256"):
            raise _bad(host, f"{name} is not what its manifest says")


def _same(folder: Path, manifest: dict[str, Any]) -> bool:
    try:
        there = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(there.get("files") == manifest.get("files"))


def _bad(host: str, message: str) -> RemoteError:
    return RemoteError(
        "bad-bundle",
        f"the evidence bundle is no good: {message}",
        where=host,
        hint="fetch it again with `fleetctl collect`; the host's copy is in /var/lib/fleetctl/spool",
    )


def triaged(folder: Path) -> dict[str, Any]:
    """Return what triage says of a bundle, as JSON."""
    from fleetctl.triage import triage_bundle

    try:
        return triage_bundle(folder).to_json(str(folder))
    except Exception as error:  # a bundle whose triage fails is still a bundle
        raise FleetError(
            "triage-fault",
            f"{type(error).__name__}: {error}",
            where=str(folder),
            hint="this is a bug of fleetctl; the bundle itself is kept",
        ) from error


def record(
    host: str,
    manifest: dict[str, Any],
    folder: Path,
    triage: dict[str, Any],
    *,
    requests: tuple[dict[str, Any], ...] = (),
) -> tuple[str, bool]:
    """Put a failed invocation into the incident log; return its id and whether it was new."""
    from fleetctl.incidents.store import open_store

    launch = _launch(folder)
    occurrence = Occurrence(
        id=incident_id(host, manifest),
        host=host,
        service=str(manifest["service"]),
        observed_at=str(manifest.get("failed_at") or manifest["created_at"]),
        triage=triage,
        invocation_id=str(manifest["invocation_id"]),
        boot_id=manifest.get("boot_id"),
        launch_id=manifest.get("launch_id"),
        bundle=str(folder),
        config=launch.get("config"),
        changed_since_ready=tuple(launch.get("changed_since_ready") or ()),
        request=json.dumps(list(requests)) if requests else None,
        recorded_by=audit.who(),
        recorded_at=rfc3339(SystemClock().now()),
        tool_version=importlib.metadata.version("fleetctl"),
    )
    with _store_lock:
        store = open_store()
        try:
            return occurrence.id, store.record_occurrence(occurrence)
        finally:
            store.close()


def last_incidents() -> dict[str, dict[str, Any]]:
    """Return the newest incident of each ``host/service`` in the operator's log: id, label, observed_at."""
    if not (places.home() / "incidents.db").exists():
        return {}
    from fleetctl.incidents.store import open_store

    with _store_lock:
        store = open_store()
        try:
            found = store.occurrences()
        finally:
            store.close()
    newest = {f"{o.host}/{o.service}": o for o in sorted(found, key=lambda o: o.observed_at)}
    return {
        name: {"id": o.id, "label": o.triage.get("label"), "observed_at": o.observed_at}
        for name, o in newest.items()
    }


def record_launch(launch: LaunchRecord) -> None:
    """Put a launch into the operator's log."""
    from fleetctl.incidents.store import open_store

    with _store_lock:
        store = open_store()
        try:
            store.record_launch(launch)
        finally:
            store.close()


def settle(
    session: Session,
    outcome: Outcome,
    result: dict[str, Any],
    requests: tuple[dict[str, Any], ...] = (),
) -> None:
    """Give an outcome of a failed watch its bundle, triage and incident; a fault here is only noted."""
    manifest = result.get("bundle") or {}
    if outcome.state not in FAILED or result.get("asked_stop"):
        return
    if "error" in manifest or not manifest.get("files"):
        outcome.more["evidence"] = manifest.get("message") or "none was kept"
        return
    try:
        folder = fetch(session, manifest)
        outcome.more["bundle"] = str(folder)
        outcome.triage = triaged(folder)
        if outcome.state == State.TIMED_OUT and outcome.triage["state"] not in ("crashed", "hung"):
            # Slow is not broken: the bundle is here, but nothing is said to have failed.
            outcome.triage = None
            return
        host = session.host.name
        outcome.incident, _ = record(host, manifest, folder, outcome.triage, requests=requests)
    except FleetError as error:
        outcome.more["evidence"] = f"{error.reference}: {error}"


def _launch(folder: Path) -> dict[str, Any]:
    try:
        value = json.loads((folder / "launch.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    value = value if isinstance(value, dict) else {}
    config, changed = value.get("config"), value.get("changed_since_ready")
    return {
        "config": config if isinstance(config, dict) else None,
        "changed_since_ready": [str(c) for c in changed] if isinstance(changed, list) else [],
    }


def launch_body(launch: LaunchRecord, **more: Any) -> dict[str, Any]:
    """Return a launch record as the host keeps it: ours, with what only the host needs."""
    return launch.to_json() | {"config": asdict(launch.config)} | more
