"""fabric: a Connection a host in a thread pool; put, then a run for each command."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from common import COMMANDS, HOSTS, KEY, LOG, TASK, UNIT, WORKERS, finish, out
from fabric import Connection
from fabric.config import Config

config = Config(overrides={"run": {"hide": True, "in_stream": False}, "load_ssh_configs": False})


def one(place: tuple[str, int]) -> object:
    host, port = place
    try:
        with Connection(
            "127.0.0.1", "root", port, config=config, connect_kwargs={"key_filename": KEY}
        ) as c:
            if TASK == "logs":
                c.get(LOG, out(host))
                return ""
            c.put(UNIT, ".unit.tmp")
            c.run("mv ~/.unit.tmp ~/unit.service")
            return "".join(c.run(command).stdout for command in COMMANDS)
    except Exception as error:
        return error


finish(list(ThreadPoolExecutor(WORKERS).map(one, HOSTS)))
