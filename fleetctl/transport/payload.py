"""What is sent to a host in front of the requests: the agent's modules, and the loader that finds them.

The bootstrap reads a length and so many bytes of a compressed program; that program reads the modules,
which it may not need: an agent that changed the host has kept them there, compiled.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import json
import re
import threading
import zlib

# -I -S: neither the user's environment nor site-packages, whose start-up hooks cost up to 20 ms.
OPTIONS = "-IS"
BOOTSTRAP = "import sys,zlib;i=sys.stdin.buffer;exec(zlib.decompress(i.read(int(i.readline()))))"
PRELUDE = """
loader = type(sys)('fleetctl.remote.loader')
exec(compile(LOADER, '<fleetctl.remote.loader>', 'exec', dont_inherit=True), loader.__dict__)
sys.modules['fleetctl.remote.loader'] = loader
loader.install(i.read(SIZE), KEY)
from fleetctl.remote import agent
agent.main(SOON)
"""

# Parsing 47 modules takes as long as a login; a test holds this to what Python's own parser finds.
_IMPORT = re.compile(
    r"^[ ]*from fleetctl\.remote(?:\.(\w+))? import (?:\(([^)]*)\)|([^(\n]*))", re.MULTILINE
)
_NAME = re.compile(r"(?<!as )\b(?!as\b)[a-z]\w*")


@functools.cache
def source_of(module: str) -> str:
    """Return the source text of ``fleetctl.remote.<module>``."""
    path = importlib.resources.files("fleetctl.remote").joinpath(f"{module}.py")
    return path.read_text(encoding="utf-8")


@functools.cache
def needed_by(module: str) -> frozenset[str]:
    """Return the remote modules that one needs, itself among them."""
    found = {module}
    for own, several, one in _IMPORT.findall(source_of(module)):
        for name in [own] if own else _NAME.findall(several or one):
            if name not in found:
                found |= needed_by(name)
    return frozenset(found)


_BUILDING = threading.Lock()


def payload(modules: tuple[str, ...], soon: tuple[str, ...] = ()) -> bytes:
    """Return what the bootstrap reads: the length line, the program, and the modules' sources.

    The agent loads ``soon`` in this order while it waits for its first request.
    """
    with _BUILDING:  # the threads of many hosts want the same one at the same moment
        return _payload(modules, soon)


@functools.cache
def _payload(modules: tuple[str, ...], soon: tuple[str, ...]) -> bytes:
    names = sorted(frozenset().union(*(needed_by(m) for m in ("agent", *modules))))
    text = json.dumps({f"fleetctl.remote.{name}": source_of(name) for name in names})
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    packed = zlib.compress(text.encode())
    head = {"LOADER": source_of("loader"), "SOON": soon, "SIZE": len(packed), "KEY": key}
    program = "".join(f"{name} = {value!r}\n" for name, value in head.items()) + PRELUDE
    body = zlib.compress(program.encode())
    return b"%d\n" % len(body) + body + packed
