from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.cli.app import run
from fleetctl.config import places
from fleetctl.config.site import load_site
from fleetctl.errors import ConfigError


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("FLEETCTL_SITE", "FLEETCTL_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def site(folder: Path, *names: str) -> None:
    for name in names:
        (folder / "inventories" / name).mkdir(parents=True)
        (folder / "inventories" / name / "hosts.yaml").write_text("hosts: {}\n")


def test_without_any_site_the_packaged_example_is_it(elsewhere: Path) -> None:
    assert places.site_folder() == places.packaged("inventories") / "example"
    assert load_site().profile_names() == ["ep8", "ep8-nvls", "tp8", "tp8-ddtree"]


def test_the_packaged_example_is_said_to_be_one_and_not_written_to(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["hosts", "list"]) == 0
    assert "this is the packaged example" in capsys.readouterr().err
    assert run(["profiles", "save-as", "mine", "-p", "tp8", "--set", "tp-size=4"]) == 2
    assert "error[no-site]" in capsys.readouterr().err
    assert not (places.packaged("inventories") / "example/profiles/mine.yaml").exists()
    site(elsewhere, "prod")
    assert run(["hosts", "list"]) == 0
    assert "example" not in capsys.readouterr().err


def test_the_nearest_parent_with_inventories_is_the_site(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site(elsewhere, "prod")
    (elsewhere / "a" / "inventories" / "no-site").mkdir(parents=True)
    (elsewhere / "a" / "b").mkdir()
    monkeypatch.chdir(elsewhere / "a" / "b")
    assert places.site_folder() == elsewhere / "inventories" / "prod"


def test_of_several_sites_the_example_is_taken(elsewhere: Path) -> None:
    site(elsewhere, "prod", "example", "zoo")
    assert places.site_folder() == elsewhere / "inventories" / "example"


def test_several_sites_without_an_example_have_to_be_chosen(elsewhere: Path) -> None:
    site(elsewhere, "prod", "zoo")
    with pytest.raises(ConfigError) as caught:
        places.site_folder(elsewhere)
    assert caught.value.reference == "no-site"
    assert places.site_folder(elsewhere / "inventories" / "zoo").name == "zoo"


def test_the_variable_names_the_site(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site(elsewhere, "prod", "zoo")
    monkeypatch.setenv("FLEETCTL_SITE", "inventories/zoo")
    assert places.site_folder() == elsewhere / "inventories" / "zoo"
    monkeypatch.setenv("FLEETCTL_SITE", "nowhere")
    with pytest.raises(ConfigError):
        places.site_folder()


def test_state_and_cache_follow_xdg_and_an_own_variable(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert places.home() == elsewhere / ".local/state/fleetctl"
    assert places.cache() == elsewhere / ".cache/fleetctl"
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert places.home() == Path("/state/fleetctl")
    assert places.cache() == elsewhere / ".cache/fleetctl"
    monkeypatch.setenv("FLEETCTL_HOME", "~/fc")
    assert places.home() == elsewhere / "fc"


def test_a_wheel_keeps_its_data_inside_the_package(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = elsewhere / "fleetctl" / "_data" / "templates"
    inside.mkdir(parents=True)
    monkeypatch.setattr(places, "files", lambda _: elsewhere / "fleetctl")
    assert places.packaged("templates") == inside
    assert places.packaged("patches") == elsewhere / "patches"
