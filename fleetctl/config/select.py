"""Selectors: host, host/service, globs, ranges, @group. Nothing is ever selected silently."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from fleetctl.config.nearest import did_you_mean
from fleetctl.config.ranges import expand, has_range
from fleetctl.errors import FleetError, UsageError
from fleetctl.model.fleet import Host, Service, Target

Found = TypeVar("Found")

HINT = "name hosts, @groups or globs, or say --all"
_COMMA = re.compile(r",(?![^\[]*\])")  # outside brackets


def select(hosts: Mapping[str, Host], patterns: Sequence[str]) -> list[Target]:
    """Return the services that the patterns pick, each once, in the order of the inventory.

    A host without ``/service`` means its service ``main``, or its only one. ``--all`` means every
    service of every host. Several stand in one pattern, with commas. Raises UsageError, or ManyErrors
    for all unknown names at once.
    """
    found = _each(patterns, lambda pattern: _one(hosts, pattern))
    picked = {(t.host.name, t.service.name) for t in found}
    return [
        Target(host, service)
        for host in hosts.values()
        for service in host.services
        if (host.name, service.name) in picked
    ]


def select_hosts(hosts: Mapping[str, Host], patterns: Sequence[str]) -> list[Host]:
    """Return the hosts that the patterns pick, each once, in the order of the inventory.

    One that runs no service counts too: a jump host is reached like any other. Raises as ``select``.
    """
    found = _each(patterns, lambda pattern: _hosts_of_one(hosts, pattern))
    picked = {host.name for host in found}
    return [host for host in hosts.values() if host.name in picked]


def _each(patterns: Sequence[str], one: Callable[[str], list[Found]]) -> list[Found]:
    """Return what all patterns pick; several stand in one word, with commas."""
    words = [word for text in patterns for word in _COMMA.split(text) if word]
    if not words:
        raise UsageError("no-host", "no host is named", hint=HINT)
    found: list[Found] = []
    errors: list[FleetError] = []
    for word in words:
        try:
            found += one(word)
        except UsageError as error:
            errors.append(error)
    if errors:
        from fleetctl.config.check import raise_all  # pydantic comes with it

        raise_all(errors)
    return found


def _hosts_of_one(hosts: Mapping[str, Host], pattern: str) -> list[Host]:
    if pattern == "--all":
        return list(hosts.values())
    if "/" in pattern:
        return [target.host for target in _one(hosts, pattern)]
    return _hosts(hosts, pattern)


def _one(hosts: Mapping[str, Host], pattern: str) -> list[Target]:
    if pattern == "--all":
        return [Target(h, s) for h in hosts.values() for s in h.services]
    names, slash, service = pattern.partition("/")
    found = [h for h in _hosts(hosts, names) if h.services]
    if not found:
        raise UsageError(
            "no-service", f"{names} runs no service", hint="see services: in hosts.yaml"
        )
    if not slash:
        return [Target(h, _default_service(h)) for h in found]
    targets = [
        Target(h, s) for h in found for s in h.services if fnmatch.fnmatchcase(s.name, service)
    ]
    if not targets:
        known = sorted({s.name for h in found for s in h.services})
        raise UsageError(
            "unknown-service",
            f"no service {service!r} on {names}",
            hint=did_you_mean(service, known, f"there is {', '.join(known)}"),
        )
    return targets


def _default_service(host: Host) -> Service:
    main = host.service("main")
    if main is not None:
        return main
    if len(host.services) == 1:
        return host.services[0]
    names = [f"{host.name}/{s.name}" for s in host.services]
    raise UsageError(
        "which-service",
        f"{host.name} has several services and none is called main",
        hint=f"say {' or '.join(names)}, or {host.name}/* for all",
    )


def _hosts(hosts: Mapping[str, Host], names: str) -> list[Host]:
    if names.startswith("@"):
        return _group(hosts, names[1:])
    try:
        wanted = [n.name for n in expand(names)] if has_range(names) else [names]
    except ValueError as error:
        raise UsageError("bad-range", f"{names!r}: {error}") from error
    found: list[Host] = []
    missing: list[str] = []
    for name in wanted:
        if "*" in name or "?" in name:
            matches = [h for h in hosts.values() if fnmatch.fnmatchcase(h.name, name)]
            found += matches
            missing += [] if matches else [name]
        elif name in hosts:
            found.append(hosts[name])
        else:
            missing.append(name)
    if missing:
        what = "no host is called" if "*" not in names else "no host matches"
        raise UsageError(
            "unknown-host",
            f"{what} {', '.join(missing)}",
            hint=did_you_mean(missing[0], hosts, "`fleetctl hosts list` shows the inventory"),
        )
    return found


def _group(hosts: Mapping[str, Host], name: str) -> list[Host]:
    found = [h for h in hosts.values() if name in h.groups]
    if not found:
        known = sorted({g for h in hosts.values() for g in h.groups})
        otherwise = f"there are {', '.join(known)}" if known else "the inventory has no groups"
        raise UsageError(
            "unknown-group",
            f"no host is in group {name!r}",
            hint=did_you_mean(name, known, otherwise),
        )
    return found
