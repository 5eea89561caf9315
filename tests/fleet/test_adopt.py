"""Units in the shapes that people write: what they become, and that fleetctl would start the same.

A case is a file: the host's files, the running words where it runs, and what is expected (``=== expect``).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.config.lintable import profile as read_profile
from fleetctl.engines.sglang import schema
from fleetctl.errors import ConfigError
from fleetctl.fleet.adopt import compare, result
from fleetctl.model.fleet import Host
from fleetctl.remote import adopt as remote
from fleetctl.render import shell_launch, unit_file
from tests.fleet.adopting import answer_of

CASES = sorted((Path(__file__).parent / "adopt_cases").glob("*.txt"))
HOST = Host("gpu-01", "10.0.0.1")
SCHEMA = schema.load("0.5.12.post1")


def told(path: Path) -> str:
    """Return what adopt says of a case, as text."""
    answer = answer_of(path.read_text())
    try:
        found = result(answer, SCHEMA, HOST, name="adopted", service="main")
    except ConfigError as error:
        return f"refused: {error.reference}: {error.message}\n"
    lines = [found.profile_text + found.service_text.rstrip()]
    lines += [f"note: {n}" for n in found.adopted.notes]
    lines += [f"unit differs: {d}" for d in found.adopted.differs]
    lines += [f"differs: {d}" for d in found.differences]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_case(path: Path) -> None:
    _, _, wanted = path.read_text().partition("=== expect\n")
    assert told(path) == wanted


@pytest.mark.parametrize("path", [c for c in CASES if "refused:" not in c.read_text()], ids=lambda p: p.stem)  # fmt: skip
def test_the_profile_reads_back_and_renders_the_same_words(path: Path, tmp_path: Path) -> None:
    found = result(answer_of(path.read_text()), SCHEMA, HOST, name="adopted", service="main")
    assert found.differences == ()
    file = tmp_path / "adopted.yaml"
    file.write_text(found.profile_text)
    again = read_profile(str(file))
    assert again.model == found.adopted.profile.model
    assert again.env == dict(found.adopted.profile.env)
    assert again.secret_flags == found.adopted.profile.secret_flags
    assert compare(found.adopted, SCHEMA, HOST) == ()


def test_secrets_do_not_leave_the_host() -> None:
    for line in ("HF_TOKEN=hf_sentinel4711", 'Environment="API_KEY=sentinel4711"', "export MY_SECRET=sentinel4711",
                 "ExecStart=/p -m sglang.launch_server --api-key sentinel4711"):  # fmt: skip
        assert "sentinel4711" not in remote._line(line), line
    for text in ("--api-key \\\n  sentinel4711 \\\n --tp 8", "--api-key 'sentinel 4711'", '"--api-key" "sent 4711"',
                 "bash -c 'x --api-key=sentinel4711'"):  # fmt: skip
        assert "4711" not in remote._text(text), text
    assert remote._text("--api-key ${KEY} \\\n--tp 8") == "--api-key ${KEY} \\\n--tp 8"
    words = ["python", "--api-key", "sentinel4711", "--admin-api-key=sentinel4711", "--tp", "8"]
    assert remote._masked(words) == [
        "python", "--api-key", remote.MASK, f"--admin-api-key={remote.MASK}", "--tp", "8",
    ]  # fmt: skip


WORDS = {
    'a "b c" d': ["a", "b c", "d"],
    "a 'b \"c' d": ["a", 'b "c', "d"],
    r"a\x20b c\sd \"e\"": ["a b", "c d", '"e"'],
    r'--json "{\"a\": 1}"': ["--json", '{"a": 1}'],
    "  ": [],
    '""': [""],
    'pre"mid dle"post': ["premid dlepost"],
}


@pytest.mark.parametrize("text", WORDS)
def test_words_of_systemd(text: str) -> None:
    assert unit_file.words(text) == WORDS[text]


def test_variables_of_a_command_line() -> None:
    env = {"ONE": "a b", "TWO": "x"}
    assert unit_file.command("@/p $ONE ${ONE} -${TWO}- $$HOME %% ${GONE}", "u.service", env) == [
        "/p", "a", "b", "a b", "-x-", "$HOME", "%", "",
    ]  # fmt: skip


def test_a_drop_in_resets_a_list_by_an_empty_value() -> None:
    read = unit_file.read(
        ["[Service]\nExecStart=/a\nNice=1", "[Service]\nExecStart=\nExecStart=/b\nNice="]
    )
    assert read.all("ExecStart") == ["/b"]
    assert read.last("Nice") is None


SHELL = {
    "exec python -m sglang.launch_server --tp 2 >> /log 2>&1": [
        "python",
        "-m",
        "sglang.launch_server",
        "--tp",
        "2",
    ],
    "A=1; cd /x && sglang serve --tp $A": ["sglang", "serve", "--tp", "1"],
    "TP=${TP:-4}\nsglang serve --tp $TP": ["sglang", "serve", "--tp", "4"],
    'A=(--tp 2 "--name" "a b")\nsglang serve "${A[@]}"': [
        "sglang",
        "serve",
        "--tp",
        "2",
        "--name",
        "a b",
    ],
    "nice -n 5 env X=1 sglang serve": ["sglang", "serve"],
    "sglang serve --api-key <redacted:value> --tp 2": [
        "sglang",
        "serve",
        "--api-key",
        "<redacted:value>",
        "--tp",
        "2",
    ],
    "ls | wc": [],
}


@pytest.mark.parametrize("text", SHELL)
def test_the_launch_in_a_shell_text(text: str) -> None:
    assert shell_launch.from_shell(text, {}).words == SHELL[text]


def test_what_a_shell_computes_is_named() -> None:
    found = shell_launch.from_shell("sglang serve --port $(next-port) --tp $N", {})
    assert any("computed by the shell" in n for n in found.notes)
    assert any("$N is not set" in n for n in found.notes)


@pytest.mark.parametrize(("text", "span"), [("90", 90), ("5min", 300), ("1h 30s", 3630), ("infinity", None), ("500ms", 0), ("soon", None)])  # fmt: skip
def test_time_spans(text: str, span: int | None) -> None:
    assert unit_file.seconds(text) == span
