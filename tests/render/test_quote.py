"""Whatever a value is, systemd gives it back as one word, and never takes it for a directive."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleetctl.errors import ConfigError
from fleetctl.render.quote import argument, command, is_plain_path, one_line, variable
from tests.render import systemd_rules as rules

ONE_LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0"))
NASTY = st.text("%$\"'\\;# \t=[]{}-@:|`x41né\x1b\x7f")
VALUES = st.one_of(ONE_LINE, NASTY)
VARIABLES = VALUES.filter(lambda v: all((c >= " " or c == "\t") and c != "\x7f" for c in v))
needs_systemd = pytest.mark.skipif(
    rules.library() is None, reason="libsystemd-shared is not installed"
)


@given(st.lists(VALUES, max_size=6))
@example(["%n", "$HOME", "${X}", "$$", "%%", ";", "", " ", "\\", '"', "'", "# x", "[Service]"])
def test_the_model_of_systemd_reads_back_every_argument(values: list[str]) -> None:
    line = " ".join(["/bin/x", *(argument(v, "v") for v in values)])
    assert rules.words(line) == ["/bin/x", *values]


@needs_systemd
@given(st.lists(VALUES, max_size=6))
@example(["%n", "$HOME", "${X}", "$$", "%%", ";", "", " ", "\\", '"', "'", "# x", "[Service]"])
def test_systemd_itself_reads_back_every_argument(values: list[str]) -> None:
    line = " ".join(["/bin/x", *(argument(v, "v") for v in values)])
    specifiers_gone = [w.replace("%%", "%") for w in rules.real_words(line)]
    assert rules.real_argv(specifiers_gone) == ["/bin/x", *values]


@given(VALUES)
def test_no_lone_specifier_is_left(value: str) -> None:
    assert argument(value, "v").replace("%%", "").count("%") == 0


@given(st.lists(st.tuples(st.sampled_from(["--a", "--b-c"]), VALUES), max_size=5))
def test_a_command_of_many_lines_is_one_directive(options: list[tuple[str, str]]) -> None:
    flat = ["/bin/x", *(word for pair in options for word in pair)]
    unit = f"[Service]\nExecStart={command(flat)}\nRestart=no\n"
    (_, key, value), last = rules.directives(unit)
    assert (key, last) == ("ExecStart", ("[Service]", "Restart", "no"))
    assert rules.words(value) == flat


@given(st.dictionaries(st.sampled_from(["A", "B_1", "path"]), VARIABLES))
@example({"A": 'x"; B=1', "B_1": "$A `id` \\"})
def test_an_environment_file_gives_each_value_back(values: dict[str, str]) -> None:
    text = "".join(variable(n, v) + "\n" for n, v in values.items())
    assert rules.variables(text) == values
    if rules.library() is not None:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            assert rules.real_variables(Path(file.name)) == values


@pytest.mark.parametrize("bad", ["a\nExecStart=/bin/sh", "a\rb", "a\0b", "\ud800"])
def test_what_would_end_the_line_is_refused(bad: str) -> None:
    for write in (one_line, argument):
        with pytest.raises(ConfigError) as caught:
            write(bad, "model")
        assert caught.value.reference == "bad-value"
        assert "model" in str(caught.value)
    with pytest.raises(ConfigError):
        variable("A", bad)


@pytest.mark.parametrize("bad", ["a\x1b[31m", "a\x7f"])
def test_a_variable_with_a_control_character_is_refused(bad: str) -> None:
    """systemd would drop the assignment and only warn (systemd.exec(5))."""
    with pytest.raises(ConfigError, match="control character"):
        variable("A", bad)


@pytest.mark.parametrize(
    ("text", "plain"), [("/models/a", True), ("models/a", False), ("/m b", False), ("/m%n", False)]
)
def test_a_plain_path_needs_no_quoting(text: str, plain: bool) -> None:
    assert is_plain_path(text) is plain


@needs_systemd
def test_systemd_analyze_accepts_the_nastiest_unit(tmp_path: Path) -> None:
    values = ["%n", "$HOME", "a;b", '"', "\\", "é", "\t", "\x01", "'", ";"]
    unit = tmp_path / "sglang-x.service"
    unit.write_text(f"[Service]\nExecStart={command(['/bin/true', *values])}\n", encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert [line for line in done.stderr.splitlines() if unit.name in line] == []
