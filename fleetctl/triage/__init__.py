"""Name what broke a server, from its log alone or from a bundle of evidence.

``triage_path`` reads what a person names, ``triage_bundle`` a folder of evidence, ``triage_text`` bytes.
All return a :class:`fleetctl.model.triage.Triage` and write nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.evidence.record import Evidence
    from fleetctl.model.triage import Triage
    from fleetctl.triage.engine import Explained
    from fleetctl.triage.rule import Rules


@dataclass(frozen=True, slots=True)
class Context:
    """What is known beside a text: whether somebody asked for the stop, and the rules to use."""

    asked_stop: bool | None = None
    rules: Rules | None = None


def triage_path(path: Path | str, context: Context | None = None) -> Triage:
    """Return the triage of a file in any form, of a bundle's folder, or of standard input (``-``).

    Raises:
        fleetctl.evidence.source.UnreadableError: the path cannot be read.
    """
    return explain_path(path, context).triage


def triage_bundle(folder: Path, context: Context | None = None) -> Triage:
    """Return the triage of an evidence bundle (docs/reference/bundles.md).

    Raises:
        fleetctl.evidence.source.UnreadableError: the folder is no bundle.
    """
    return explain_path(folder, context).triage


def triage_text(data: bytes, context: Context | None = None) -> Triage:
    """Return the triage of bytes, compressed or not."""
    from fleetctl.evidence import reader, source
    from fleetctl.triage.engine import examine

    unpacked, cut = source.unpack(data)
    evidence = reader.from_bytes(unpacked)
    evidence.truncated += cut
    return examine(_with(evidence, context), _rules(context)).triage


def explain_path(path: Path | str, context: Context | None = None) -> Explained:
    """Return the triage of a path together with everything it was made of."""
    from fleetctl.evidence import reader, source
    from fleetctl.triage.engine import examine

    place = Path(path)
    if str(path) != "-" and place.is_dir():
        return examine(_with(reader.from_bundle(place), context), _rules(context))
    data, cut = source.read(place)
    evidence = reader.from_bytes(data)
    evidence.truncated += cut
    return examine(_with(evidence, context), _rules(context))


def _with(evidence: Evidence, context: Context | None) -> Evidence:
    if context is not None and context.asked_stop is not None:
        evidence.asked_stop = context.asked_stop
    return evidence


def _rules(context: Context | None) -> Rules:
    from fleetctl.triage.rule import builtin

    return context.rules if context is not None and context.rules is not None else builtin()
