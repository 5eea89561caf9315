"""What breaks in the middle of a push or a revert leaves the files as they were."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetctl.errors import RemoteError
from fleetctl.patching import catalog, hosts, snippets
from fleetctl.patching.hosts import Wish
from fleetctl.patching.loader import load
from fleetctl.patching.model import Patch
from fleetctl.remote import instrument
from tests.patching.conftest import VERSION, Scratch, sha

# Runs one verb as the agent does, with one call of the operating system replaced.
PROGRAM = """
import json, os, sys
from fleetctl.remote import agent, patching
real = os.{call}
seen = [0]
def fake(*args, **options):
    if any(str(a).endswith({path!r}) for a in args):
        seen[0] += 1
        if seen[0] == {nth}:
            {action}
    return real(*args, **options)
os.{call} = fake
try:
    print(json.dumps(patching.VERBS[sys.argv[1]](json.load(sys.stdin))))
except agent.AgentError as error:
    print(json.dumps(error.fields))
except OSError as error:
    print(json.dumps({{"errno": error.errno, "filename": error.filename}}))
"""
KILL_BEFORE = "os.kill(os.getpid(), 9)"
KILL_AFTER = "real(*args, **options); os.kill(os.getpid(), 9)"
DISK_FULL = "raise OSError(28, 'No space left on device', str(args[-1]))"
READ_ONLY = "raise OSError(30, 'Read-only file system', str(args[-1]))"


@pytest.fixture
def patch() -> Patch:
    return catalog.find("none-in-foreach-copy", None)


@pytest.fixture
def verb(scratch: Scratch, patch: Patch) -> Callable[..., tuple[int, dict[str, Any]]]:
    def run(
        name: str, call: str, path: str, action: str, nth: int = 1
    ) -> tuple[int, dict[str, Any]]:
        args = {
            **hosts.place(scratch.link.target), "patch": snippets.render(patch, VERSION).to_json(),
            "rung": "edit", "version": VERSION, "expire": 60.0, "lock": Wish("ann").lock(), "names": [],
        }  # fmt: skip
        program = PROGRAM.format(call=call, path=path, action=action, nth=nth)
        done = subprocess.run(
            [sys.executable, "-c", program, name], input=json.dumps(args).encode(),
            capture_output=True, check=False,
        )  # fmt: skip
        return done.returncode, json.loads(done.stdout or b"{}")

    return run


@pytest.mark.parametrize(
    ("path", "action"),
    [
        ("cuda_graph_runner.py", KILL_BEFORE),
        ("buffers.py", KILL_AFTER),
        ("cuda_graph_runner.py", KILL_AFTER),
    ],
    ids=["before-the-last-rename", "between-two-renames", "after-the-last-rename"],
)
def test_death_in_a_push_is_taken_back_by_the_next_command(
    scratch: Scratch, patch: Patch, verb: Callable[..., Any], path: str, action: str
) -> None:
    before = scratch.runner.read_bytes(), scratch.registry.read_bytes()
    code, _ = verb("push", "replace", path, action)
    assert code == -signal.SIGKILL
    shutil.rmtree(scratch.root / "run")  # the dead one's lock would be waited for
    answer = scratch.revert()
    assert answer["reverted"] == []
    assert (scratch.runner.read_bytes(), scratch.registry.read_bytes()) == before
    assert scratch.leftovers() == []
    events = [x["event"] for x in hosts.history(scratch.link.call, scratch.link.target)]
    assert events == ["recovered"]


def test_death_in_a_revert_leaves_the_patch_whole(
    scratch: Scratch, patch: Patch, verb: Callable[..., Any]
) -> None:
    original = scratch.runner.read_bytes()
    verb("push", "replace", "nothing", KILL_BEFORE)
    patched = scratch.runner.read_bytes(), scratch.registry.read_bytes()
    assert patched[0] != original
    code, _ = verb("revert", "replace", "buffers.py", KILL_AFTER)
    assert code == -signal.SIGKILL
    shutil.rmtree(scratch.root / "run")
    assert scratch.push(patch, rung=None if patch.rung == "edit" else _edit())["changed"] is False
    assert (scratch.runner.read_bytes(), scratch.registry.read_bytes()) == patched
    scratch.revert()
    assert scratch.runner.read_bytes() == original


def _edit() -> Any:
    from fleetctl.patching.model import Rung

    return Rung.EDIT


@pytest.mark.parametrize(
    ("call", "path", "action", "nth"),
    [
        ("replace", "buffers.py", READ_ONLY, 1),
        ("replace", "cuda_graph_runner.py", DISK_FULL, 1),
        ("replace", "state.json", DISK_FULL, 1),
        ("replace", "state.json", DISK_FULL, 2),
        ("link", ".fleetctl-old-cuda_graph_runner.py", DISK_FULL, 1),
    ],
)
def test_a_fault_of_the_disk_leaves_every_file_as_it_was(
    scratch: Scratch, verb: Callable[..., Any], call: str, path: str, action: str, nth: int
) -> None:
    before = sha(scratch.runner), sha(scratch.registry)
    code, said = verb("push", call, path, action, nth)
    assert (code, said["errno"]) == (0, 30 if action == READ_ONLY else 28)
    assert (sha(scratch.runner), sha(scratch.registry)) == before
    assert scratch.leftovers() == []
    assert scratch.status() == []


def test_a_full_disk_in_a_revert_leaves_the_patch_whole(
    scratch: Scratch, verb: Callable[..., Any]
) -> None:
    verb("push", "replace", "nothing", KILL_BEFORE)
    patched = sha(scratch.runner), sha(scratch.registry)
    verb("revert", "replace", "state.json", DISK_FULL, 2)
    assert (sha(scratch.runner), sha(scratch.registry)) == patched
    assert [p["state"] for p in scratch.status()] == ["applied-not-active"]
    scratch.revert()
    assert instrument.patches_in(scratch.runner.read_bytes()) == []


def test_bytecode_of_a_push_that_failed_goes_with_it(
    scratch: Scratch, verb: Callable[..., Any]
) -> None:
    cached = Path(importlib.util.cache_from_source(str(scratch.runner)))
    cached.parent.mkdir(exist_ok=True)
    verb("push", "replace", "state.json", f"open({str(cached)!r}, 'w').close(); {DISK_FULL}", 2)
    assert instrument.patches_in(scratch.runner.read_bytes()) == []
    assert not cached.exists()


def test_variables_of_a_push_that_died_go_with_its_edits(
    scratch: Scratch, patch: Patch, verb: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered = snippets.render(patch, VERSION)
    given = dataclasses.replace(rendered, environment=(("SGLANG_X", "1"),))
    monkeypatch.setattr(snippets, "render", lambda *_: given)
    code, _ = verb("push", "replace", "state.json", KILL_BEFORE, 2)
    assert code == -signal.SIGKILL
    assert "SGLANG_X=1" in scratch.drop_in.read_text()
    shutil.rmtree(scratch.root / "run")
    reloads = len([x for x in scratch.asked if "daemon-reload" in x])
    assert scratch.revert()["reverted"] == []
    assert not scratch.drop_in.exists()
    assert len([x for x in scratch.asked if "daemon-reload" in x]) == reloads + 1
    assert instrument.patches_in(scratch.runner.read_bytes()) == []


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("chattr") is None, reason="needs root and chattr"
)
def test_an_immutable_file_is_left_alone(scratch: Scratch, patch: Patch) -> None:
    before = sha(scratch.runner), sha(scratch.registry)
    if subprocess.run(
        ["chattr", "+i", scratch.runner], check=False, capture_output=True
    ).returncode:
        pytest.skip("this file system has no immutable files")
    try:
        with pytest.raises(RemoteError) as caught:
            scratch.push(patch, rung=_edit())
        assert caught.value.reference == "permission-denied"
        assert scratch.runner.name in caught.value.where
    finally:
        subprocess.run(["chattr", "-i", scratch.runner], check=True)
    assert (sha(scratch.runner), sha(scratch.registry)) == before
    assert scratch.leftovers() == []
    assert scratch.push(patch)["changed"], "an overlay does not touch the file"


def block(folder: Path, text: str) -> Patch:
    target = folder / "broken"
    target.mkdir(parents=True)
    (target / "patch.toml").write_text(
        'name = "broken"\nsummary = "x"\nsglang = ">=0.5"\nexpire = "1h"\n'
        '[[target]]\nsymbol = "sglang.srt:_grouped_foreach_copy_"\nblock = "block.py"\n'
    )
    (target / "block.py").write_text(text)
    return load(target)


def test_a_block_that_does_not_compile_is_found_before_anything_changes(
    scratch: Scratch, tmp_path: Path
) -> None:
    before = sha(scratch.runner)
    with pytest.raises(RemoteError) as caught:
        scratch.push(block(tmp_path, "break\n"), rung=_edit())
    assert caught.value.reference == "does-not-compile"
    assert "outside loop" in caught.value.message
    assert sha(scratch.runner) == before
    assert not (scratch.patches / "state.json").exists()


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_the_order_is_write_fsync_rename_fsync_of_the_folder(
    scratch: Scratch, patch: Patch
) -> None:
    args = {
        **hosts.place(scratch.link.target), "patch": snippets.render(patch, VERSION).to_json(),
        "rung": "edit", "version": VERSION, "expire": 60.0, "lock": Wish("ann").lock(),
    }  # fmt: skip
    program = PROGRAM.format(call="replace", path="nothing", action="pass", nth=1)
    calls = "trace=write,fsync,rename,renameat,renameat2,openat"
    log = scratch.root / "strace"
    subprocess.run(
        ["strace", "-f", "-y", "-e", calls, "-o", log, sys.executable, "-c", program, "push"],
        input=json.dumps(args).encode(), capture_output=True, check=True,
    )  # fmt: skip
    name = scratch.runner.name
    steps = []
    for line in log.read_text(errors="replace").splitlines():
        if re.search(rf"write\(\d+<[^>]*/\.fleetctl-{name}", line):
            steps.append("write")
        elif re.search(rf"fsync\(\d+<[^>]*/\.fleetctl-{name}", line):
            steps.append("fsync")
        elif re.search(rf'rename\w*\(.*\.fleetctl-{name}-\d+".*/{name}"', line):
            steps.append("rename")
        elif re.search(rf"fsync\(\d+<{re.escape(str(scratch.runner.parent))}>", line):
            steps.append("fsync folder")
    assert list(dict.fromkeys(steps)) == ["write", "fsync", "rename", "fsync folder"]
