"""What a host does with a patch: overlay or edit, all or nothing, back to the exact bytes."""

from __future__ import annotations

import difflib
import json
import os
import shutil
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from fleetctl.config import places
from fleetctl.errors import Exit, FleetError, LockedError, RefusedError, RemoteError
from fleetctl.patching import catalog, hosts, snippets
from fleetctl.patching.hosts import Wish
from fleetctl.patching.loader import load
from fleetctl.patching.model import Patch, Rung
from fleetctl.patching.ready import Ready
from fleetctl.remote import instrument, patch_plan
from fleetctl.transport.local import LocalConnection
from tests.patching.conftest import VERSION, Scratch, install, sha


@pytest.fixture
def patch() -> Patch:
    return catalog.find("none-in-foreach-copy", None)


def other(folder: Path, name: str, block: str, symbol: str = "_grouped_foreach_copy_") -> Patch:
    """Write and load a small patch."""
    target = folder / name
    target.mkdir(parents=True)
    (target / "patch.toml").write_text(
        f'name = "{name}"\nsummary = "x"\nsglang = ">=0.5"\nexpire = "1h"\n'
        f'[[target]]\nsymbol = "sglang.srt:{symbol}"\nblock = "block.py"\n'
    )
    (target / "block.py").write_text(block)
    return load(target)


class TestOverlay:
    def test_the_files_keep_their_bytes_and_a_drop_in_lies_over_them(
        self, scratch: Scratch, patch: Patch
    ) -> None:
        before = sha(scratch.runner), sha(scratch.registry)
        answer = scratch.push(patch)
        assert answer["changed"]
        assert (sha(scratch.runner), sha(scratch.registry)) == before
        lines = scratch.drop_in.read_text().splitlines()
        assert [over for _, over in scratch.binds] == [scratch.registry, scratch.runner]
        for source, over in scratch.binds:
            assert instrument.strip(source.read_bytes(), patch.name) == over.read_bytes()
        assert "Environment=PYTHONDONTWRITEBYTECODE=1" in lines
        assert any("daemon-reload" in x for x in scratch.asked)

    def test_revert_leaves_nothing_behind(self, scratch: Scratch, patch: Patch) -> None:
        before = sha(scratch.runner)
        scratch.push(patch)
        answer = scratch.revert(patch.name)
        assert answer["reverted"] == [patch.name]
        assert {f["now"] for f in answer["files"]} == {"original"}
        assert sha(scratch.runner) == before
        assert not scratch.drop_in.parent.exists()
        assert not scratch.look.exists()
        assert sorted(p.name for p in scratch.patches.iterdir()) == ["history.jsonl", "state.json"]

    def test_a_second_push_changes_nothing_but_the_time(
        self, scratch: Scratch, patch: Patch
    ) -> None:
        first = scratch.push(patch)
        reloads = len([x for x in scratch.asked if "daemon-reload" in x])
        second = scratch.push(patch, expire=60.0)
        assert second["changed"] is False
        assert second["expires_at"] < first["expires_at"]
        assert len([x for x in scratch.asked if "daemon-reload" in x]) == reloads
        last = hosts.history(scratch.link.call, scratch.link.target)[-1]
        assert (last["event"], last["expires_at"]) == ("renew", second["expires_at"])
        audit = (scratch.root / "var/lib/fleetctl/audit.jsonl").read_text().splitlines()
        assert [json.loads(x)["do"] for x in audit] == ["patch-push", "patch-renew"]

    def test_a_renewal_that_fails_leaves_the_old_time(self, scratch: Scratch, patch: Patch) -> None:
        first = scratch.push(patch)
        scratch.drop_in.unlink()  # so that systemd is asked for
        (scratch.root / "no-reload").touch()
        with pytest.raises(RemoteError, match="no reload today"):
            scratch.push(patch, expire=60.0)
        assert [p["expires_at"] for p in scratch.status()] == [first["expires_at"]]

    def test_a_drop_in_that_somebody_took_away_comes_back(
        self, scratch: Scratch, patch: Patch
    ) -> None:
        scratch.push(patch)
        text = scratch.drop_in.read_text()
        scratch.drop_in.unlink()
        scratch.push(patch)
        assert scratch.drop_in.read_text() == text

    def test_other_parameters_replace_the_block(self, scratch: Scratch, patch: Patch) -> None:
        scratch.push(patch)
        old = scratch.look.read_text()
        answer = scratch.push(patch, given={"limit": "3"})
        assert answer["changed"]
        assert scratch.look.read_text() != old
        assert [p["parameters"] for p in scratch.status()] == [{"limit": 3}]

    def test_bytecode_that_is_never_checked_is_hidden(self, scratch: Scratch, patch: Patch) -> None:
        import py_compile

        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        compiled = py_compile.compile(str(scratch.runner), invalidation_mode=mode)
        scratch.push(patch)
        (nothing,) = (s for s, over in scratch.binds if str(over) == compiled)
        assert nothing.read_bytes() == b""

    def test_other_parameters_replace_an_edit(self, scratch: Scratch, patch: Patch) -> None:
        before = scratch.runner.read_bytes()
        scratch.push(patch, rung=Rung.EDIT)
        first = scratch.runner.read_bytes()
        assert scratch.push(patch, given={"limit": "3"}, rung=Rung.EDIT)["changed"]
        assert instrument.patches_in(scratch.runner.read_bytes()) == [patch.name]
        assert scratch.runner.read_bytes() != first
        scratch.revert()
        assert scratch.runner.read_bytes() == before

    def test_the_same_patch_by_the_other_rung_replaces_the_first(
        self, scratch: Scratch, patch: Patch
    ) -> None:
        before = scratch.runner.read_bytes()
        for rung in (Rung.EDIT, Rung.OVERLAY, Rung.EDIT):
            assert scratch.push(patch, rung=rung)["changed"]
            assert (scratch.runner.read_bytes() != before) is (rung is Rung.EDIT)
            assert scratch.drop_in.exists() is (rung is Rung.OVERLAY)
        scratch.revert()
        assert scratch.runner.read_bytes() == before
        assert scratch.leftovers() == []


class TestTwoPatchesOnOneFile:
    def test_both_blocks_are_in_the_file_and_each_can_go_alone(
        self, scratch: Scratch, patch: Patch, tmp_path: Path
    ) -> None:
        second = other(tmp_path / "p", "second", "_fc_x = 1\n")
        scratch.push(patch)
        alone = scratch.drop_in.read_text()
        scratch.push(second)
        (source,) = (s for s, over in scratch.binds if over == scratch.runner)
        assert instrument.patches_in(source.read_bytes()) == [patch.name, "second"]
        scratch.revert("second")
        left = scratch.drop_in.read_text()
        assert left == alone
        scratch.revert(patch.name)
        assert not scratch.drop_in.exists()

    def test_edits_compose_as_well(self, scratch: Scratch, patch: Patch, tmp_path: Path) -> None:
        before = scratch.runner.read_bytes()
        second = other(tmp_path / "p", "second", "_fc_x = 1\n")
        scratch.push(patch, rung=Rung.EDIT)
        scratch.push(second, rung=Rung.EDIT)
        both = scratch.runner.read_bytes()
        assert instrument.patches_in(both) == [patch.name, "second"]
        scratch.revert(patch.name)
        assert scratch.runner.read_bytes() == instrument.strip(both, patch.name)
        scratch.revert()
        assert scratch.runner.read_bytes() == before

    def test_one_file_has_one_rung(self, scratch: Scratch, patch: Patch, tmp_path: Path) -> None:
        scratch.push(patch)
        with pytest.raises(RemoteError) as caught:
            scratch.push(other(tmp_path / "p", "second", "_fc_x = 1\n"), rung=Rung.EDIT)
        assert caught.value.reference == "other-rung"
        assert caught.value.exit_code == Exit.REFUSED


class TestEdit:
    def test_owner_mode_and_links_of_others_stay(self, scratch: Scratch, patch: Patch) -> None:
        cache = scratch.root / "uv-cache.py"
        os.link(scratch.runner, cache)
        scratch.runner.chmod(0o640)
        original = cache.read_bytes()
        answer = scratch.push(patch, rung=Rung.EDIT)
        assert [f["links"] for f in answer["files"] if f["path"].endswith("runner.py")] == [2]
        assert cache.read_bytes() == original
        assert scratch.runner.read_bytes() != original
        assert stat.S_IMODE(scratch.runner.stat().st_mode) == 0o640
        scratch.revert()
        assert scratch.runner.read_bytes() == original
        assert stat.S_IMODE(scratch.runner.stat().st_mode) == 0o640
        assert scratch.leftovers() == []

    def test_extended_attributes_go_with_the_file(self, scratch: Scratch, patch: Patch) -> None:
        try:
            os.setxattr(scratch.runner, "user.label", b"x")
        except OSError:
            pytest.skip("this file system has no extended attributes")
        scratch.push(patch, rung=Rung.EDIT)
        assert os.getxattr(scratch.runner, "user.label") == b"x"
        scratch.revert()
        assert os.getxattr(scratch.runner, "user.label") == b"x"

    def test_bytecode_of_the_module_goes_with_each_change(
        self, scratch: Scratch, patch: Patch
    ) -> None:
        import py_compile

        cached = Path(py_compile.compile(str(scratch.runner)) or "")
        keep = Path(py_compile.compile(str(scratch.packages / "sglang/__init__.py")) or "")
        scratch.push(patch, rung=Rung.EDIT)
        assert not cached.exists()
        cached.write_bytes(b"stale")
        scratch.revert()
        assert not cached.exists()
        assert keep.exists()

    def test_refused_where_another_unit_uses_the_environment(
        self, scratch: Scratch, patch: Patch
    ) -> None:
        scratch.unit("sglang-draft.service")
        before = sha(scratch.runner)
        with pytest.raises(RemoteError) as caught:
            scratch.push(patch, rung=Rung.EDIT)
        assert caught.value.reference == "edit-refused"
        assert "sglang-draft.service" in caught.value.message
        assert sha(scratch.runner) == before

    def test_refused_for_a_file_behind_a_link(self, scratch: Scratch, patch: Patch) -> None:
        real = scratch.root / "cache.py"
        scratch.runner.rename(real)
        scratch.runner.symlink_to(real)
        with pytest.raises(RemoteError) as caught:
            scratch.push(patch, rung=Rung.EDIT)
        assert caught.value.reference == "edit-refused"
        scratch.push(patch)
        assert f":{real}" in scratch.drop_in.read_text()

    def test_without_a_unit_only_an_edit_with_a_named_interpreter(
        self, scratch: Scratch, patch: Patch
    ) -> None:
        (scratch.root / "units/sglang-main.service").unlink()
        with pytest.raises(RemoteError) as caught:
            scratch.push(patch)
        assert caught.value.reference == "no-unit"
        wish = Wish("ann", python=str(scratch.python))
        with pytest.raises(RemoteError) as caught:
            scratch.push(patch, wish=wish)
        assert caught.value.reference == "no-unit"
        assert scratch.push(patch, wish=wish, rung=Rung.EDIT)["changed"]


class TestAPackageThatChangedMeanwhile:
    def test_an_edited_file_that_changed_stops_the_revert_and_shows_both(
        self, scratch: Scratch, patch: Patch
    ) -> None:
        scratch.push(patch, rung=Rung.EDIT)
        upgraded = "# upgraded\n" + "def _grouped_foreach_copy_(a, b):\n    pass\n"
        scratch.runner.write_text(upgraded)
        assert [p["state"] for p in scratch.status()] == ["orphaned"]
        with pytest.raises(RemoteError) as caught:
            scratch.revert()
        assert caught.value.reference == "orphaned"
        shown = "\n".join(caught.value.context)
        assert "what the patch did" in shown
        assert "+# upgraded" in shown
        assert scratch.runner.read_text() == upgraded
        assert instrument.patches_in(scratch.registry.read_bytes()) == [patch.name]

    def test_leave_forgets_that_file_and_restores_the_others(
        self, scratch: Scratch, patch: Patch
    ) -> None:
        registry = scratch.registry.read_bytes()
        scratch.push(patch, rung=Rung.EDIT)
        scratch.runner.write_text("# upgraded\n")
        answer = scratch.revert(leave=True)
        assert answer["left"] == [str(scratch.runner)]
        assert scratch.runner.read_text() == "# upgraded\n"
        assert scratch.registry.read_bytes() == registry
        assert scratch.status() == []

    def test_an_overlay_can_always_be_taken_away(self, scratch: Scratch, patch: Patch) -> None:
        scratch.push(patch)
        scratch.runner.write_text("# upgraded\n")
        assert [p["state"] for p in scratch.status()] == ["orphaned"]
        scratch.revert()
        assert scratch.runner.read_text() == "# upgraded\n"
        assert not scratch.drop_in.exists()

    def test_an_overlay_is_not_laid_over_an_upgraded_package(
        self, scratch: Scratch, patch: Patch, tmp_path: Path
    ) -> None:
        neighbour = other(tmp_path / "p", "neighbour", "_fc_x = 1\n", "ModelRunner.forward")
        scratch.push(patch)
        scratch.push(neighbour)
        assert scratch.before_start() == ""
        assert all(source.is_file() for source, _ in scratch.binds)
        kept = scratch.registry.read_bytes()
        scratch.registry.write_text("NEW = 2\n")  # one of two files of one patch: neither is laid
        told = scratch.before_start()
        assert f"not laid, for the package has changed since (orphaned): {patch.name}\n" in told
        there = {over.name: source.exists() for source, over in scratch.binds}
        assert there == {
            "buffers.py": False, "cuda_graph_runner.py": False, "model_runner.py": True,
        }  # fmt: skip
        scratch.registry.write_bytes(kept)  # and where the old package comes back, so do they
        assert scratch.before_start() == ""
        assert all(source.is_file() for source, _ in scratch.binds)

    def test_an_orphaned_overlay_is_made_anew_by_a_second_push(
        self, scratch: Scratch, patch: Patch
    ) -> None:
        scratch.push(patch)
        upgraded = b"# new\n" + scratch.runner.read_bytes()
        scratch.runner.write_bytes(upgraded)
        scratch.before_start()
        assert scratch.push(patch)["changed"]
        (source,) = (s for s, over in scratch.binds if over == scratch.runner)
        assert instrument.strip(source.read_bytes(), patch.name) == upgraded
        assert [p["state"] for p in scratch.status()] == ["applied-not-active"]
        assert scratch.before_start() == ""

    def test_another_package_of_the_unit_gets_the_patch_again(
        self, scratch: Scratch, patch: Patch
    ) -> None:
        scratch.push(patch)
        moved = scratch.root / "opt/new"
        shutil.copytree(scratch.packages / "sglang", moved / "sglang")
        info = f"sglang-{VERSION}.dist-info"
        shutil.copytree(scratch.packages / info, moved / info)
        scratch.unit(more=f"Environment=PYTHONPATH={moved}\n")
        with hosts.link(
            scratch.link.target, open_connection=lambda h, _: LocalConnection(h)
        ) as new:
            answer = hosts.push(new.call, new.target, patch, Wish("ann"))
        assert answer["changed"]
        assert all(str(over).startswith(str(moved)) for _, over in scratch.binds)

    def test_a_second_patch_is_not_built_on_an_orphan(
        self, scratch: Scratch, patch: Patch, tmp_path: Path
    ) -> None:
        scratch.push(patch)
        scratch.runner.write_text("# new\n" + scratch.runner.read_text())
        with pytest.raises(RemoteError) as caught:
            scratch.push(other(tmp_path / "p", "second", "_fc_x = 1\n"))
        assert caught.value.reference == "orphaned"

    def test_the_same_package_again_is_patched_again(self, scratch: Scratch, patch: Patch) -> None:
        original = scratch.runner.read_bytes()
        scratch.push(patch, rung=Rung.EDIT)
        edited = scratch.runner.read_bytes()
        scratch.runner.write_bytes(original)
        scratch.push(patch, rung=Rung.EDIT)
        assert scratch.runner.read_bytes() == edited

    def test_another_version_than_looked_at_is_refused(
        self, scratch: Scratch, patch: Patch
    ) -> None:
        seen = hosts.resolve(scratch.link.call, scratch.link.target, Wish("ann"))
        scratch.link.close()
        (scratch.packages / "sglang-0.5.12.post1.dist-info/METADATA").write_text(
            "Version: 0.5.15\n"
        )
        with pytest.raises(RemoteError) as caught:
            scratch.push(patch, seen=seen)
        assert caught.value.reference == "version-changed"


class TestTwoPeople:
    def test_two_pushes_at_once_both_arrive_or_one_is_told_who_holds_the_lock(
        self, scratch: Scratch, patch: Patch, tmp_path: Path
    ) -> None:
        second = other(tmp_path / "p", "second", "_fc_x = 1\n")
        ends: list[Any] = []

        def go(one: Patch, who: str) -> None:
            target = scratch.link.target
            with hosts.link(target, open_connection=lambda h, _: LocalConnection(h)) as link:
                try:
                    ends.append(hosts.push(link.call, target, one, Wish(who)))
                except FleetError as error:
                    ends.append(error)

        threads = [threading.Thread(target=go, args=a) for a in ((patch, "ann"), (second, "bob"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        faults = [e for e in ends if isinstance(e, FleetError)]
        assert all(f.reference == "locked" and f.exit_code == Exit.LOCKED for f in faults)
        assert len(scratch.status()) == 2 - len(faults)
        assert [over for _, over in scratch.binds].count(scratch.runner) == 1

    def test_what_an_earlier_crash_told_is_kept_when_the_patch_goes(
        self, scratch: Scratch, patch: Patch
    ) -> None:
        digest = scratch.push(patch)["digest"]
        for name, when, said in (("a1", "2999-01-01", "pair 5 of 6"), ("b2", "2020-01-01", "old")):
            folder = scratch.root / "var/lib/fleetctl/spool/main" / name
            folder.mkdir(parents=True)
            manifest = {"schema": "fleetctl.bundle/1", "invocation_id": name, "files": {}}
            (folder / "manifest.json").write_text(json.dumps(manifest | {"created_at": when}))
            row = {"name": patch.name, "digest": digest, "result": said, "markers": 3}
            row["invocation_id"] = name
            (folder / "patches.json").write_text(json.dumps({"patches": [row]}))
        scratch.revert()
        last = hosts.history(scratch.link.call, scratch.link.target)[-1]
        told = (last["result"], last["markers"], last["invocation_id"])
        assert told == ("pair 5 of 6", 3, "a1")

    def test_revert_by_another_person_is_told_in_the_history(
        self, scratch: Scratch, patch: Patch
    ) -> None:
        scratch.push(patch)
        scratch.revert(wish=Wish("carol@night", why="restart at 3"))
        lines = hosts.history(scratch.link.call, scratch.link.target)
        assert [(x["event"], x["by"]) for x in lines] == [
            ("push", "ann@laptop"), ("revert", "carol@night"),
        ]  # fmt: skip
        again = scratch.revert(patch.name)
        assert (again["reverted"], again["absent"]) == ([], [patch.name])


class TestWhatIsRefused:
    def test_a_container_with_the_option_that_would_do_it(
        self, scratch: Scratch, patch: Patch
    ) -> None:
        scratch.unit(
            start="/usr/bin/docker run --rm lmsysorg/sglang:v0.5.12.post1-cu129 python3 -m x"
        )
        with pytest.raises(RemoteError) as caught:
            scratch.push(patch)
        assert caught.value.reference == "container-unit"
        assert caught.value.exit_code == Exit.REFUSED
        assert "--sglang 0.5.12.post1" in caught.value.hint
        assert any(c.startswith("-v ") for c in caught.value.context)

    def test_an_interpreter_that_is_gone(self, scratch: Scratch, patch: Patch) -> None:
        scratch.unit(start=f"{scratch.root}/opt/rebuilt/bin/python -m sglang.launch_server")
        with pytest.raises(RemoteError) as caught:
            scratch.push(patch)
        assert caught.value.reference == "no-interpreter"

    def test_a_command_that_hides_its_interpreter(self, scratch: Scratch, patch: Patch) -> None:
        scratch.unit(start="/usr/bin/true start")
        with pytest.raises(RemoteError) as caught:
            scratch.push(patch)
        assert caught.value.reference == "unknown-interpreter"
        wish = Wish("ann", python=str(scratch.python))
        assert scratch.push(patch, wish=wish)["changed"]

    def test_a_function_that_is_not_there(self, scratch: Scratch, tmp_path: Path) -> None:
        with pytest.raises(RemoteError) as caught:
            scratch.push(other(tmp_path / "p", "lost", "_fc_x = 1\n", "no_such_function"))
        assert caught.value.reference == "anchor-missing"
        assert not scratch.drop_in.exists()
        assert not (scratch.patches / "state.json").exists()

    def test_a_patch_for_other_versions(self, scratch: Scratch, patch: Patch) -> None:
        install(scratch.packages, "0.5.3")
        (scratch.packages / "sglang-0.5.12.post1.dist-info/METADATA").unlink()
        (scratch.packages / "sglang-0.5.12.post1.dist-info/RECORD").unlink()
        (scratch.packages / "sglang-0.5.12.post1.dist-info/INSTALLER").unlink()
        (scratch.packages / "sglang-0.5.12.post1.dist-info").rmdir()
        with pytest.raises(RefusedError) as caught:
            scratch.push(patch)
        assert caught.value.reference == "version-not-meant"
        assert scratch.push(patch, version="0.5.12")["changed"]

    @pytest.mark.parametrize("name", ["../../etc", "a/b", "A", "", "a" * 64, "x\n[Service]"])
    def test_a_hostile_name_of_a_patch(self, scratch: Scratch, patch: Patch, name: str) -> None:
        whole = {**snippets.render(patch, VERSION).to_json(), "name": name}
        args = {**hosts.place(scratch.link.target), "rung": "overlay", "patch": whole}
        with pytest.raises(RemoteError) as caught:
            scratch.link.call("patching.push", args)
        assert caught.value.reference == "wrong-name"
        assert not scratch.drop_in.exists()

    @pytest.mark.parametrize("service", ["../x", "a/b", ".."])
    def test_a_hostile_name_of_a_service(self, scratch: Scratch, service: str) -> None:
        with pytest.raises(RemoteError) as caught:
            scratch.link.call("patching.status", {"service": service})
        assert caught.value.reference == "wrong-name"

    @pytest.mark.parametrize("unit", ["x.timer", "a/../b.service", "a b.service", "a\n.service"])
    def test_a_hostile_name_of_a_unit(self, scratch: Scratch, unit: str) -> None:
        with pytest.raises(RemoteError) as caught:
            scratch.link.call("patching.resolve", {"service": "main", "unit": unit})
        assert caught.value.reference == "wrong-name"

    def test_a_path_that_a_unit_file_cannot_hold(self, scratch: Scratch, patch: Patch) -> None:
        odd = scratch.root / "opt/a b%n"
        (scratch.root / "opt/sglang").rename(odd)
        scratch.unit(start=f"{scratch.root}/odd -m sglang.launch_server")
        wish = Wish("ann", python=str(odd / ".venv/bin/python"))
        with pytest.raises(RemoteError) as caught:
            scratch.push(patch, wish=wish)
        assert caught.value.reference == "odd-path"
        assert scratch.status() == []

    @pytest.mark.parametrize("value", ["a\nExecStart=/bin/sh", "x\x00y", "\x7f"])
    def test_a_variable_that_would_add_a_directive(
        self, scratch: Scratch, value: str, tmp_path: Path
    ) -> None:
        import dataclasses

        patch = catalog.find("kernel-api-log", None)
        hostile = dataclasses.replace(patch, environment=(("SGLANG_X", value),))
        with pytest.raises(RemoteError) as caught:
            scratch.push(hostile)
        assert caught.value.reference == "wrong-variable"
        assert not scratch.drop_in.exists()


def test_an_environment_patch_is_a_line_of_the_drop_in(scratch: Scratch) -> None:
    scratch.push(catalog.find("kernel-api-log", None), given={"level": "5"})
    assert 'Environment="SGLANG_KERNEL_API_LOGLEVEL=5"' in scratch.drop_in.read_text()
    scratch.revert()
    assert not scratch.drop_in.exists()


def test_an_overlay_is_taken_back_when_systemd_does_not_reload(
    scratch: Scratch, patch: Patch
) -> None:
    (scratch.root / "no-reload").touch()
    with pytest.raises(RemoteError) as caught:
        scratch.push(patch)
    assert caught.value.reference == "daemon-reload-failed"
    assert not scratch.drop_in.exists()
    assert scratch.status() == []


def test_the_second_host_of_an_installation_gets_the_bytes(
    scratch: Scratch, patch: Patch, tmp_path: Path
) -> None:
    ready = Ready(tmp_path / "cache")
    scratch.push(patch, ready=ready)
    first = scratch.look.read_text()
    laid = next(source for source, over in scratch.binds if over == scratch.runner)
    scratch.revert()
    kept = list((tmp_path / "cache").iterdir())
    assert len(kept) == 1
    scratch.push(patch, ready=Ready(tmp_path / "cache"))
    assert scratch.look.read_text() == first
    scratch.revert()
    scratch.runner.write_text("# mine\n" + scratch.runner.read_text())
    scratch.push(patch, ready=ready)
    assert scratch.look.read_text() != first
    assert b"# mine\n" in laid.read_bytes()


def test_deploys_lock_keeps_a_push_out(scratch: Scratch, patch: Patch) -> None:
    lock = scratch.root / "run/fleetctl/lock.d/main"
    lock.mkdir(parents=True)
    (lock / "holder.json").write_text(
        '{"who": "dave", "since": "now", "why": "deploy", "token": "t"}'
    )
    (lock / "beat").touch()
    with pytest.raises(RemoteError) as caught:
        scratch.push(patch)
    assert caught.value.reference == "locked"
    assert "dave" in caught.value.message
    assert scratch.push(patch, wish=Wish("ann", token="t"))["changed"]
    assert lock.is_dir()


def test_what_is_shipped_can_be_found() -> None:
    assert catalog.names(None) == sorted(
        p.name for p in places.packaged("patches").iterdir() if (p / "patch.toml").is_file()
    )
    assert LockedError.exit_code == Exit.LOCKED


class TestDiffs:
    @pytest.fixture
    def fix(self, scratch: Scratch, tmp_path: Path) -> Patch:
        """A diff for the runner, made from the file that is there."""
        old = scratch.runner.read_text()
        new = old.replace("        dst.copy_(src)\n", "        dst.copy_(src)  # slowly\n")
        path = "sglang/srt/model_executor/cuda_graph_runner.py"
        lines = difflib.unified_diff(
            old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{path}", f"b/{path}"
        )
        folder = tmp_path / "fix"
        folder.mkdir()
        (folder / "fix.patch").write_text("".join(lines))
        (folder / "patch.toml").write_text(
            'name = "fix"\nsummary = "x"\nsglang = ">=0.5"\nexpire = "1h"\n[[diff]]\nfile = "fix.patch"\n'
            f'sglang = "=={VERSION}"\nbase = {{ "{path}" = "{sha(scratch.runner)}" }}\n'
        )
        return load(folder)

    def test_a_diff_is_applied_and_taken_back(self, scratch: Scratch, fix: Patch) -> None:
        before = scratch.runner.read_bytes()
        scratch.push(fix, rung=Rung.EDIT)
        assert b"# slowly" in scratch.runner.read_bytes()
        assert b"fleetctl-patch fix v1" in scratch.runner.read_bytes(), "the beacon proves it"
        scratch.revert()
        assert scratch.runner.read_bytes() == before

    def test_a_block_and_a_diff_share_a_file(
        self, scratch: Scratch, fix: Patch, patch: Patch
    ) -> None:
        before = scratch.runner.read_bytes()
        scratch.push(patch, rung=Rung.EDIT)
        scratch.push(fix, rung=Rung.EDIT)
        text = scratch.runner.read_bytes()
        assert b"# slowly" in text
        assert instrument.patches_in(text) == [patch.name, "fix"]
        scratch.revert("fix")
        assert b"# slowly" not in scratch.runner.read_bytes()
        scratch.revert()
        assert scratch.runner.read_bytes() == before

    def test_another_file_is_refused_with_what_is_unlike(
        self, scratch: Scratch, fix: Patch
    ) -> None:
        scratch.runner.write_text(
            scratch.runner.read_text().replace("dst.copy_(src)", "copy(dst, src)")
        )
        with pytest.raises(RemoteError) as caught:
            scratch.push(fix)
        assert caught.value.reference == "context-not-found"
        assert "is not the one that the diff was made from" in caught.value.context[0]
        assert not scratch.drop_in.exists()

    def test_a_diff_of_another_version_has_nothing_to_do(
        self, scratch: Scratch, fix: Patch
    ) -> None:
        with pytest.raises(RefusedError) as caught:
            scratch.push(fix, version="0.5.13")
        assert caught.value.reference == "version-not-meant"


def test_what_another_host_worked_out_is_for_the_same_python_package_and_patch(
    tmp_path: Path,
) -> None:
    (tmp_path / "x.py").write_bytes(b"a = 1\n")
    ready = {"pristine": sha(tmp_path / "x.py"), "work": {"name": "p"}}
    given = {"record": "r", "python": "3.11", "digest": "d", "files": {"x.py": ready}}
    seen = {"record": "r", "python": "3.11"}
    args = {"prepared": given, "patch": {"digest": "d"}}

    def files(new: dict[str, Any], **other: Any) -> list[str]:
        return sorted(patch_plan.prepared(new, args | other, seen, str(tmp_path)))

    path = str(tmp_path / "x.py")
    assert files({"files": {}}) == [path]
    assert files({"files": {path: {}}}) == []
    assert files({"files": {}}, patch={"digest": "e"}) == []
    for key in ("record", "python"):
        assert files({"files": {}}, prepared=given | {key: "other"}) == []
    (tmp_path / "x.py").write_bytes(b"a = 2\n")
    assert files({"files": {}}) == []
