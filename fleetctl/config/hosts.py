"""hosts.yaml as hosts: ranges unfolded, defaults filled in, contradictions found."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetctl.config.check import by_place, combined, raise_all, salvage
from fleetctl.config.nodes import Document
from fleetctl.config.ranges import Named, expand
from fleetctl.config.schema import (
    NAME,
    REMOVED,
    SERVICE_NAME,
    HostDefaults,
    HostEntry,
    HostsFile,
    ServiceEntry,
)
from fleetctl.errors import ConfigError, FleetError
from fleetctl.model.fleet import Host, Service

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
# A name, an IPv4 or an IPv6 address with its zone; no blank, and no option of another program.
_ADDRESS = re.compile(r"[\w.:\[][\w.:%\[\]-]*")


def read_hosts(document: Document) -> dict[str, Host]:
    """Return the hosts in the order of the file. Raises every fault of the file at once."""
    file, faults = salvage(HostsFile, document)
    if file is None:
        raise combined(faults)
    reader = _Reader(document, file.defaults)
    for key, entry in file.hosts.items():
        reader.add(key, entry)
    reader.check_jumps()
    raise_all(by_place([*faults, *reader.errors]))
    return {name: _with_way(host, reader.hosts) for name, host in reader.hosts.items()}


def _with_way(host: Host, hosts: dict[str, Host]) -> Host:
    """Return the host with the entries of the hosts that lead to it."""
    via = hosts.get(host.jump or "")
    return replace(host, via=_with_way(via, hosts)) if via else host


class _Reader:
    """Collects hosts and faults."""

    def __init__(self, document: Document, defaults: HostDefaults) -> None:
        self.document = document
        self.defaults = defaults
        self.hosts: dict[str, Host] = {}
        self.errors: list[FleetError] = []
        self._keys: dict[str, str] = {}  # host → key of the file

    def add(self, key: str, entry: HostEntry) -> None:
        try:
            names = expand(key)
        except ValueError as error:
            self._fault("bad-range", f"{key!r}: {error}", key, on_key=True)
            return
        faults = len(self.errors)
        for named in names:
            self._add_one(key, named, entry)
            if len(self.errors) > faults:  # the other names of a range have the same fault
                return

    def _add_one(self, key: str, named: Named, entry: HostEntry) -> None:
        if not NAME.fullmatch(named.name):
            self._fault(
                "bad-host-name",
                f"{named.name!r}: letters, digits, . _ and - only",
                key,
                on_key=True,
            )
            return
        if named.name in self._keys:
            self._fault(
                "duplicate-host",
                f"{named.name} is already described by {self._keys[named.name]!r}",
                key,
                on_key=True,
            )
            return
        self._keys[named.name] = key
        merged = self._merged(entry)
        self.hosts[named.name] = Host(
            name=named.name,
            address=self._address(key, named, entry),
            services=self._services(key, merged.pop("services"), merged["gpus"]),
            groups=tuple(merged.pop("groups")),
            env=tuple(self._kept(merged.pop("env"))),
            flags=tuple(self._kept(merged.pop("flags"))),
            key=self._file(merged.pop("key")),
            known_hosts=self._file(merged.pop("known_hosts")),
            **merged,
        )

    def _merged(self, entry: HostEntry) -> dict[str, Any]:
        """Return the host's fields over the defaults'; env and flags are merged by key."""
        merged: dict[str, Any] = {}
        for name in HostDefaults.model_fields:
            base, own = getattr(self.defaults, name), getattr(entry, name)
            if name in ("env", "flags"):
                merged[name] = base | own
            else:
                merged[name] = own if name in entry.model_fields_set else base
        return merged

    def _file(self, path: str | None) -> str | None:
        """Return the absolute path of a file; a relative one lies in the folder of hosts.yaml."""
        return str(self.document.path.parent / Path(path).expanduser()) if path else None

    @staticmethod
    def _kept(values: dict[str, Any]) -> list[tuple[str, Any]]:
        """Return the pairs; a removed one stays as None, since it takes the profile's away."""
        return [(k, None if v is REMOVED else v) for k, v in values.items()]

    def _address(self, key: str, named: Named, entry: HostEntry) -> str:
        def fill(match: re.Match[str]) -> str:
            if match[1] == "name":
                return named.name
            if match[1] == "n" and named.number is not None:
                return str(named.number)
            self._fault(
                "bad-address",
                f"{match[0]} has no meaning for {key!r}",
                key,
                "address",
                hint="{n} is the number of a range, {name} the host's name",
            )
            return ""

        faults = len(self.errors)
        address = _PLACEHOLDER.sub(fill, entry.address or named.name)
        if len(self.errors) == faults and not _ADDRESS.fullmatch(address):
            self._fault("bad-address", f"{address!r}: a name or an address is wanted", key, "address",
                        hint="the login is `user:`, the port `port:`")  # fmt: skip
        return address

    def _services(
        self, key: str, entries: dict[str, ServiceEntry] | None, count: int
    ) -> tuple[Service, ...]:
        if entries is None:
            return (Service(),)
        return tuple(self._service(key, name, entry, count) for name, entry in entries.items())

    def _service(self, key: str, name: str, entry: ServiceEntry, count: int) -> Service:
        if not SERVICE_NAME.fullmatch(name):
            message = f"{name!r}: lower-case letters, digits and - only"
            self._fault("bad-service-name", message, key, "services", name, on_key=True)
        gpus = entry.gpus
        if gpus is not None:
            here = (key, "services", name, "gpus")
            if len(set(gpus)) < len(gpus) or not gpus:
                self._fault("bad-gpus", "each GPU once, and at least one", *here)
            if count and max(gpus, default=0) >= count:
                message = f"GPU {max(gpus)} of a host with {count} (0 to {count - 1})"
                self._fault("bad-gpus", message, *here)
        return Service(name, entry.port, None if gpus is None else tuple(gpus))

    def check_jumps(self) -> None:
        """Find hosts that are reached through themselves."""
        for name in self.hosts:
            seen: list[str] = []
            at: str | None = name
            while at in self.hosts and at not in seen:
                seen.append(at)
                at = self.hosts[at].jump
            if at == name:
                chain = " → ".join([*seen, name])
                self._fault("jump-cycle", f"{name} is reached through itself: {chain}",
                            self._keys[name], "jump")  # fmt: skip

    def _fault(
        self, reference: str, message: str, *path: str, on_key: bool = False, hint: str = ""
    ) -> None:
        where = self.document.where(("hosts", *path), key=on_key)
        self.errors.append(ConfigError(reference, message, where=where, hint=hint))
