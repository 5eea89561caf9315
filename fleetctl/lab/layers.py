"""The layers above the root file system: what each engine adds, built once and shared by all hosts."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from fleetctl.engines.sglang import schema
from fleetctl.lab import base, paths, pip, shell
from fleetctl.lab.guest import tinymodel
from fleetctl.lab.spec import HostSpec

Say = Callable[[str], None]

VENV = "opt/sglang/.venv"
SITE_PACKAGES = f"{VENV}/lib/python3.11/site-packages"
MODEL = "models/tiny-llama"
DEPS_SIZE = "about 290 MB of wheels (torch for the CPU among them), 1.9 GB on disk"
SGLANG_SIZE = {
    "0.5.10": "5 MB of wheels, 60 MB on disk",
    "0.5.12.post1": "7 MB of wheels, 73 MB on disk",
    "0.5.15": "10 MB of wheels, 102 MB on disk",
    "0.5.23": "25 MB of wheels, 223 MB on disk",
}
# SGLang imports these while it starts, CPU or not; the stubs make them unneeded.
LAUNCH_SERVER = """\
import sys

from sglang import __version__
from sglang._replay.__main__ import main

if __name__ == "__main__":
    main(__version__, sys.argv[1:])
"""
STUBBED = ("torchvision", "sgl_kernel", "triton")


def ensure(host: HostSpec, say: Say) -> list[Path]:
    """Return the read-only layers of a host, topmost first, building those that are missing."""
    match host.engine:
        case "sglang":
            engine = [stubbed(say), sglang(host.version, say), deps(say), model(say)]
        case "replay":
            engine = [replay(host.version, say), model(say)]
        case _:
            engine = []
    return [*engine, base.ensure(say)]


def customise(host: HostSpec, root: Path) -> None:
    """Put into a host's own tree what only this host has: its levers. Needs the tree mounted."""
    packages = root / SITE_PACKAGES
    for lever in host.levers:
        (packages / f"fleetctl_lab_{lever}.py").write_text(guest(f"{lever}.py"))
        (packages / f"zz_fleetctl_lab_{lever}.pth").write_text(f"import fleetctl_lab_{lever}\n")


def guest(name: str) -> str:
    """Return the text of a program that runs inside the hosts."""
    return (resources.files("fleetctl.lab.guest") / name).read_text(encoding="utf-8")


def requirements() -> str:
    """Return the pinned packages that SGLang needs on the CPU."""
    return (resources.files("fleetctl.lab") / "data/sglang-deps.txt").read_text(encoding="utf-8")


def build(name: str, recipe: str, say: Say, what: str, fill: Callable[[Path], None]) -> Path:
    """Return the layer of that name and recipe; build it once, whoever else asks at the same time."""
    done = paths.cache() / f"{name}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    if done.is_dir():
        os.utime(done)  # says when it was last used
        return done
    with paths.locked(done):
        if not done.is_dir():
            if what:
                say(what)
            fresh = done.with_name(f".{done.name}.part")
            shell.run(["rm", "-rf", "--one-file-system", fresh])
            fresh.mkdir(parents=True)
            fill(fresh)
            os.sync()
            fresh.rename(done)
    return done


def deps(say: Say) -> Path:
    """Return the layer with the venv and everything SGLang imports, without SGLang (about 60 s)."""

    def fill(root: Path) -> None:
        skeleton(root)
        packages = root / SITE_PACKAGES
        pip.install_torch(packages, requirements(), say)
        pip.install(packages, requirements(), without=("torch",))
        precompile(root, SITE_PACKAGES, say)

    recipe = requirements() + "4"
    return build("deps", recipe, say, f"fetching what SGLang needs: {DEPS_SIZE}", fill)


def stubbed(say: Say) -> Path:
    """Return the layer with the stand-ins for packages that only a GPU has a use for."""
    names = ", ".join(repr(name) for name in STUBBED)

    def fill(root: Path) -> None:
        packages = root / SITE_PACKAGES
        packages.mkdir(parents=True)
        (packages / "fleetctl_lab_stubs.py").write_text(guest("stubs.py"))
        # A .pth file, since Debian ships a sitecustomize of its own.
        line = f"import fleetctl_lab_stubs; fleetctl_lab_stubs.install({names})\n"
        (packages / "fleetctl_lab_stubs.pth").write_text(line)

    return build("stubs", guest("stubs.py") + names, say, "", fill)


def sglang(version: str, say: Say) -> Path:
    """Return the layer with one release of SGLang, just as its wheel has it (about 5 s)."""

    def fill(root: Path) -> None:
        pip.install(root / SITE_PACKAGES, f"sglang=={version}\n")
        precompile(root, SITE_PACKAGES, say)

    what = f"fetching SGLang {version}: {SGLANG_SIZE[version]}"
    return build(f"sglang-{version}", "2", say, what, fill)


def model(say: Say) -> Path:
    """Return the layer with the tiny random model at ``/models/tiny-llama``; nothing is fetched."""

    def fill(root: Path) -> None:
        tinymodel.write(root / MODEL)

    return build("model", guest("tinymodel.py"), say, "", fill)


def replay(version: str, say: Say) -> Path:
    """Return the layer with the stand-in for one release; nothing is fetched."""
    programs = {p.name: p.read_text(encoding="utf-8") for p in _files("guest/replay")}
    flags = json.dumps(schema.load(version).to_json())

    def fill(root: Path) -> None:
        skeleton(root)
        package = root / SITE_PACKAGES / "sglang"
        inner = package / "_replay"
        for data in ("recordings", "scenarios"):
            (inner / data).mkdir(parents=True)
            for file in _files(f"data/{data}"):
                (inner / data / file.name).write_text(file.read_text(encoding="utf-8"))
        for name, text in programs.items():
            (inner / name).write_text(text)
        (inner / "flags.json").write_text(flags)
        (package / "__init__.py").write_text(f'__version__ = "{version}"  # a replay\n')
        (package / "launch_server.py").write_text(LAUNCH_SERVER)
        info = package.with_name(f"sglang-{version}.dist-info")
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")
        (info / "INSTALLER").write_text("fleetctl lab\n")

    data = [
        f.read_text(encoding="utf-8")
        for d in ("recordings", "scenarios")
        for f in _files(f"data/{d}")
    ]
    recipe = json.dumps([programs, flags, data, LAUNCH_SERVER, 1])
    return build(f"replay-{version}", recipe, say, "", fill)


def _files(folder: str) -> list[Traversable]:
    found = (resources.files("fleetctl.lab") / folder).iterdir()
    return sorted((f for f in found if f.is_file()), key=lambda f: f.name)


COMPILE = """\
set -e
mount --bind "$1" "$1"
mount --bind "$2" "$1/mnt"
chroot "$1" python3 -m compileall -q -j 0 -s /mnt -p / "/mnt/$3" >/dev/null || true
"""


def precompile(root: Path, folder: str, say: Say) -> None:
    """Write the byte code of a folder with the hosts' own Python, once for all hosts.

    A host would do it at its first import, which costs SGLang half of its start. Files that do not
    compile (templates, other Pythons) stay as they are. The mounts end with their namespace.
    """
    words = [str(base.ensure(say)), str(root), folder]
    shell.run(["unshare", "--mount", "/bin/sh", "-c", COMPILE, "lab", *words], timeout=900)


def prune(days: float) -> list[str]:
    """Remove layers that no mounted host uses and nobody asked for in so many days; return their names."""
    mounts = Path("/proc/self/mounts").read_text()
    before = time.time() - days * 86400
    gone = []
    for folder in sorted(p for p in paths.cache().glob("[!.]*-*") if p.is_dir()):
        with paths.locked(folder):
            if f"{folder}," in mounts or f"{folder}:" in mounts or folder.stat().st_mtime > before:
                continue
            shell.run(["rm", "-rf", "--one-file-system", folder])
            gone.append(folder.name)
    return gone


def skeleton(root: Path) -> None:
    """Make an empty venv that the hosts' own python3 runs."""
    binaries = root / VENV / "bin"
    binaries.mkdir(parents=True)
    for name in ("python", "python3"):
        (binaries / name).symlink_to("/usr/bin/python3")
    (root / VENV / "pyvenv.cfg").write_text(
        "home = /usr/bin\ninclude-system-site-packages = false\n"
    )
    (root / SITE_PACKAGES).mkdir(parents=True)
