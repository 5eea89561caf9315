"""A host of one folder: real agent, real interpreter in a real venv, a stand-in for systemctl.

The package that it holds is called sglang and is none: two modules with the function of the founding
incident. Real SGLang under real systemd is in tests/lab/.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleetctl.model.fleet import Host, Service, Target
from fleetctl.patching import hosts
from fleetctl.patching.hosts import Link, Wish
from fleetctl.transport.local import LocalConnection

VERSION = "0.5.12.post1"
SYSTEMCTL = """\
#!/bin/sh
# Stands in for systemctl: answers from units/, notes what it is asked for.
echo "$*" >> "$FLEETCTL_ROOT/asked"
for last; do :; done
case "$*" in
  *" show "*"*.service") for f in "$FLEETCTL_ROOT"/units/*; do echo "Id=${f##*/}"; cat "$f"; echo; done ;;
  *" show "*) cat "$FLEETCTL_ROOT/units/$last" 2>/dev/null || echo LoadState=not-found ;;
  *daemon-reload*) [ ! -e "$FLEETCTL_ROOT/no-reload" ] || { echo "no reload today" >&2; exit 1; } ;;
esac
"""
FUNCTION = '''\
def _grouped_foreach_copy_(dsts, srcs):
    """Copy."""
    for dst, src in zip(dsts, srcs):
        dst.copy_(src)
'''


@dataclass
class Scratch:
    """The host: ``root`` stands for /, the packages lie below it."""

    root: Path
    packages: Path
    python: Path
    link: Link

    @property
    def runner(self) -> Path:
        return self.packages / "sglang/srt/model_executor/cuda_graph_runner.py"

    @property
    def registry(self) -> Path:
        return self.packages / "sglang/srt/model_executor/buffers.py"

    @property
    def drop_in(self) -> Path:
        return self.root / "etc/systemd/system/sglang-main.service.d/50-fleetctl-patches.conf"

    @property
    def binds(self) -> list[tuple[Path, Path]]:
        """Return what the drop-in lays over what."""
        lines = self.drop_in.read_text().splitlines()
        pairs = [x.partition("=-")[2].split(":") for x in lines if x.startswith("BindReadOnly")]
        return [(Path(source), Path(over)) for source, over in pairs]

    @property
    def look(self) -> Path:
        return self.drop_in.parent.parent / "fleetctl-overlay-main.service"

    def before_start(self) -> str:
        """Run what the unit runs before each start; return what it says there."""
        assert "Wants=fleetctl-overlay-main.service\nAfter=" in self.drop_in.read_text()
        lines = self.look.read_text().splitlines()
        looks = [x.partition("=-")[2] for x in lines if x.startswith("ExecStart=-")]
        done = [subprocess.run(shlex.split(x), capture_output=True, check=True) for x in looks]
        return "".join(d.stderr.decode() for d in done)

    @property
    def patches(self) -> Path:
        return self.root / "var/lib/fleetctl/patches/main"

    @property
    def asked(self) -> list[str]:
        path = self.root / "asked"
        return path.read_text().splitlines() if path.exists() else []

    def unit(self, name: str = "sglang-main.service", start: str = "", more: str = "") -> None:
        """Write what the stand-in says of a unit."""
        command = start or f"{self.python} -m sglang.launch_server --port 30000"
        path = command.split(" ")[0]
        (self.root / "units").mkdir(exist_ok=True)
        (self.root / "units" / name).write_text(
            "LoadState=loaded\nActiveState=inactive\nInvocationID=\nMainPID=0\nControlGroup=\n"
            f"ExecStart={{ path={path} ; argv[]={command} ; ignore_errors=no ; start_time=[n/a] }}\n"
            f"WorkingDirectory=/\n{more}"
        )

    def push(self, patch: Any, **options: Any) -> dict[str, Any]:
        wish = options.pop("wish", None) or Wish("ann@laptop", why="to find out")
        return hosts.push(self.link.call, self.link.target, patch, wish, **options)

    def revert(self, *names: str, **options: Any) -> dict[str, Any]:
        wish = options.pop("wish", None) or Wish("bob@desk", why="done")
        return hosts.revert(self.link.call, self.link.target, list(names), wish, **options)

    def status(self) -> list[dict[str, Any]]:
        return hosts.status(self.link.call, self.link.target)

    def leftovers(self) -> list[str]:
        return sorted(p.name for p in self.packages.rglob(".fleetctl-*"))


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def install(packages: Path, version: str = VERSION) -> None:
    """Put the package there as an installer would."""
    inside = packages / "sglang/srt/model_executor"
    inside.mkdir(parents=True, exist_ok=True)
    for folder in (packages / "sglang", packages / "sglang/srt", inside):
        (folder / "__init__.py").write_text("")
    (inside / "cuda_graph_runner.py").write_text("import os\n\n\n" + FUNCTION + "\n\nLAST = 1\n")
    (inside / "buffers.py").write_bytes(("X = 1\n" + FUNCTION).replace("\n", "\r\n").encode())
    (inside / "model_runner.py").write_text(
        "class ModelRunner:\n    def forward(self, forward_batch):\n        return forward_batch\n"
    )
    info = packages / f"sglang-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: sglang\nVersion: {version}\n")
    (info / "RECORD").write_text(f"sglang/__init__.py,sha256={version},0\n")
    (info / "INSTALLER").write_text("uv\n")


@pytest.fixture(scope="session")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("venv") / "v"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder


@pytest.fixture
def scratch(tmp_path: Path, venv: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scratch]:
    root = tmp_path / "host"
    python = root / "opt/sglang/.venv/bin/python"
    shutil.copytree(venv, python.parent.parent, symlinks=True)
    packages = next(python.parent.parent.glob("lib/python3*/site-packages"))
    install(packages)
    (root / "bin").mkdir()
    (root / "bin/systemctl").write_text(SYSTEMCTL)
    (root / "bin/systemctl").chmod(0o755)
    monkeypatch.setenv("FLEETCTL_ROOT", str(root))
    monkeypatch.setenv("PATH", f"{root}/bin:{os.environ['PATH']}")
    agent = os.environ.get("AGENT_PYTHON", sys.executable)  # any from 3.8 on
    target = Target(Host("here", "localhost", transport="local", python=agent), Service())
    with hosts.link(target, open_connection=lambda host, _: LocalConnection(host)) as link:
        found = Scratch(root, packages, python, link)
        found.unit()
        yield found
