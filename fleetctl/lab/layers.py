"""The layers above the root file system: what each engine adds, built once and shared by all hosts."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
DEPS_SIZE = "404 MB of wheels (torch for the CPU is 192 MB of it), 1.7 GB on disk"
SGLANG_SIZE = {
    "0.5.10": "6 MB of wheels, 60 MB on disk",
    "0.5.12.post1": "8 MB of wheels, 73 MB on disk",
    "0.5.15": "13 MB of wheels, 102 MB on disk",
    "0.5.23": "39 MB of wheels, 223 MB on disk",
}
# SGLang imports these while it starts, CPU or not; the stubs make them unneeded.
LAUNCH_SERVER = """\
import sys

sys.modules["ssl"] = None  # it speaks no TLS, and loading OpenSSL is a third of its start

from sglang import __version__
from sglang._replay.__main__ import main

if __name__ == "__main__":
    main(__version__, sys.argv[1:])
"""
GENERATORS = (
    "systemd-cryptsetup-generator",
    "systemd-debug-generator",
    "systemd-fstab-generator",
    "systemd-getty-generator",
    "systemd-gpt-auto-generator",
    "systemd-hibernate-resume-generator",
    "systemd-integritysetup-generator",
    "systemd-rc-local-generator",
    "systemd-run-generator",
    "systemd-system-update-generator",
    "systemd-sysv-generator",
    "systemd-veritysetup-generator",
)
STUBBED = ("torchvision", "sgl_kernel", "triton")


@dataclass(frozen=True, slots=True)
class Layer:
    """A folder that is built once by its recipe, and never changed: another recipe is another folder.

    ``what`` is said before it is built, with the size of what is fetched; empty where nothing is.
    """

    name: str
    recipe: str
    what: str
    fill: Callable[[Path, Say], None]

    @property
    def folder(self) -> Path:
        """Return where it is, or will be."""
        digest = hashlib.sha256(self.recipe.encode()).hexdigest()[:12]
        return paths.cache() / f"{self.name}-{digest}"

    def ensure(self, say: Say) -> Path:
        """Return the folder; build it once, whoever else asks at the same time."""
        done = self.folder
        if done.is_dir():
            os.utime(done)  # says when it was last used
            return done
        with paths.locked(done):
            if not done.is_dir():
                if self.what:
                    say(f"building: {self.what}")
                fresh = done.with_name(f".{done.name}.part")
                shell.run(["rm", "-rf", "--one-file-system", fresh])
                fresh.mkdir(parents=True)
                self.fill(fresh, say)
                os.sync()
                fresh.rename(done)
        return done


def stack(host: HostSpec) -> list[Layer]:
    """Return the layers that a host needs above the root file system, topmost first."""
    match host.engine:
        case "sglang":
            return [stubbed(), sglang(host.version), deps(), model()]
        case "replay":
            return [replay(host.version), model()]
        case _:
            return []


def ensure(host: HostSpec, say: Say) -> list[Path]:
    """Return the read-only layers of a host, topmost first, building those that are missing."""
    bottom = base.ensure(say)
    return [*(layer.ensure(say) for layer in (*stack(host), quiet())), bottom]


def missing(hosts: Sequence[HostSpec]) -> list[str]:
    """Return what would be fetched for these hosts, with sizes; empty when all is there."""
    wanted = {one.folder: one.what for host in hosts for one in reversed(stack(host)) if one.what}
    found = [what for folder, what in wanted.items() if not folder.is_dir()]
    return found if base.folder().is_dir() else [base.WHAT, *found]


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


def deps() -> Layer:
    """Return the layer with the venv and everything SGLang imports, without SGLang (about 60 s)."""

    def fill(root: Path, say: Say) -> None:
        skeleton(root)
        packages = root / SITE_PACKAGES
        pip.install_torch(packages, requirements(), say)
        pip.install(packages, requirements(), without=("torch",))
        precompile(root, SITE_PACKAGES, say)

    what = f"what SGLang needs on the CPU: {DEPS_SIZE}"
    return Layer("deps", requirements() + "4", what, fill)


def stubbed() -> Layer:
    """Return the layer with the stand-ins for packages that only a GPU has a use for."""
    names = ", ".join(repr(name) for name in STUBBED)

    def fill(root: Path, _: Say) -> None:
        packages = root / SITE_PACKAGES
        packages.mkdir(parents=True)
        (packages / "fleetctl_lab_stubs.py").write_text(guest("stubs.py"))
        # A .pth file, since Debian ships a sitecustomize of its own.
        line = f"import fleetctl_lab_stubs; fleetctl_lab_stubs.install({names})\n"
        (packages / "fleetctl_lab_stubs.pth").write_text(line)

    return Layer("stubs", guest("stubs.py") + names, "", fill)


def sglang(version: str) -> Layer:
    """Return the layer with one release of SGLang, just as its wheel has it (about 10 s)."""

    def fill(root: Path, say: Say) -> None:
        pip.install(root / SITE_PACKAGES, f"sglang=={version}\n")
        precompile(root, SITE_PACKAGES, say)

    what = f"SGLang {version}: {SGLANG_SIZE[version]}"
    return Layer(f"sglang-{version}", "2", what, fill)


def quiet() -> Layer:
    """Return the layer without systemd's generators, each of which runs at every daemon-reload.

    They are for disks, consoles, kernel arguments and SysV scripts, none of which a container has, and
    cost more than the reload itself.
    """

    def fill(root: Path, _: Say) -> None:
        for name in GENERATORS:
            mask = root / "etc/systemd/system-generators" / name
            mask.parent.mkdir(parents=True, exist_ok=True)
            mask.symlink_to("/dev/null")

    return Layer("quiet", " ".join(GENERATORS), "", fill)


def model() -> Layer:
    """Return the layer with the tiny random model at ``/models/tiny-llama``; nothing is fetched."""

    def fill(root: Path, _: Say) -> None:
        tinymodel.write(root / MODEL)

    return Layer("model", guest("tinymodel.py"), "", fill)


def replay(version: str) -> Layer:
    """Return the layer with the stand-in for one release; nothing is fetched."""
    programs = {p.name: p.read_text(encoding="utf-8") for p in _files("guest/replay")}
    data = {
        f"{kind}/{file.name}": file.read_text(encoding="utf-8")
        for kind in ("recordings", "scenarios")
        for file in _files(f"data/{kind}")
    }
    data["flags.json"] = json.dumps(schema.load(version).to_json())

    def fill(root: Path, _: Say) -> None:
        skeleton(root)
        package = root / SITE_PACKAGES / "sglang"
        for name, text in (programs | data).items():
            file = package / "_replay" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (package / "__init__.py").write_text(f'__version__ = "{version}"  # a replay\n')
        (package / "launch_server.py").write_text(LAUNCH_SERVER)
        info = package.with_name(f"sglang-{version}.dist-info")
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")
        (info / "INSTALLER").write_text("fleetctl lab\n")

    return Layer(f"replay-{version}", json.dumps([programs, data, LAUNCH_SERVER, 1]), "", fill)


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
