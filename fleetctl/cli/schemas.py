"""``fleetctl schemas``: JSON schemas of the files that people write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fleetctl.cli import show
from fleetctl.cli.app import new_app
from fleetctl.errors import UsageError

app = new_app()


@app.command()
def schemas(
    name: Annotated[str, typer.Argument(metavar="[hosts|profile]")] = "",
    out: Annotated[
        str, typer.Option("--out", metavar="DIR", help="Write NAME.schema.json files there.")
    ] = "",
) -> None:
    """Print the JSON schema of hosts.yaml or of a profile, for completion in an editor."""
    from fleetctl.config.json_schema import FILES, json_schema
    from fleetctl.config.write import write_text_as_is

    if name and name not in FILES:
        raise UsageError("unknown-schema", f"no schema is called {name}", hint=", ".join(FILES))
    if not name and not out:
        raise UsageError(
            "no-schema-name", "name one", hint=f"{', '.join(FILES)}; or give --out DIR"
        )
    for one in [name] if name else list(FILES):
        text = json.dumps(json_schema(one), indent=2, ensure_ascii=False) + "\n"
        if out:
            path = write_text_as_is(Path(out) / f"{one}.schema.json", text)
            show.note(f"wrote {path}")
        else:
            show.out(text.rstrip())
