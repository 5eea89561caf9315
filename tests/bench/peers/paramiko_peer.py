"""paramiko as it comes: SSHClient, one exec a host in a thread pool."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko
from common import HOSTS, KEY, KNOWN, LOG, ONE, TASK, UNIT, WORKERS, finish, out

payload = Path(UNIT).read_bytes()


def one(place: tuple[str, int]) -> object:
    host, port = place
    client = paramiko.SSHClient()
    client.load_host_keys(KNOWN)
    try:
        client.connect("127.0.0.1", port, "root", key_filename=KEY)
        if TASK == "logs":
            sftp = client.open_sftp()
            sftp.get(LOG, out(host))
            return b""
        stdin, stdout, _ = client.exec_command(ONE)
        stdin.write(payload)
        stdin.channel.shutdown_write()
        said = stdout.read()
        if stdout.channel.recv_exit_status():
            raise RuntimeError(said)
        return said
    except Exception as error:
        return error
    finally:
        client.close()


finish(list(ThreadPoolExecutor(WORKERS).map(one, HOSTS)))
