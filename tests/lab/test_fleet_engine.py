"""SGLang side by side on a real host without network: real pip, real venvs, a tiny wheel in a bundle."""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from pathlib import Path

from fleetctl.lab.box import Box
from tests.lab.deploying import Operator


def wheel(folder: Path, name: str, version: str, needs: tuple[str, ...] = ()) -> Path:
    """Write a wheel with one empty module and the needs that its metadata tells."""
    info = f"{name}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {need}" for need in needs]
    files = {
        f"{name}/__init__.py": "",
        f"{info}/METADATA": "\n".join(lines) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},{len(text.encode())}"
        for path, text in files.items()
    ]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"]) + "\n"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for where, text in files.items():
            archive.writestr(where, text)
    return path


def bundle(ops: Operator, version: str, torch: str = "2.9.1+cu129") -> Path:
    """Make a bundle of a tiny sglang that needs exactly torch 2.9.1, and of a torch."""
    folder = ops.folder / f"wheels-{version}"
    folder.mkdir()
    own = wheel(folder, "sglang", version, ("torch>=2",))
    wheel(folder, "torch", torch)
    out = ops.folder / f"{version}.tar"
    done = ops.run(
        "engine",
        "bundle",
        str(own),
        "-o",
        str(out),
        "--find-links",
        str(folder),
        "--no-index",
        "--json",
    )
    assert done.rc == 0, done.err
    names = {name.split("-")[0] for name in json.loads(done.out)["files"]}
    assert names == {"sglang", "torch", "pip"}
    return out


def test_an_engine_comes_in_a_bundle_beside_the_others_and_goes_when_nothing_uses_it(
    ops: Operator, replay_host: Box
) -> None:
    packed = bundle(ops, "0.0.1")
    done = ops.run("engine", "install", str(packed), "lab-01", "--json")
    assert done.rc == 0, done.err
    line = json.loads(done.out)
    assert (line["state"], line["versions"]) == (
        "installed", {"sglang": "0.0.1", "torch": "2.9.1+cu129"},
    )  # fmt: skip
    said = replay_host.console(f"{line['interpreter']} -c 'import sglang; print(sglang.__file__)'")
    assert said.strip() == f"/opt/sglang/0.0.1/{said.strip().split('/opt/sglang/0.0.1/')[1]}"
    again = ops.run("engine", "install", str(packed), "lab-01", "--json")
    assert json.loads(again.out)["state"] == "unchanged"
    listed = [json.loads(x) for x in ops.run("engine", "list", "lab-01", "--json").out.splitlines()]
    assert "0.0.1" in {e["name"] for e in listed}
    assert replay_host.console("ls /var/lib/fleetctl/engine-bundles") == ""
    gone = ops.run("engine", "remove", "0.0.1", "lab-01", "--json")
    assert json.loads(gone.out)["state"] == "removed"
    assert "0.0.1" not in replay_host.console("ls /opt/sglang")


def test_an_engine_that_a_service_runs_from_stays(ops: Operator, replay_host: Box) -> None:
    assert ops.deploy("lab-01", "tp8").rc == 0
    listed = [json.loads(x) for x in ops.run("engine", "list", "lab-01", "--json").out.splitlines()]
    used = [e for e in listed if e["used_by"]["units"]]
    for engine in used:
        done = ops.run("engine", "remove", engine["name"], "lab-01", "--force")
        assert done.rc == 7
        assert "engine-in-use" in done.err
    assert used, listed


def test_a_wheel_alone_and_a_broken_bundle_change_nothing(ops: Operator, replay_host: Box) -> None:
    own = wheel(ops.folder, "sglang", "0.0.2")
    done = ops.run("engine", "install", str(own), "lab-01")
    assert (done.rc, "engine bundle" in done.err) == (2, True)
    packed = bundle(ops, "0.0.3")
    data = packed.read_bytes()
    packed.write_bytes(
        data.replace(b"import", b"imporT").replace(b"Requires-Dist", b"Requires-Dost")
    )
    if packed.read_bytes() == data:
        packed.write_bytes(data[: len(data) // 2] + b"\0" * (len(data) - len(data) // 2))
    broken = ops.run("engine", "install", str(packed), "lab-01")
    assert broken.rc != 0
    assert "0.0.3" not in replay_host.console("ls /opt/sglang")
