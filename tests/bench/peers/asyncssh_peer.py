"""asyncssh: one exec a host, curve25519 and AES-GCM, no agent and no ssh_config: its fastest way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncssh
from common import HOSTS, KEY, KNOWN, LOG, ONE, TASK, UNIT, WORKERS, finish, out

payload = Path(UNIT).read_bytes()
options = {
    "username": "root", "client_keys": [asyncssh.read_private_key(KEY)], "known_hosts": KNOWN,
    "kex_algs": ["curve25519-sha256"], "encryption_algs": ["aes128-gcm@openssh.com"],
    "agent_path": None, "config": None, "server_host_key_algs": ["ssh-ed25519"],
}  # fmt: skip


async def one(host: str, port: int, gate: asyncio.Semaphore) -> object:
    async with gate, asyncssh.connect("127.0.0.1", port, **options) as c:
        if TASK == "logs":
            await c.run("cat " + LOG, encoding=None, stdout=out(host), check=True)
            return b""
        return (await c.run(ONE, input=payload, encoding=None, check=True)).stdout


async def main() -> None:
    gate = asyncio.Semaphore(WORKERS)
    finish(await asyncio.gather(*[one(h, p, gate) for h, p in HOSTS], return_exceptions=True))


asyncio.run(main())
