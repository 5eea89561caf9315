"""``python -m fleetctl.triage``: compile the built-in rule packs. A test checks that it was done."""

from __future__ import annotations

from pathlib import Path

from fleetctl.triage import packs

HERE = Path(__file__).parent


def main() -> None:
    """Write ``compiled.py`` beside this file."""
    rules, _ = packs.load(HERE / "rules")
    (HERE / "compiled.py").write_text(packs.compiled(rules), encoding="utf-8")


if __name__ == "__main__":
    main()
