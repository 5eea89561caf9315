"""The values of ``--no-lint``: ids of findings, of the lint or of the look at a host."""

from __future__ import annotations

from collections.abc import Iterable

from fleetctl.errors import UsageError


def known(ids: Iterable[str] | None) -> frozenset[str]:
    """Return the ids of ``--no-lint=ID,ID``.

    UsageError ``unknown-finding`` for one that no finding has: it would override nothing.
    """
    given = frozenset(one.strip() for text in ids or () for one in text.split(","))
    if not given:
        return given
    from fleetctl.config.nearest import did_you_mean
    from fleetctl.doctor.ids import IDS as LOOKED
    from fleetctl.lint.ids import IDS

    for one in sorted(given - IDS - LOOKED):
        raise UsageError(
            "unknown-finding",
            f"no finding that can be overridden is called {one or 'nothing'!r}",
            where="--no-lint",
            hint=did_you_mean(
                one, IDS | LOOKED, "docs/howto/lint.md lists them, and each finding says its own"
            ),
        )
    return given
