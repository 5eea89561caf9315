"""parallel-ssh (libssh2 in C): one exec a host."""

from __future__ import annotations

from pathlib import Path

from common import HOSTS, KEY, LOG, ONE, TASK, UNIT, WORKERS, N, finish, out
from gevent import joinall
from pssh.clients import ParallelSSHClient
from pssh.config import HostConfig

client = ParallelSSHClient(
    ["127.0.0.1"] * N, user="root", pkey=KEY, host_config=[HostConfig(port=p) for _, p in HOSTS],
    pool_size=WORKERS, allow_agent=False, num_retries=1, identity_auth=False,
)  # fmt: skip
if TASK == "logs":
    names = [{"remote_file": LOG, "local_file": out(h)} for h, _ in HOSTS]
    joinall(
        client.copy_remote_file("%(remote_file)s", "%(local_file)s", copy_args=names),
        raise_error=True,
    )
    finish([])
text = Path(UNIT).read_text()
answers = client.run_command(ONE)
for one in answers:
    one.stdin.write(text)
    one.stdin.flush()
    one.channel.send_eof()
said: list[object] = ["\n".join(one.stdout) + "\n" for one in answers]
client.join(answers)
finish([*said, *(RuntimeError(x.exit_code) for x in answers if x.exit_code)])
