"""An earlier launch as it was installed: its own texts, with secrets resolved anew."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace
from typing import Any

from fleetctl.errors import RefusedError
from fleetctl.model.launch import LaunchConfig
from fleetctl.model.plan import WriteFile
from fleetctl.model.revision import Revision, profile_to_json
from fleetctl.render.launch import Rendered


def body_of(rendered: Rendered, restores: int | None = None) -> dict[str, Any]:
    """Return what a host keeps of this launch: texts of all files but the secret ones, hashes of all."""
    return {
        "profile": profile_to_json(rendered.profile),
        "config": asdict(rendered.config),
        "restores": restores,
        "files": [
            {
                "path": f.path,
                "sha256": hashlib.sha256(f.content.encode()).hexdigest(),
                "mode": f.mode,
                "owner": f.owner,
                "secret": f.secret,
                "content": None if f.secret else f.content,
            }
            for f in rendered.files
        ],
        "absent": list(rendered.obsolete),
    }


def restore(rendered: Rendered, revision: Revision) -> Rendered:
    """Return the launch with the revision's own texts in place of what the site renders today.

    Versions and patches stay those of now. Raises RefusedError ``port-changed`` or ``not-restorable``.
    """
    where = str(rendered.target)
    port = str(revision.config.flags.get("port", ""))
    if port != str(rendered.target.service.port):
        raise RefusedError(
            "port-changed",
            f"revision {revision.number} has port {port}, hosts.yaml says {rendered.target.service.port}",
            where=where,
            hint="deploy a profile, or set the port in hosts.yaml back",
        )
    fresh = {f.path: f for f in rendered.files}
    files = tuple(_file(f, fresh, revision, where) for f in revision.files)
    unit_text = next((f.content for f in files if f.path == rendered.unit_path), "")
    return replace(
        rendered,
        files=files,
        unit_text=unit_text,
        config=_config(rendered.config, revision.config),
        warnings=(*rendered.warnings, *_warnings(rendered, files, revision)),
        obsolete=revision.absent,
    )


def _file(kept: Any, fresh: dict[str, WriteFile], revision: Revision, where: str) -> WriteFile:
    content = kept.content
    if kept.secret and kept.path in fresh:
        content = fresh[kept.path].content
    if content is None:
        raise RefusedError(
            "not-restorable",
            f"revision {revision.number} does not hold {kept.path}",
            where=where,
            hint="deploy the profile itself",
        )
    return WriteFile(kept.path, content, kept.mode, kept.owner, secret=kept.secret)


def _config(now: LaunchConfig, then: LaunchConfig) -> LaunchConfig:
    return replace(then, versions=now.versions, patches=now.patches)


def _warnings(rendered: Rendered, files: tuple[WriteFile, ...], revision: Revision) -> list[str]:
    found = []
    then, now = revision.config.versions.get("sglang"), rendered.config.versions.get("sglang")
    if now and then != now:
        found.append(f"revision {revision.number} ran sglang {then}; {now} is there now")
    today = {f.path: f.content for f in rendered.files}
    other = [f.path for f in files if not f.secret and today.get(f.path) != f.content]
    if other:
        paths = ", ".join(other)
        found.append(
            f"the site renders these otherwise today; the revision's text is used: {paths}"
        )
    return found
