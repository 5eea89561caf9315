"""The static reader over small trees in each of SGLang's layouts, and what it must not guess."""

from __future__ import annotations

import ast
import zipfile
from pathlib import Path
from typing import Any

import pytest

from fleetctl.engines.sglang import schema
from fleetctl.engines.sglang.reader import read_json
from fleetctl.engines.sglang.schema import Schema, read
from fleetctl.errors import ConfigError
from fleetctl.remote import sglang_tree

REMOTE = Path(__file__).parents[2] / "fleetctl" / "remote"

CALLS = '''
import argparse
import dataclasses
from sglang.srt.parts import KINDS, Parser, Mode, make_choices, Deprecated, Gone

BACKENDS = ["a", "b"] + KINDS
LIMIT = 2**3

@dataclasses.dataclass
class ServerArgs:
    model_path: str
    tp_size: int = 1
    kinds: list = dataclasses.field(default_factory=lambda: list(KINDS))
    place: str = BACKENDS[0]
    clever: str = compute()

    def unrelated(self):
        text = """
    parser.add_argument("--not-a-flag")
"""
        return text

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser):
        local = list(Parser.Table.keys())
        parser.add_argument("--model-path", "--model", type=str, required=True, help="Where it is. More words.")
        parser.add_argument("--tp-size", "--tensor-parallel-size", type=int, default=ServerArgs.tp_size)
        parser.add_argument("--backend", choices=BACKENDS, default=ServerArgs.place)
        parser.add_argument("--parser", choices=["auto"] + local)
        parser.add_argument("--mode", choices=[m.name.lower() for m in Mode])
        parser.add_argument("--made", choices=make_choices())
        parser.add_argument("--kinds", nargs="+", default=ServerArgs.kinds)
        parser.add_argument("--limit", type=int, default=LIMIT)
        parser.add_argument("--clever", default=ServerArgs.clever, choices=ask_the_gpu())
        parser.add_argument("--ok", action=argparse.BooleanOptionalAction, default=None)
        parser.add_argument("--old", action=Deprecated, new_flag="--backend", help="Deprecated.")
        parser.add_argument("--gone", action=Gone, help="NOTE: --gone is deprecated. Please use --backend instead.")
        parser.add_argument("--hidden", help=argparse.SUPPRESS, default=argparse.SUPPRESS)
        if FORK:
            parser.add_argument("--fork-only", type=float, default=-0.5)
        add_tree_args(parser)

def add_tree_args(parser):
    parser.add_argument("--tree-budget", type=int, default=64)

def add_other(other):
    other.add_argument("--not-ours")
'''
PARTS = '''
import argparse
from enum import Enum
KINDS = ["k1", "k2"]

class Parser:
    Table = {"x": Detector, "y": Detector}

class Mode(Enum):
    NONE = 0
    ALL = 1

def make_choices():
    """Ends in a return."""
    from sglang.srt.parts import KINDS
    return sorted(KINDS)

class Deprecated(argparse.Action):
    def __init__(self, option_strings, dest, nargs=0, new_flag=None, **kwargs):
        super().__init__(option_strings, dest, nargs=nargs, **kwargs)
    def __call__(self, parser, namespace, values, option_string=None):
        print("deprecated")

class Gone(argparse.Action):
    def __init__(self, option_strings, dest, nargs=0, **kwargs):
        super().__init__(option_strings, dest, nargs=nargs, **kwargs)
    def __call__(self, parser, namespace, values, option_string=None):
        raise ValueError(self.help)
'''
FIELDS = """
from typing import Literal, Optional, List
from sglang.srt.arg_groups.arg_utils import A, Arg, add_cli_args_from_dataclass
CHOICES = ["c1", "c2"]

class ServerArgs:
    model_path: A[str, Arg(help="Where it is.", aliases=["--model"])]
    tp_size: A[int, "How many GPUs."] = 1
    kind: A[Optional[Literal["x", "y"]], Arg(help="Which.")] = None
    sizes: A[Optional[List[int]], Arg(help="Sizes.")] = None
    table: A[Optional[list], Arg(help="JSON.", type_parser=json_list_type)] = None
    pick: A[str, Arg(help="One.", choices=CHOICES)] = "c1"
    on: A[bool, "A switch."] = False
    maybe: A[Optional[bool], "A switch too."] = None
    both: A[bool, Arg(help="Yes or no.", action=argparse.BooleanOptionalAction)] = True
    internal: A[int, Arg(help="None of yours.", no_cli=True)] = 0
    plain: int = 3
    twice: A[int, "First."] = 1
    twice: A[float, "Second."] = 2.0
    ratio: "A[float, 'in quotes']" = 1.0

    @staticmethod
    def add_cli_args(parser):
        add_cli_args_from_dataclass(parser, ServerArgs)
        parser.add_argument("--late", type=int, default=ServerArgs.tp_size)
"""
SPACES = {
    "srt/server_args.py": '''
from sglang.srt.arg_groups.fields.one import One
from sglang.srt.arg_groups.fields.two import Two
class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        add_cli_args_from_dataclass(parser, ServerArgs)
        parser.add_argument("--late", default=_declared_default("b"))
_INPUT_NAMESPACES = [Two, One]
''',
    "srt/arg_groups/fields/one.py": 'class One(msgspec.Struct):\n    a: A[int, "A."] = 1\n    b: A[str, "B."] = "x"\n',
    "srt/arg_groups/fields/two.py": 'class Two(msgspec.Struct):\n    c: A[int, "C."] = 3\n    d: A[int, "D."] = 4\n',
    "srt/arg_groups/fields/not_used.py": 'class Other(msgspec.Struct):\n    z: A[int, "Z."] = 3\n',
    "srt/arg_groups/field_order.py": 'POSITIONAL_FIELD_ORDER = ("a", "c")\n',
}  # fmt: skip


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / "sglang" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def flags(folder: Path, files: dict[str, str]) -> dict[str, dict[str, Any]]:
    body = read_json(tree(folder, files))
    return {f["names"][0]: f for f in body["flags"]}


@pytest.fixture
def calls(tmp_path: Path) -> dict[str, dict[str, Any]]:
    return flags(tmp_path, {"srt/server_args.py": CALLS, "srt/parts.py": PARTS})


def test_calls_of_add_argument(calls: dict[str, dict[str, Any]]) -> None:
    assert list(calls) == [
        "--model-path", "--tp-size", "--backend", "--parser", "--mode", "--made", "--kinds", "--limit", "--clever",
        "--ok", "--old", "--gone", "--hidden", "--fork-only", "--tree-budget",
    ]  # fmt: skip
    model = calls["--model-path"]
    assert (model["names"], model["dest"], model["required"]) == (
        ["--model-path", "--model"],
        "model_path",
        True,
    )
    assert model["help"] == "Where it is."
    assert (calls["--tp-size"]["dest"], calls["--tp-size"]["type"]) == ("tp_size", "int")


def test_values_are_followed_through_names_imports_enums_and_functions(calls: dict[str, dict[str, Any]]) -> None:  # fmt: skip
    assert calls["--backend"]["choices"] == ["a", "b", "k1", "k2"]
    assert calls["--backend"]["default"] == "a"
    assert calls["--parser"]["choices"] == ["auto", "x", "y"]
    assert calls["--mode"]["choices"] == ["none", "all"]
    assert calls["--made"]["choices"] == ["k1", "k2"]
    assert calls["--kinds"]["default"] == ["k1", "k2"]
    assert calls["--limit"]["default"] == 8
    assert calls["--fork-only"]["default"] == -0.5


def test_what_only_the_program_knows_is_named_not_guessed(calls: dict[str, dict[str, Any]]) -> None:
    clever = calls["--clever"]
    assert clever["unresolved"] == {"choices": "ask_the_gpu()", "default": "ServerArgs.clever"}
    assert "choices" not in clever
    assert "default" not in clever


def test_actions_of_sglang_s_own(calls: dict[str, dict[str, Any]]) -> None:
    assert calls["--ok"]["names"] == ["--ok", "--no-ok"]
    old, gone = calls["--old"], calls["--gone"]
    assert (old["nargs"], old["deprecated"], old["replacement"]) == (0, True, "--backend")
    assert "fatal" not in old
    assert (gone["replacement"], gone["fatal"][:12]) == ("--backend", "NOTE: --gone")
    assert (calls["--hidden"]["hidden"], calls["--hidden"]["default"]) == (True, "==SUPPRESS==")


def test_where_a_flag_is_defined_is_a_line_of_that_file(calls: dict[str, dict[str, Any]]) -> None:
    for name, flag in calls.items():
        assert flag["file"] == "srt/server_args.py"
        assert name in CALLS.split("\n")[flag["line"] - 1]


def test_annotated_fields(tmp_path: Path) -> None:
    found = flags(tmp_path, {"srt/server_args.py": FIELDS})
    assert list(found) == [
        "--model-path", "--tp-size", "--kind", "--sizes", "--table", "--pick", "--on", "--maybe", "--both", "--twice", "--late",
    ]  # fmt: skip
    assert found["--model-path"]["required"] is True
    assert found["--kind"]["choices"] == ["x", "y"]
    assert (found["--sizes"]["type"], found["--sizes"]["nargs"]) == ("int", "+")
    assert (found["--table"]["type"], found["--table"].get("nargs")) == ("json_list_type", None)
    assert (found["--on"]["nargs"], found["--on"]["default"]) == (0, False)
    assert found["--maybe"]["nargs"] == 0
    assert found["--both"]["names"] == ["--both", "--no-both"]
    assert (found["--twice"]["type"], found["--twice"]["default"]) == ("float", 2.0)
    assert found["--late"]["default"] == 1


def test_fields_in_namespaces_come_in_the_order_that_sglang_registers_them(tmp_path: Path) -> None:
    found = flags(tmp_path, SPACES)
    assert list(found) == ["--a", "--c", "--d", "--b", "--late"]
    assert found["--late"]["default"] == "x"
    assert found["--a"]["file"] == "srt/arg_groups/fields/one.py"


@pytest.mark.parametrize("inside", ["", "python/", "lib/python3.12/site-packages/"])
def test_a_package_is_found_in_site_packages_a_checkout_and_a_venv(
    tmp_path: Path, inside: str
) -> None:
    tree(tmp_path / inside, {"srt/server_args.py": FIELDS, "version.py": '__version__ = "0.6.0"'})
    assert read(tmp_path).version == "0.6.0"
    assert read(tmp_path / inside / "sglang").digest == read(tmp_path).digest


def test_a_wheel_reads_as_its_tree(tmp_path: Path) -> None:
    files = {"srt/server_args.py": CALLS, "srt/parts.py": PARTS, "srt/environ.py": ENVIRON}
    folder = tree(tmp_path / "tree", files)
    wheel = tmp_path / "sglang-9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"sglang/{name}", text)
        archive.writestr("sglang-9.9.dist-info/METADATA", "Name: sglang\nVersion: 9.9\n")
    one, other = read(wheel), read(folder)
    assert (one.all, one.env, one.digest) == (other.all, other.env, other.digest)
    assert (one.version, other.version) == ("9.9", None)


ENVIRON = """
class Envs:
    SGLANG_A = EnvBool(False)
    SGLANG_B = EnvStrWithAlias("x", deprecated_name="SGLANG_OLD_B")
    SGLANG_C = EnvInt(how_many())
    not_one = 3

def _print_deprecated_env(old_name, new_name=None):
    pass
_print_deprecated_env("SGLANG_OLD_A", "SGLANG_A")
_warn_deprecated_env_to_cli_flag(
    "SGLANG_FLAGGED",
    "Please use '--flag' instead.",
)
"""


def test_environment_variables(tmp_path: Path) -> None:
    used = "x = os.environ.get('SGLANG_ELSEWHERE')\ny = f'SGLANG_PREFIX_{n}'\n"
    files = {"srt/server_args.py": FIELDS, "srt/environ.py": ENVIRON, "srt/x.py": used}
    env = read_json(tree(tmp_path, files))["env"]
    assert env["declared"]["SGLANG_A"] == {"kind": "bool", "default": False}
    assert env["declared"]["SGLANG_C"] == {"kind": "int", "unresolved": "how_many()"}
    assert env["deprecated"] == {"SGLANG_OLD_A": "SGLANG_A", "SGLANG_OLD_B": "SGLANG_B", "SGLANG_FLAGGED": "--flag"}  # fmt: skip
    assert env["used"] == ["SGLANG_ELSEWHERE"]


def test_the_hash_changes_with_what_flags_come_from_and_with_nothing_else(tmp_path: Path) -> None:
    folder = tree(tmp_path, SPACES | {"srt/other.py": "1"})
    found = sglang_tree.find(str(folder))
    assert found is not None
    before = sglang_tree.digest(found)
    (folder / "sglang" / "srt" / "other.py").write_text("2")
    assert sglang_tree.digest(found) == before
    (folder / "sglang" / "srt" / "arg_groups" / "fields" / "one.py").write_text("")
    assert sglang_tree.digest(found) != before


@pytest.mark.parametrize(("files", "reference"), [
    ({}, "no-sglang-tree"),
    ({"srt/server_args.py": "x = 1"}, "unknown-flag-layout"),
    ({"srt/server_args.py": "def ("}, "unknown-flag-layout"),
])  # fmt: skip
def test_what_cannot_be_read_is_a_fault(
    tmp_path: Path, files: dict[str, str], reference: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tree(tmp_path, files))
    assert caught.value.reference == reference


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": "other/1"}', '{"schema": "fleetctl.flags/1"}']
)
def test_a_file_that_is_no_schema_is_a_fault(tmp_path: Path, text: str) -> None:
    path = tmp_path / "fork.json"
    path.write_text(text)
    with pytest.raises(ConfigError):
        read(path)


@pytest.mark.parametrize("name", ["static_python", "static_values", "flag_reader", "env_reader", "sglang_tree",
                                  "flags", "resolver", "doctor", "look_system", "look_gpu", "look_sglang", "adopt",
                                  "gpu_probe", "model_folder"])  # fmt: skip
def test_what_runs_on_a_host_is_python_3_8(name: str) -> None:
    ast.parse((REMOTE / f"{name}.py").read_text(), feature_version=(3, 8))


def test_the_shipped_schemas_are_whole_small_and_in_order() -> None:
    shipped = schema.shipped()
    assert (shipped[0], shipped[-1], len(shipped)) == ("0.5.1", "0.5.23", 42)
    folder = Path(schema.__file__).parent / "schemas"
    assert sum(p.stat().st_size for p in folder.glob("*.gz")) < 1_500_000
    counts = [len(schema.load(v).all) for v in shipped]
    assert counts[0] == 199
    assert counts[-1] == 531
    for version in shipped:
        found = schema.load(version)
        assert found.version == version
        assert Schema.from_json(found.to_json(), origin="shipped") == found


def test_every_release_knows_the_flags_that_all_have() -> None:
    for version in schema.shipped():
        found = schema.load(version).flags
        for name in (
            "--model-path",
            "--tp-size",
            "--ep-size",
            "--mem-fraction-static",
            "--enable-nccl-nvls",
        ):
            assert name in found, (version, name)


NEAREST = {
    "--enable-nvls": "--enable-nccl-nvls",
    "--tp_size": "--tp-size",
    "--mem-fraction": "--mem-fraction-static",
    "--cuda-graph-maxbs": "--cuda-graph-max-bs",
    "--enable-dp-attn": "--enable-dp-attention",
    "--speculative-algo": "--speculative-algorithm",
}


@pytest.mark.parametrize("name", NEAREST)
def test_the_nearest_name(name: str) -> None:
    assert schema.load("0.5.12.post1").nearest(name)[0] == NEAREST[name]
