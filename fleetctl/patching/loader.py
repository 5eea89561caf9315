"""Reads a patch's folder: patch.toml, its snippets and diffs. Every fault at once, each at its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleetctl.config.check import gathered, raise_all, validate
from fleetctl.config.nodes import Document, shown_path
from fleetctl.errors import ConfigError, FleetError
from fleetctl.patching import snippets, toml_places
from fleetctl.patching.model import Diff, Marker, Parameter, Patch, Target
from fleetctl.patching.schema import PatchFile
from fleetctl.remote import instrument, unidiff

SNIPPET_LIMIT = 256 * 1024


def load(folder: Path) -> Patch:
    """Return the patch of a folder. Raises ConfigError, or ManyErrors for all its faults."""
    document = toml_places.load(folder / "patch.toml")
    written = validate(PatchFile, document)
    errors = _consistent(written, document, folder)
    patch = Patch(
        name=written.name,
        folder=folder,
        summary=written.summary,
        why=written.why,
        sglang=written.sglang,
        tried=tuple(written.tried),
        rung=written.rung,
        expire=written.expire,
        at_expiry=written.at_expiry,
        targets=tuple(_targets(written, document, folder, errors)),
        diffs=tuple(_diffs(written, document, folder, errors)),
        environment=tuple(written.environment.items()),
        parameters=tuple(
            Parameter(n, p.default, p.help, tuple(p.choices), p.minimum, p.maximum)
            for n, p in written.parameters.items()
        ),
        marker=Marker(
            written.marker.regex,
            tuple(written.marker.captures.items()),
            written.marker.silent or "",
        ),
    )
    raise_all(errors)
    _check_snippets(patch)
    return patch


def _consistent(written: PatchFile, document: Document, folder: Path) -> list[FleetError]:
    """Return the faults that no single value shows."""
    errors: list[FleetError] = []

    def fault(message: str, *path: str, hint: str = "") -> None:
        errors.append(
            ConfigError("wrong-value", message, where=document.where(tuple(path)), hint=hint)
        )

    if written.name != folder.name:
        fault(f"the name is {written.name!r} and the folder {folder.name!r}", "name")
    code = bool(written.target or written.diff)
    if not code and not written.environment:
        fault("nothing to do: no [[target]], no [[diff]], no [environment]")
    if written.rung == "environment" and code:
        fault("this rung has only [environment]", "rung")
    if written.rung != "environment" and not code:
        fault("without [[target]] or [[diff]] the rung is environment", "rung")
    for name in written.environment:
        if name in ("PYTHONPATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "PATH"):
            fault(
                f"{name} would change what runs",
                "environment",
                name,
                hint="use [[target]] or [[diff]]",
            )
    import re

    if written.marker.regex:
        groups = set(re.compile(written.marker.regex).groupindex)
        if groups != set(written.marker.captures):
            fault("the named groups of the regex are not the captures", "marker", "regex")
    return errors


def _targets(
    written: PatchFile, document: Document, folder: Path, errors: list[FleetError]
) -> list[Target]:
    found = []
    for number, entry in enumerate(written.target):
        text = _text(folder, entry.block, document, ("target", number, "block"), errors)
        module, _, symbol = entry.symbol.partition(":")
        found.append(
            Target(
                module, symbol, text, entry.block, entry.sglang, entry.optional,
                tuple(entry.variables.items()), tuple(entry.rebinds),
            )
        )  # fmt: skip
    return found


def _diffs(
    written: PatchFile, document: Document, folder: Path, errors: list[FleetError]
) -> list[Diff]:
    found = []
    for number, entry in enumerate(written.diff):
        text = _text(folder, entry.file, document, ("diff", number, "file"), errors)
        if text:
            try:
                unidiff.parse(text)
            except instrument.InstrumentError as error:
                where = shown_path(folder / entry.file)
                errors.append(ConfigError(error.reference, error.message, where=where))
        found.append(Diff(entry.file, text, entry.sglang, tuple(entry.base.items())))
    return found


def _text(
    folder: Path, name: str, document: Document, path: tuple[Any, ...], errors: list[FleetError]
) -> str:
    try:
        data = (folder / name).read_bytes()
        if len(data) <= SNIPPET_LIMIT:
            return data.decode("utf-8").replace("\r\n", "\n")
        problem = f"{name} is over {SNIPPET_LIMIT // 1024} KiB"
    except OSError as error:
        problem = f"{name}: {error.strerror}"
    except UnicodeDecodeError:
        problem = f"{name} is not UTF-8"
    errors.append(ConfigError("unreadable", problem, where=document.where(path)))
    return ""


def _check_snippets(patch: Patch) -> None:
    """Every snippet must render and be a sound block with the parameters' defaults."""
    errors: list[FleetError] = []
    try:
        values = snippets.values_of(patch, {})
    except FleetError as error:
        raise_all([error])
        raise
    for target in patch.targets:
        try:
            snippets.block_of(patch, target, values)
        except FleetError as error:
            errors += [e for e in gathered(error) if str(e) not in {str(x) for x in errors}]
    for _, text in patch.environment:
        try:
            snippets.fill(text, patch.name, values, shown_path(patch.folder / "patch.toml"))
        except FleetError as error:
            errors += gathered(error)
    raise_all(errors)
