"""Profiles: found, read, merged through ``extends``, with the origin of every value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fleetctl.config.check import gathered, raise_all, validate
from fleetctl.config.nearest import did_you_mean
from fleetctl.config.nodes import Document, Path_, load
from fleetctl.config.schema import NAME, REMOVED, ProfileFile, SecretEntry
from fleetctl.errors import ConfigError, FleetError
from fleetctl.model.fleet import Origin, Profile, SecretRef


def profile_files(folder: Path) -> dict[str, Path]:
    """Return the profile files of a folder by name, sorted; ``.yaml`` wins over ``.yml``."""
    found = {p.stem: p for suffix in ("yml", "yaml") for p in folder.glob(f"*.{suffix}")}
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Layer:
    """One file of a chain."""

    name: str
    document: Document
    file: ProfileFile

    def origin(self, *path: str) -> Origin:
        """Return where a value of this file was written."""
        return Origin(self.document.where(path, key=True), self.name)


def chain(name: str, files: dict[str, Path]) -> list[Layer]:
    """Return the layers of a profile, the most basic first, each once.

    Raises every fault of every file of the chain at once: ``extends-cycle``, ``unknown-profile``
    and those of the files.
    """
    walk = _Walk(files)
    walk.visit(name, ())
    raise_all(walk.errors)
    return walk.layers


class _Walk:
    """Depth first through ``extends``; the first visit of a shared parent counts."""

    def __init__(self, files: dict[str, Path]) -> None:
        self.files = files
        self.layers: list[Layer] = []
        self.errors: list[FleetError] = []
        self._seen: set[str] = set()

    def visit(self, name: str, above: tuple[str, ...]) -> None:
        if name in self._seen:
            return
        self._seen.add(name)
        try:
            document = load(self.files[name], keep_faults=True)
            layer = Layer(name, document, validate(ProfileFile, document))
        except FleetError as error:
            self.errors += gathered(error)
            return
        if layer.file.name not in (None, name):
            self._fault(
                layer, "name-mismatch", f"the file is {name}, the name {layer.file.name}", "name"
            )
        for n, parent in enumerate(layer.file.extends):
            at: Path_ = ("extends", n)
            if parent in (*above, name):
                loop = " → ".join([*(*above, name)[(*above, name).index(parent) :], parent])
                self._fault(layer, "extends-cycle", f"{parent} extends itself: {loop}", *at)
            elif parent not in self.files:
                hint = did_you_mean(parent, self.files, _there_are(self.files))
                self._fault(
                    layer, "unknown-profile", f"no profile is called {parent}", *at, hint=hint
                )
            else:
                self.visit(parent, (*above, name))
        self.errors += list(_twice(layer))
        self.layers.append(layer)

    def _fault(
        self, layer: Layer, reference: str, message: str, *path: str | int, hint: str = ""
    ) -> None:
        where = layer.document.where(path)
        self.errors.append(ConfigError(reference, message, where=where, hint=hint))


def _there_are(files: dict[str, Path]) -> str:
    return f"there are {', '.join(files)}" if files else "the site has no profiles yet"


def _twice(layer: Layer) -> Iterator[ConfigError]:
    """Find what one file gives both openly and as a secret."""
    file = layer.file
    for kind, plain, secret in (
        ("flags", file.flags, file.secrets.flags),
        ("env", file.env, file.secrets.env),
    ):
        for name in sorted(plain.keys() & secret.keys()):
            if plain[name] is not REMOVED and secret[name] is not None:
                where = layer.document.where(("secrets", kind, name), key=True)
                yield ConfigError("secret-twice", f"{name} is also in {kind}, openly", where=where)


@dataclass(slots=True)
class Merge:
    """The values of a chain so far, and where each came from."""

    model: str = ""
    flags: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    secret_flags: dict[str, SecretRef] = field(default_factory=dict)
    secret_env: dict[str, SecretRef] = field(default_factory=dict)
    unit: dict[str, Any] = field(default_factory=dict)
    single: dict[str, Any] = field(default_factory=dict)  # python, schema, runtime, diag …
    origins: dict[str, Origin] = field(default_factory=dict)

    def add(self, layer: Layer) -> None:
        """Put one layer over what is there."""
        file = layer.file
        if file.model is not None:
            self.model = file.model
            self.origins["model"] = layer.origin("model")
        for name, value in file.flags.items():
            self.put("flags", name, value, layer.origin("flags", name))
        for name, value in file.env.items():
            self.put("env", name, value, layer.origin("env", name))
        for kind, entries in (("flags", file.secrets.flags), ("env", file.secrets.env)):
            for name, entry in entries.items():
                self._put_secret(kind, name, entry, layer.origin("secrets", kind, name))
        for name in sorted(file.unit.model_fields_set):
            self._put_single(
                self.unit, "unit.", name, getattr(file.unit, name), layer, "unit", name
            )
        self._put_single(
            self.single, "sglang.", "python", file.sglang.python, layer, "sglang", "python"
        )
        self._put_single(
            self.single, "sglang.", "schema", file.sglang.schema_, layer, "sglang", "schema"
        )
        for name in ("runtime", "diag", "nodes", "patches"):
            self._put_single(self.single, "", name, getattr(file, name), layer, name)

    def put(self, kind: str, name: str, value: Any, origin: Origin) -> None:
        """Set one flag or variable; REMOVED takes it away, a secret one too."""
        plain, secret = self.tables(kind)
        secret.pop(name, None)
        self.origins.pop(f"secrets.{kind}.{name}", None)
        if value is REMOVED:
            plain.pop(name, None)
            self.origins.pop(f"{kind}.{name}", None)
            return
        plain.pop(name, None)  # the order is that of the last writing
        plain[name] = value
        self.origins[f"{kind}.{name}"] = origin

    def _put_secret(self, kind: str, name: str, entry: SecretEntry | None, origin: Origin) -> None:
        plain, secret = self.tables(kind)
        if entry is None:
            secret.pop(name, None)
            self.origins.pop(f"secrets.{kind}.{name}", None)
            return
        plain.pop(name, None)
        self.origins.pop(f"{kind}.{name}", None)
        secret[name] = _reference(entry)
        self.origins[f"secrets.{kind}.{name}"] = origin

    def tables(self, kind: str) -> tuple[dict[str, Any], dict[str, SecretRef]]:
        """Return the open and the secret values of ``flags`` or ``env``."""
        if kind == "flags":
            return self.flags, self.secret_flags
        return self.env, self.secret_env

    def _put_single(
        self, into: dict[str, Any], prefix: str, name: str, value: Any, layer: Layer, *path: str
    ) -> None:
        """Set one value; a written null takes an inherited one away (None otherwise: not written)."""
        if value is not None:
            into[name] = value
            self.origins[prefix + name] = layer.origin(*path)
        elif path in layer.document.marks:
            into.pop(name, None)
            self.origins.pop(prefix + name, None)

    def profile(self, name: str) -> Profile:
        """Return the merged profile."""
        merged = Profile(
            name=name,
            model=self.model,
            flags=self.flags,
            env=self.env,
            secret_flags=self.secret_flags,
            secret_env=self.secret_env,
            unit=self.unit,
            origins=self.origins,
        )
        single: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in self.single.items()
        }
        return replace(merged, **single)


def _reference(entry: SecretEntry) -> SecretRef:
    kind = next(k for k in ("env", "file", "command") if getattr(entry, k) is not None)
    return SecretRef(kind, str(getattr(entry, kind)))


def check_name(name: str) -> None:
    """Raise ConfigError ``bad-profile-name`` for what cannot be a file's name."""
    if not NAME.fullmatch(name):
        raise ConfigError("bad-profile-name", f"{name!r}: letters, digits, . _ and - only")
