"""Asks a host how a server is started, and holds what comes of it against what fleetctl would render."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetctl.config import flagsets
from fleetctl.config.site import load_site
from fleetctl.config.write import scalar, section
from fleetctl.engines.sglang.schema import Schema
from fleetctl.errors import FleetError, UsageError
from fleetctl.model.fleet import Host, Profile, Target
from fleetctl.render import render
from fleetctl.render.adopt import SELF_MADE, Adopted, adopt, differences
from fleetctl.transport import connect
from fleetctl.transport.agent import Agent

SCHEMA = "fleetctl.adopted/1"


@dataclass(frozen=True, slots=True)
class Result:
    """What was adopted, its texts, and where a launch by fleetctl would differ (empty: it renders equal)."""

    adopted: Adopted
    host: Host
    profile_text: str
    service_text: str
    differences: tuple[str, ...]
    sglang: str

    def to_json(self) -> dict[str, Any]:
        """Return the documented object."""
        service = self.adopted.service
        return {
            "schema": SCHEMA,
            "host": self.host.name,
            "source": self.adopted.source,
            "sglang": self.sglang,
            "profile": self.adopted.profile.name,
            "profile_text": self.profile_text,
            "service": {"name": service.name, "port": service.port, "gpus": service.gpus},
            "equal": not self.differences,
            "differences": list(self.differences),
            "unit_differs": list(self.adopted.differs),
            "notes": list(self.adopted.notes),
        }


def ask(host: Host, *, unit: str, pid: int, name: str, service: str) -> Result:
    """Return what a unit or a process of a host comes to; nothing is changed anywhere."""
    connection = connect(host, ask=True)
    try:
        with Agent(connection, ("adopt", "flags")) as agent:
            answer = agent.call("adopt.look", {"unit": unit, "pid": pid})
            schema = _schema(agent, answer)
    finally:
        connection.close()
    return result(answer, schema, host, name=name, service=service)


def result(
    answer: dict[str, Any], schema: Schema, host: Host, *, name: str, service: str
) -> Result:
    """Return the adopted profile with its texts and the comparison."""
    adopted = adopt(answer, schema, name=name, service=service)
    return Result(
        adopted=adopted,
        host=host,
        profile_text=profile_text(adopted.profile),
        service_text=service_text(host, adopted),
        differences=compare(adopted, schema, host),
        sglang=schema.version or schema.digest,
    )


def _schema(agent: Agent, answer: dict[str, Any]) -> Schema:
    """Return the flags of the SGLang that runs there, else the newest that is known."""
    python = (answer.get("running") or {}).get("python") or Profile(name="", model="").python
    try:
        return flagsets.of_host(agent, python)
    except FleetError as error:
        if error.reference not in ("no-python", "no-sglang", "unknown-flag-layout"):
            raise
        return flagsets.newest()


def compare(adopted: Adopted, schema: Schema, host: Host) -> tuple[str, ...]:
    """Return where fleetctl's own rendering differs from the original, in words and variables."""
    done = render(adopted.profile, Target(host, adopted.service))
    start = done.argv.index("sglang.launch_server") + 1
    rendered = list(done.argv[start:])
    if "--config" in rendered:  # secrets go there; their values are not compared
        at = rendered.index("--config")
        del rendered[at : at + 2]
    original = list(adopted.words)
    for name in adopted.profile.secret_flags:
        at = original.index(f"--{name}")
        del original[at : at + 2]
    told = list(differences(schema, _ported(original, schema), rendered, ("was", "becomes")))
    own = {k: v for k, v in done.env.items() if k not in SELF_MADE}
    told += [
        f"env {key}: was {adopted.env.get(key, 'unset')}, becomes {own.get(key, 'unset')}"
        for key in sorted(own.keys() | adopted.env.keys())
        if own.get(key) != adopted.env.get(key)
    ]
    return tuple(told)


def _ported(words: list[str], schema: Schema) -> list[str]:
    """Return the words with the port that SGLang takes by default, which fleetctl always writes."""
    if any(use.flag.dest == "port" for use in schema.parse(words).uses):
        return words
    return [*words, "--port", "30000"]


def profile_text(profile: Profile) -> str:
    """Return the profile's file."""
    lines = [f"name: {profile.name}", f"model: {scalar(profile.model)}"]
    lines += section("flags", dict(sorted(profile.flags.items())))
    lines += section("env", dict(sorted(profile.env.items())))
    if profile.secret_flags or profile.secret_env:
        lines.append("secrets:")
        for kind, table in (("flags", profile.secret_flags), ("env", profile.secret_env)):
            if table:
                lines.append(f"  {kind}:")
                lines += [
                    f"    {n}: {{{r.kind}: {scalar(r.value)}}}" for n, r in sorted(table.items())
                ]
    lines.append(f"sglang: {{python: {scalar(profile.python)}, schema: installed}}")
    lines += section("unit", profile.unit)
    return "\n".join(lines) + "\n"


def service_text(host: Host, adopted: Adopted) -> str:
    """Return the lines of hosts.yaml that name the service."""
    service = adopted.service
    parts = [f"port: {service.port}"]
    if service.gpus is not None:
        parts.insert(0, f"gpus: [{', '.join(map(str, service.gpus))}]")
    return f"  {host.name}:\n    services:\n      {service.name}: {{{', '.join(parts)}}}\n"


def write(found: Result, *, force: bool) -> Path:
    """Write the profile into the site and return its file. UsageError ``profile-exists``."""
    from fleetctl.config.write import write_text

    site = load_site()
    path = site.root / "profiles" / f"{found.adopted.profile.name}.yaml"
    if path.exists() and not force:
        raise UsageError(
            "profile-exists",
            f"{found.adopted.profile.name} is there already",
            where=str(path),
            hint="--profile NAME for another, or --force to write over it",
        )
    return write_text(path, found.profile_text)
