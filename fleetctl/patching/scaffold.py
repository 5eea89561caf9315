"""A first patch.toml and snippet for a function, ready to be checked and pushed."""

from __future__ import annotations

from pathlib import Path

from fleetctl.config.write import write_text_as_is
from fleetctl.errors import ConfigError
from fleetctl.patching.model import NAME
from fleetctl.patching.schema import TargetEntry

TOML = """\
name = "{name}"
summary = "What this patch finds out"
why = \"\"\"
What was seen, and what the answer will decide.
\"\"\"
sglang = "{sglang}"
rung = "overlay"           # environment | overlay | edit, the least invasive that works
expire = "4h"              # at most 30d
at_expiry = "warn"         # or "revert": the host takes it out itself

[[target]]
symbol = "{symbol}"
block = "block.py.j2"
# sglang = ">=0.5.15"      # when only some versions have it
# optional = true          # no fault where it is not defined

[parameters.limit]
default = 20
minimum = 1
maximum = 1000
help = "lines of one process"

[marker]
silent = "the function never ran"

[marker.captures]
arguments = "what the function was called with: types, and the shapes of tensors"
"""

BLOCK = """\
_fc_count = globals().setdefault("_fc_{ident}", [0])
if _fc_count[0] < {{{{ limit }}}}:
    _fc_count[0] += 1
    _fc_seen = {{k: list(getattr(v, "shape", ())) or type(v).__name__ for k, v in locals().items()}}
    {{{{ emit("called", '{{"arguments": _fc_seen}}') }}}}
"""


def write(folder: Path, name: str, symbol: str, sglang: str) -> list[Path]:
    """Write a new patch's folder and return its files.

    Raises ConfigError: wrong-name, wrong-symbol, patch-exists, unwritable.
    """
    if not NAME.match(name):
        raise ConfigError("wrong-name", f"{name!r}: a-z, 0-9 and dashes are wanted, at most 63")
    try:
        TargetEntry(symbol=symbol, block="block.py.j2")
    except ValueError as error:
        raise ConfigError(
            "wrong-symbol",
            f"{symbol!r}: module.or.package:function or …:Class.method is wanted",
        ) from error
    target = folder / name
    if target.exists():
        raise ConfigError("patch-exists", f"{target} is there already")
    files = {
        "patch.toml": TOML.format(name=name, symbol=symbol, sglang=sglang),
        "block.py.j2": BLOCK.format(ident=name.replace("-", "_")),
    }
    return [write_text_as_is(target / file, text) for file, text in files.items()]
