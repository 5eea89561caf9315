from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetctl.config import write
from fleetctl.config.names import profile_names, selectors
from fleetctl.config.site import load_site
from fleetctl.config.ssh_import import aliases, write_inventory
from fleetctl.config.write import save_as, write_text
from fleetctl.errors import ConfigError, FleetError, UsageError
from tests.config.conftest import MakeSite

BASE = """\
model: /m
flags: {tp-size: 8, keep: a, drop: true, j: {"a": 1}}
env: {X: 1, Y: 2}
unit: {restart_sec: 5, timeout_stop: 60}
secrets: {flags: {api-key: {env: K}}}
"""


def test_a_saved_profile_merges_to_what_the_options_made(make_site: MakeSite) -> None:
    root = make_site({"profiles/base.yaml": BASE})
    sets = ["tp-size=4", "new=0.80", "list=[1, 2]", "env.Z=a b", "model=/n", "unit.timeout_stop=9"]
    unsets = ["drop", "env.X", "unit.restart_sec", "api-key"]
    path = save_as(load_site(root), "mine", "base", sets, unsets)
    assert path.read_text() == (
        "name: mine\nextends: base\nmodel: /n\n"
        "flags:\n  tp-size: 4\n  new: 0.80\n  list: [1, 2]\n  drop: null\n  api-key: null\n"
        'env:\n  Z: "a b"\n  X: null\nunit:\n  timeout_stop: 9\n  restart_sec: null\n'
    )
    site = load_site(root)
    saved, wanted = site.profile("mine"), site.profile("base", sets, unsets)
    for part in ("model", "flags", "env", "unit", "secret_flags", "secret_env"):
        assert getattr(saved, part) == getattr(wanted, part)


def test_a_profile_is_not_written_over_unless_forced(make_site: MakeSite) -> None:
    root = make_site({"profiles/base.yaml": BASE, "profiles/mine.yaml": "extends: base\n"})
    site = load_site(root)
    with pytest.raises(UsageError) as caught:
        save_as(site, "mine", "base", [], [])
    assert caught.value.reference == "profile-exists"
    assert save_as(site, "mine", "base", ["x=1"], [], force=True).read_text().endswith("x: 1\n")


@pytest.mark.parametrize(("name", "base"), [("base", "base"), ("base", "mine")])
def test_a_profile_cannot_be_saved_below_itself(make_site: MakeSite, name: str, base: str) -> None:
    root = make_site({"profiles/base.yaml": BASE, "profiles/mine.yaml": "extends: base\n"})
    with pytest.raises(UsageError) as caught:
        save_as(load_site(root), name, base, [], [], force=True)
    assert caught.value.reference == "extends-cycle"


def test_a_name_that_is_no_file_name_is_refused(make_site: MakeSite) -> None:
    root = make_site({"profiles/base.yaml": BASE})
    with pytest.raises(ConfigError) as caught:
        save_as(load_site(root), "../x", "base", [], [])
    assert caught.value.reference == "bad-profile-name"


def test_a_folder_that_cannot_be_written_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError) as caught:
        write_text(tmp_path / "file" / "x.yaml", "a: 1\n")
    assert caught.value.reference == "unwritable"


SSH = """\
Host b300-* !b300-09
  User ops
Host b300-01 b300-02 # two
  HostName 10.0.0.1
host="quoted"
Host = spaced
Host github.com
Include more.conf "~/extra.conf"
Host 'un
Match host x
Host

"""


LEFT_OUT = {
    "b300-*": "a pattern",
    "!b300-09": "a pattern",
    "github.com": "a git forge",
    "'un": "letters, digits, . _ and - only",
}


def test_an_inventory_is_made_of_the_aliases_of_ssh_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".ssh"
    folder.mkdir()
    (folder / "config").write_text(SSH)
    (folder / "more.conf").write_text("Host included\nInclude more.conf\n")
    (tmp_path / "extra.conf").write_text("Host extra\n")
    said = dict.fromkeys(aliases(folder / "config"))
    found = [word for word, why in said if not why]
    assert {word: why for word, why in said if why} == LEFT_OUT
    assert found == ["b300-01", "b300-02", "quoted", "spaced", "included", "extra"]
    files = write_inventory(tmp_path / "s", found, model="/models/m 1", gpus=8, sudo=True)
    site = load_site(tmp_path / "s")
    assert [p.name for p in files] == ["hosts.yaml", "first.yaml"]
    assert list(site.hosts) == found
    assert site.hosts["extra"].address == "extra"
    assert (site.hosts["extra"].become, site.hosts["extra"].gpus) == ("sudo", 8)
    assert site.profile("first").flags == {"tp-size": "8"}
    assert site.profile("first").model == "/models/m 1"


def test_a_second_inventory_changes_nothing(tmp_path: Path) -> None:
    write_inventory(tmp_path, ["a"])
    before = (tmp_path / "hosts.yaml").read_text()
    with pytest.raises(UsageError) as caught:
        write_inventory(tmp_path, ["b"])
    assert caught.value.reference == "site-exists"
    assert (tmp_path / "hosts.yaml").read_text() == before
    assert load_site(tmp_path).profile_names() == []


@pytest.mark.parametrize(("hosts", "reference"), [([], "no-host"), (["a b"], "bad-host-name")])
def test_names_that_are_no_hosts_are_refused(
    tmp_path: Path, hosts: list[str], reference: str
) -> None:
    with pytest.raises(FleetError) as caught:
        write_inventory(tmp_path, hosts)
    assert caught.value.reference == reference
    assert not (tmp_path / "hosts.yaml").exists()


def test_no_ssh_config_is_a_fault_with_a_way_on(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        list(aliases(tmp_path / "none"))
    assert "fleetctl init HOST" in caught.value.hint


def test_names_for_completion_need_no_valid_inventory(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = (
        "hosts:\n  a-[1-2]: {groups: [g], services: {main: {}, x: {}}, bogus: 1}\n"
        "  b: {groups: one}\n  c:\n  d-[z]: {}\n"
    )
    root = make_site({"hosts.yaml": hosts, "profiles/p.yaml": "", "profiles/q.yml": ""})
    monkeypatch.setenv("FLEETCTL_SITE", str(root))
    assert profile_names() == ["p", "q"]
    assert selectors() == [
        "a-1", "a-2", "a-1/main", "a-1/x", "a-2/main", "a-2/x", "b", "c", "@g", "@one",
    ]  # fmt: skip
    (root / "hosts.yaml").write_text("hosts: [")
    assert selectors() == []
    monkeypatch.setenv("FLEETCTL_SITE", str(root / "nowhere"))
    assert selectors() == profile_names() == []


def test_what_is_there_and_no_file_is_written_to_as_it_is(tmp_path: Path) -> None:
    assert write.write_text_as_is(Path(os.devnull), "x") == Path(os.devnull)
    assert not Path(os.devnull).is_file()
    (tmp_path / "file").write_text("old")
    write.write_bytes(tmp_path / "file", b"\xff")
    assert (tmp_path / "file").read_bytes() == b"\xff"
    for place in (tmp_path / "file/below", tmp_path, Path("/proc/no-such/x")):
        with pytest.raises(ConfigError, match=r"director|exists"):
            write.write_bytes(place, b"x")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
