"""Several nodes of one server: they meet at ``--dist-init-addr``, and a lost one takes the others along."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from .endpoints import Listener

if TYPE_CHECKING:
    from .server import Server

LOST = (
    "[@] Scheduler hit an exception: Traceback (most recent call last):\n"
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [{}]\n"
)


def meet(server: Server) -> None:
    """Return once all nodes are there; node 0 listens, the others come to it. Alone, at once."""
    count = int(server.flags.get("nnodes") or 1)
    if count < 2:
        return
    host, _, port = str(server.flags.get("dist-init-addr") or "127.0.0.1:20000").rpartition(":")
    if server.node == 0:
        with socket.create_server((host, int(port)), reuse_port=True) as door:
            links = [door.accept()[0] for _ in range(count - 1)]
    else:
        links = [_knock(host, int(port))]
    for link in links:
        threading.Thread(target=_mind, args=(server, link), daemon=True).start()


def _knock(host: str, port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection((host, port), timeout=5)
        except OSError:
            time.sleep(0.2)


def _mind(server: Server, link: socket.socket) -> None:
    """Wait for the other side to end, then fail as a rank does that lost its peer."""
    peer = "%s:%d" % link.getpeername()[:2]
    link.settimeout(None)
    with suppress(OSError):
        link.recv(1)
    if server.leaving:
        return
    server.remark("composed-from: the message of a gloo pair whose peer has gone")
    for child in server.schedulers:
        child.say(LOST.format(peer).replace("[@]", server.stamp(child.prefix)), 5)
    os.kill(os.getpid(), signal.SIGQUIT)


def dummy_health(server: Server) -> None:
    """Answer /health with 200 whatever happens, as a node beyond the first does once its ranks are up."""
    address = (str(server.flags.get("host") or "127.0.0.1"), int(server.flags["port"]))
    server.log(
        f"Dummy health check server started in background thread at {address[0]}:{address[1]}"
    )
    threading.Thread(target=Listener(address, server).serve_forever, daemon=True).start()
