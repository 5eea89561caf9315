"""pyinfra: its own put to a temporary name, then one shell operation."""

from __future__ import annotations

import os

from pyinfra.operations import files, server

P = os.environ["BENCH_FLEET"]
files.put(name="put", src=P + "/unit.service", dest="unit.service.tmp", force=True)
server.shell(
    name="commands",
    commands=[
        "mv ~/unit.service.tmp ~/unit.service", "test -s ~/unit.service", "uname -r",
        "wc -c < ~/unit.service", "sha256sum ~/unit.service",
    ],
)  # fmt: skip
