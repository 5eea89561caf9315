"""Pieces of the lab that need neither root nor network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fleetctl.errors import FleetError, UsageError
from fleetctl.lab import faults, layers, needs, pip, shell, site, state, status
from fleetctl.lab.guest import stubs, tinymodel
from fleetctl.lab.layers import Layer
from fleetctl.lab.spec import parse_hosts
from fleetctl.lab.state import Lab, LabHost, Process


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("FLEETCTL_LAB_STATE", str(tmp_path))
    return Lab("mine", 7).with_host(
        LabHost("lab-01", "replay", "0.5.12.post1", (), 0, "10.77.7.11", "fl7-0")
    )


def test_a_lab_is_read_as_it_was_written(lab: Lab) -> None:
    kept = lab.with_host(
        LabHost("b", "bare", "", ("x",), 1, "10.77.7.12", "fl7-1", Process(os.getpid(), 3))
    )
    kept.save()
    assert state.load("mine") == kept
    assert state.load_all() == [kept]


def test_a_lab_that_is_not_there_says_which_are(lab: Lab) -> None:
    lab.save()
    with pytest.raises(UsageError) as caught:
        state.require("other")
    assert "mine" in caught.value.hint
    with pytest.raises(UsageError, match="no host c"):
        lab.host("c")


def test_a_damaged_state_file_counts_as_no_lab(lab: Lab) -> None:
    lab.save()
    (lab.root / "lab.json").write_text("{")
    assert state.load("mine") is None


def test_a_process_is_itself_and_no_later_one_of_the_same_number() -> None:
    me = Process.of(os.getpid())
    assert me
    assert me.alive()
    assert not Process(me.pid, me.start + 1).alive()
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert Process.of(child.pid) is None


def test_status_describes_a_host_that_is_off(lab: Lab) -> None:
    found = status.describe(lab)
    assert found["network"] == "10.77.7.0/24"
    assert found["hosts"][0]["state"] == "off"
    text = (Path(__file__).parents[2] / "docs/json.md").read_text()
    row = next(line for line in text.splitlines() if f"`{found['schema']}`" in line)
    assert [key for key in found if f"`{key}" not in row and key != "schema"] == []
    assert [key for key in found["hosts"][0] if not re.search(rf"[{{ ]{key}\b", row)] == []


def test_the_site_of_a_lab_has_its_addresses_keys_and_profiles(lab: Lab) -> None:
    folder = site.write(lab)
    inventory = json.loads((folder / "hosts.yaml").read_text())
    assert inventory["hosts"]["lab-01"] == {"address": "10.77.7.11", "groups": ["replay"]}
    assert inventory["defaults"]["key"] == str(lab.key)
    assert (folder / "profiles/ep8-nvls.yaml").is_file()


def test_packet_rules_have_a_statement_on_each_line() -> None:
    text = faults.rules({"input": "tcp dport 22 drop", "output": "drop"})
    assert (
        "chain input {\ntype filter hook input priority 0\npolicy accept\ntcp dport 22 drop\n}"
        in text
    )
    assert text.count("chain") == 2


def test_a_program_that_fails_says_what_it_said() -> None:
    with pytest.raises(FleetError) as caught:
        shell.run(["sh", "-c", "echo why >&2; exit 3"], doing="trying")
    assert (str(caught.value), caught.value.context) == ("trying: exit 3", ("why",))
    with pytest.raises(FleetError, match="no end after"):
        shell.run(["sleep", "5"], timeout=0.05)
    with pytest.raises(FleetError, match="No such file"):
        shell.run(["/nonexistent/program"])


@pytest.mark.parametrize(
    ("platform", "uid", "said"), [("darwin", 0, "needs Linux"), ("linux", 1000, "needs root")]
)
def test_why_the_lab_cannot_run_is_said(
    platform: str, uid: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert said in needs.why_not()
    with pytest.raises(FleetError) as caught:
        needs.require()
    assert caught.value.reference == "lab-not-possible"


def test_missing_programs_are_named_as_debian_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert "mmdebstrap" in needs.missing_packages()


def test_the_tiny_model_fills_its_vocabulary() -> None:
    model = tinymodel.tokenizer()["model"]
    assert sorted(model["vocab"].values()) == list(range(tinymodel.VOCABULARY))
    assert all(merge.replace(" ", "") in model["vocab"] for merge in model["merges"])


def test_a_layer_is_built_once_and_a_failed_one_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: list[str] = []

    def broken(root: Path, _: layers.Say) -> None:
        (root / "half").write_text("")
        raise FleetError("x", "no")

    def good(root: Path, _: layers.Say) -> None:
        (root / "a").mkdir()

    with pytest.raises(FleetError):
        Layer("l", "recipe", "1 MB", broken).ensure(said.append)
    done = Layer("l", "recipe", "1 MB", good).ensure(said.append)
    assert [p.name for p in done.iterdir()] == ["a"]
    assert Layer("l", "recipe", "again", broken).ensure(said.append) == done
    assert Layer("l", "other", "", good).ensure(said.append) != done
    assert said == ["building: 1 MB", "building: 1 MB"]


def test_what_would_be_fetched_is_known_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    hosts = parse_hosts(["a=sglang", "b=sglang", "c=replay", "d"])
    base, needs_of_sglang, wheel = layers.missing(hosts)
    assert "Debian" in base
    assert "torch" in needs_of_sglang
    assert "SGLang 0.5.12.post1" in wheel
    layers.deps().folder.mkdir(parents=True)
    assert layers.missing(hosts) == [base, wheel]


def test_the_layer_of_a_replay_host_is_a_package_named_sglang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    packages = layers.replay("0.5.15").ensure(print) / layers.SITE_PACKAGES
    code = "import importlib.metadata as m, sglang; print(sglang.__version__, m.version('sglang'))"
    argv = [
        sys.executable,
        "-S",
        "-c",
        f"import sys; sys.path.insert(0, {str(packages)!r}); {code}",
    ]
    assert (
        subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
        == ["0.5.15"] * 2
    )


def test_unused_layers_are_pruned_by_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept, old = layers.model().ensure(print), layers.replay("0.5.10").ensure(print)
    os.utime(old, (0, 0))
    assert layers.prune(days=7) == [old.name]
    assert kept.is_dir()
    assert not old.exists()


def test_torch_comes_from_pytorch_s_index_where_the_usual_one_has_the_cuda_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []
    metadata = {"requires_dist": ["nvidia-cublas; platform_system == 'Linux'"]}

    def fake(arguments: list[str]) -> str:
        calls.append(arguments)
        return json.dumps({"install": [{"metadata": metadata}]})

    monkeypatch.setattr(pip, "_pip", fake)
    pip.install_torch(tmp_path, "x==1\ntorch==2.13.0\n", lambda _: None)
    assert pip.TORCH_CPU_INDEX in calls[-1]
    metadata["requires_dist"] = ["sympy"]
    pip.install_torch(tmp_path, "torch==2.13.0\n", lambda _: None)
    assert pip.TORCH_CPU_INDEX not in calls[-1]


def test_stubs_import_any_name_and_do_nothing() -> None:
    finder = stubs.Finder(("fleetctl_test_stub",))
    spec = finder.find_spec("fleetctl_test_stub.ops", None)
    assert spec is not None
    assert finder.find_spec("json", None) is None
    module = finder.create_module(spec)
    finder.exec_module(module)
    assert module.Kernel().run(1)[0] is not None
    assert module.jit(len) is len
    with pytest.raises(RuntimeError, match="0 active drivers"):
        _ = module.driver.active


@pytest.mark.parametrize(
    ("name", "order", "said"),
    [
        ("disk-full", faults.Order(path="/etc"), "no space left in /etc, but for 0 bytes"),
        ("refuse", faults.Order(port=30000), "connection refused on port 30000"),
        ("slow", faults.Order(), "the link has 64kbit"),
        ("loss", faults.Order(percent=9), "9 % of the packets are lost each way"),
        ("cable-in", faults.Order(), "the cable is back"),
    ],
)
def test_a_fault_that_was_made_is_told_with_what_it_was_made_with(
    name: str, order: faults.Order, said: str
) -> None:
    assert faults.FAULTS[name].done(order) == said


def test_no_fault_that_was_made_is_told_in_the_words_of_the_help() -> None:
    told = [fault.done(faults.Order(path="/x")) for fault in faults.FAULTS.values()]
    assert [text for text in told if "--" in text] == []
