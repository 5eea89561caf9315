"""The rendered unit on a real systemd: every value arrives as it was written, and nothing else happens."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

from fleetctl.config.secrets import Secrets
from fleetctl.lab.box import Box
from fleetctl.model.fleet import FlagValue, Host, Profile, SecretRef, Service, Target
from fleetctl.render import Rendered, render

DUMP = """#!/usr/bin/python3
import json, os, sys
json.dump({"argv": sys.argv, "env": dict(os.environ)}, open("/run/dump.json", "w"))
"""
NASTY = [
    "%n %i %% %", "$HOME ${HOME} $$ $", "\"double\" 'single'", "back\\slash \\n \\x41 \\",
    "; ; rm", "# not a comment", " lead and trail ", "tab\there", "é 😀 \u2028 \u0085", "[Service]",
    "ExecStart=/bin/false", "=", "", "\x01\x1b[31m\x7f", "`id` $(id)", "a;b|c&d<e>f", "@-:+!",
]  # fmt: skip


def put(box: Box, path: str, text: str, mode: int) -> None:
    data = base64.b64encode(text.encode()).decode()
    done = box.ssh(
        f"mkdir -p $(dirname {path}) && echo {data} | base64 -d > {path} && chmod {mode:o} {path}",
        user="root",
    )
    assert done.returncode == 0, done.stderr


def start(box: Box, done: Rendered) -> dict[str, object]:
    for file in done.files:
        put(box, file.path, file.content, file.mode)
    put(box, "/usr/local/bin/dump", DUMP, 0o755)
    ran = box.ssh(
        f"systemctl daemon-reload && systemctl start {done.unit} && "
        f"until test -s /run/dump.json; do sleep 0.05; done; cat /run/dump.json",
        user="root",
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, object] = json.loads(ran.stdout)
    return found


def test_systemd_hands_over_every_value_as_it_was_written(
    private_host: Callable[[str], Box],
) -> None:
    box = private_host("bare")
    printable = [v for v in NASTY if not any(c in v for c in "\x01\x1b\x7f")]
    flags: dict[str, FlagValue] = {f"f{n}": value for n, value in enumerate(NASTY)}
    flags["list"] = tuple(printable[:4])
    profile = Profile(
        "p",
        "/models/%n $HOME 'x'",
        flags=flags,
        env={f"E{n}": value for n, value in enumerate(printable)},
        secret_flags={"api-key": SecretRef("env", "K")},
        secret_env={"TOKEN": SecretRef("env", "T")},
        python="/usr/local/bin/dump",
        unit={"restart": "no"},
    )
    secrets = Secrets({"api-key": "hush %n"}, {"TOKEN": 'hush "$X" \\ `id`'})
    done = render(profile, Target(Host("h", "h"), Service()), secrets=secrets, systemd=252)
    found = start(box, done)
    assert found["argv"] == list(done.argv)
    env = found["env"]
    assert isinstance(env, dict)
    assert {k: env[k] for k in done.env} == done.env
    assert env["TOKEN"] == secrets.env["TOKEN"]
    said = box.ssh(f"systemd-analyze verify /etc/systemd/system/{done.unit}", user="root")
    assert [line for line in said.stderr.splitlines() if done.unit in line] == []
    shown = box.ssh(f"systemctl show {done.unit} -p Restart -p KillMode", user="root").stdout
    assert sorted(shown.split()) == ["KillMode=mixed", "Restart=no"]
    argv_seen = box.ssh(f"systemctl cat {done.unit}; systemctl show {done.unit}", user="root")
    assert "hush" not in argv_seen.stdout
