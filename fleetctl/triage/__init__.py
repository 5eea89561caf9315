"""Name what broke a server, from its log alone or from a bundle of evidence.

``triage_path`` reads what a person names, ``triage_bundle`` a folder of evidence, ``triage_text`` bytes.
All return a :class:`fleetctl.model.triage.Triage` and write nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

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
    cache: Path | None = None  # a folder for the scanner's compiled expressions


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
    import io

    from fleetctl.evidence import source

    return _of_stream(source.opened(io.BytesIO(data)), context).triage


def explain_path(path: Path | str, context: Context | None = None) -> Explained:
    """Return the triage of a path together with everything it was made of."""
    from fleetctl.evidence import reader, source

    if str(path) == "-":
        return _of_stream(source.opened(source.standard_input()), context)
    place = Path(path)
    if place.is_dir():
        return _examined(reader.from_bundle(place), context)
    if source.is_long_plain(place, _whole()):
        from fleetctl.triage import big

        windows = big.of_file(place, cache=context.cache if context else None)
        return _examined(windows.evidence(), context, windows.number)
    with source.open_file(place) as file:
        return _of_stream(file, context)


def _whole() -> int:
    from fleetctl.triage import limits

    return limits.WHOLE


def _of_stream(stream: IO[bytes], context: Context | None) -> Explained:
    """Read a decompressed stream: whole when it is short, else the windows that matter."""
    from fleetctl.evidence import reader, source
    from fleetctl.triage import limits

    head, cut = source.take(stream, limits.WHOLE + 1)
    if len(head) <= limits.WHOLE:
        evidence = reader.from_bytes(head)
        evidence.truncated += cut
        return _examined(evidence, context)
    from fleetctl.triage import big

    windows = big.of_stream(source.after(head, stream), limits.UNPACKED)
    return _examined(windows.evidence(), context, windows.number)


def _examined(
    evidence: Evidence, context: Context | None, number: Callable[[int], int] | None = None
) -> Explained:
    from fleetctl.triage.engine import examine

    return examine(_with(evidence, context), _rules(context), number)


def _with(evidence: Evidence, context: Context | None) -> Evidence:
    if context is not None and context.asked_stop is not None:
        evidence.asked_stop = context.asked_stop
    return evidence


def _rules(context: Context | None) -> Rules:
    from fleetctl.triage.rule import builtin

    return context.rules if context is not None and context.rules is not None else builtin()
