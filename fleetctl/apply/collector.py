"""The collector as one file: the agent's own modules, readable, with an import hook in front."""

from __future__ import annotations

import functools

from fleetctl.model.plan import WriteFile
from fleetctl.transport.payload import needed_by, source_of

PATH = "/var/lib/fleetctl/lib/collect.py"

HEAD = '''#!/usr/bin/env python3
"""Keeps the evidence of a service that has ended. Written by fleetctl; ExecStopPost= runs it.

The modules below are fleetctl's own for hosts (standard library only), one text each.
"""
import sys

SOURCES = {}
'''
TAIL = """

class Shipped:
    def find_spec(self, name, path=None, target=None):
        if name in ("fleetctl", "fleetctl.remote") or name in SOURCES:
            return type(sys.__spec__)(name, self, is_package=name not in SOURCES)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__spec__.name
        exec(compile(SOURCES.get(name, ""), "<" + name + ">", "exec"), module.__dict__)


sys.meta_path.insert(0, Shipped())
from fleetctl.remote import ending

sys.exit(ending.main(sys.argv[1:]))
"""


@functools.cache
def script() -> str:
    """Return the whole program. It depends on nothing but this version of fleetctl."""
    parts = [HEAD]
    for module in sorted(needed_by("ending")):
        lines = "\n".join(f"    {line!r}" for line in source_of(module).splitlines(keepends=True))
        parts.append(f'\nSOURCES["fleetctl.remote.{module}"] = (\n{lines}\n)\n')
    return "".join(parts) + TAIL


def support_files() -> tuple[WriteFile, ...]:
    """Return what every launch needs on its host beside its own files."""
    return (WriteFile(PATH, script()),)
