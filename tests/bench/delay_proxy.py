"""Forwards a port; each direction, and the way to the connection, takes a time.

usage: PORT [HOST:]TARGET SECONDS.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys

PORT, DELAY = int(sys.argv[1]), float(sys.argv[3])
HOST, _, TARGET = sys.argv[2].rpartition(":")


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass data on, each piece that much later."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def send() -> None:
        while True:
            due, data = await waiting.get()
            await asyncio.sleep(max(due - loop.time(), 0))
            if not data:
                writer.close()
                return
            writer.write(data)

    sender = asyncio.create_task(send())
    data = b"-"
    while data:
        try:
            data = await reader.read(65536)
        except ConnectionError:
            data = b""
        waiting.put_nowait((loop.time() + DELAY, data))
    with contextlib.suppress(ConnectionError):
        await sender


def direct(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    direct(writer)
    await asyncio.sleep(DELAY)  # the client's SYN; what comes back is delayed below
    far_reader, far_writer = await asyncio.open_connection(HOST or "127.0.0.1", int(TARGET))
    direct(far_writer)
    await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))


async def main() -> None:
    async with await asyncio.start_server(serve, "127.0.0.1", PORT) as server:
        await server.serve_forever()


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main())
