"""Makes ``/opt/sglang`` out of the bundle: a venv on top of the machine's PyTorch, and its kernels built."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.gpu import bed, stages

HERE = Path(__file__).parent
ROOT = Path("/opt/sglang")
VENV = ROOT / ".venv"
DONE = VENV / "done"
PORTS = {"llama": 31000, "dsv2": 32000}
WARM_SECONDS = 280.0
# Mirrors profiles/base.yaml, without fleetctl.
FLAGS = shlex.split(
    "--load-format dummy --attention-backend triton --sampling-backend pytorch --grammar-backend none "
    "--cuda-graph-max-bs 8 --mem-fraction-static 0.3 --max-total-tokens 16384 --context-length 2048 "
    "--disable-piecewise-cuda-graph"
)


def main() -> None:
    """Unpack, compile, build kernels; every step says how long it took."""
    began = time.monotonic()
    if not DONE.exists():
        bed.forget(stages.HOSTS)  # nothing may run over what is taken away here
        unpack()
        say("unpacked", began)
        dress()
        compile_all()
        DONE.touch()
        say("compiled", began)
    warm()
    say("prepared", began)


def say(what: str, began: float) -> None:
    print(f"prepare: {what} after {time.monotonic() - began:.1f} s", flush=True)


def unpack() -> None:
    """Make a venv whose packages are the bundle's."""
    shutil.rmtree(ROOT, ignore_errors=True)
    packages = site_packages()
    packages.parent.mkdir(parents=True)
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    (VENV / "bin").mkdir()
    for name in ("python", "python3"):
        (VENV / "bin" / name).symlink_to(base)
    (VENV / "pyvenv.cfg").write_text(
        f"home = {base.parent}\ninclude-system-site-packages = false\n"
    )
    with tarfile.open(Path(os.environ["BUNDLES"]) / "site.tar.xz") as tar:
        tar.extractall(packages.parent / "unpacked", filter="fully_trusted")
    (packages.parent / "unpacked" / "site").rename(packages)


def dress() -> None:
    """Add what the bundle does not hold: PyTorch's folder behind it, stand-ins, levers, models, ninja."""
    packages = site_packages()
    behind = sysconfig.get_paths()["purelib"]
    (packages / "fleetctl_gpu.pth").write_text(
        f"import site; site.addsitedir({behind!r})\n"
        "import fleetctl_gpu_stubs; fleetctl_gpu_stubs.install()\n"
        "import fleetctl_gpu_levers; fleetctl_gpu_levers.pull_what_the_unit_says()\n"
    )
    (packages / "sitecustomize.py").unlink(missing_ok=True)
    shutil.copy(HERE / "stubs.py", packages / "fleetctl_gpu_stubs.py")
    shutil.copytree(HERE / "levers", packages / "fleetctl_gpu_levers", dirs_exist_ok=True)
    shutil.copytree(HERE / "models", ROOT / "models", dirs_exist_ok=True)
    found, link = shutil.which("ninja"), VENV / "bin" / "ninja"
    if found and not link.exists():
        link.symlink_to(found)  # a unit's PATH begins with the interpreter's folder


def site_packages() -> Path:
    """Return the venv's folder of packages."""
    return VENV / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


def compile_all() -> None:
    """Write the byte code once: it is a good part of each of SGLang's starts."""
    subprocess.run(
        [VENV / "bin/python", "-m", "compileall", "-q", "-j", "0", site_packages()],
        stdout=subprocess.DEVNULL,
        check=False,  # templates and other Pythons do not compile
    )


def warm() -> None:
    """Start each model once, so that the kernels are in the caches which all hosts see."""
    logs = Path(os.environ["OUT"])
    logs.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    servers = {name: start(name, logs / f"warm-{name}.log") for name in PORTS}
    try:
        waiting = dict(servers)
        while waiting and time.monotonic() - began < WARM_SECONDS:
            time.sleep(0.5)
            for name, server in list(waiting.items()):
                if server.poll() is not None:
                    print((logs / f"warm-{name}.log").read_text()[-3000:])
                    raise SystemExit(f"prepare: {name} ended with {server.returncode}")
                if healthy(PORTS[name]):
                    say(f"{name} is ready", began)
                    del waiting[name]
        if waiting:
            raise SystemExit(f"prepare: {', '.join(waiting)} not ready in {WARM_SECONDS:.0f} s")
    finally:
        for server in servers.values():
            end(server)


def start(name: str, log: Path) -> subprocess.Popen[bytes]:
    """Start SGLang as a session of its own."""
    env = {
        "PATH": f"{VENV / 'bin'}:/usr/local/cuda/bin:{os.environ['PATH']}",
        "HOME": os.environ.get("HOME", "/root"),
        "HF_HUB_OFFLINE": "1",
        "SGLANG_IS_FLASHINFER_AVAILABLE": "false",
    } | {k: v for k, v in os.environ.items() if k.startswith(("NCCL_", "TORCH_SYMM", "NVSHMEM_"))}
    command = [
        str(VENV / "bin/python"), "-m", "sglang.launch_server", "--model-path", str(ROOT / "models" / name),
        "--port", str(PORTS[name]), *FLAGS,
    ]  # fmt: skip
    with log.open("wb") as out:
        return subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=env, cwd="/", start_new_session=True
        )


def healthy(port: int) -> bool:
    """Return whether the server says that it serves."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def end(server: subprocess.Popen[bytes]) -> None:
    """Kill a server with all its processes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, 9)
    server.wait()


if __name__ == "__main__":
    main()
