from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.config.nodes import (
    DEPTH_LIMIT,
    Plain,
    as_bool,
    as_json,
    is_null,
    load,
    parse,
    shown_path,
)
from fleetctl.config.write import scalar
from fleetctl.errors import ConfigError


@pytest.mark.parametrize("text", ["no", "on", "off", "yes", "y", "12:30", "0.80", "1_000", "0o17"])
def test_what_yaml_1_1_would_change_stays_as_written(text: str) -> None:
    value = parse(f"a: {text}", Path("f")).value["a"]
    assert value == text
    assert as_bool(value) is None
    assert not is_null(value)


@pytest.mark.parametrize(("text", "wanted"), [("true", True), ("TRUE", True), ("False", False)])
def test_the_booleans_of_yaml_1_2_are_booleans_unless_quoted(text: str, wanted: bool) -> None:
    assert as_bool(parse(f"a: {text}", Path("f")).value["a"]) is wanted
    assert as_bool(parse(f"a: '{text}'", Path("f")).value["a"]) is None


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_null_is_null_unless_quoted(text: str) -> None:
    assert is_null(parse(f"a: {text}", Path("f")).value["a"])
    assert not is_null(parse(f"a: '{text}'", Path("f")).value["a"])


@pytest.mark.parametrize(
    ("text", "wanted"), [("1", 1), ("-0.5", -0.5), ("1e3", 1000.0), ("007", "007"), ("'1'", "1")]
)
def test_only_what_json_calls_a_number_becomes_one(text: str, wanted: object) -> None:
    assert as_json(parse(f"a: {text}", Path("f")).value)["a"] == wanted


def test_a_file_that_is_not_utf8_is_a_fault_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_bytes(b"a: \xff\n")
    with pytest.raises(ConfigError, match="byte 3 is not UTF-8") as caught:
        load(path)
    assert caught.value.reference == "not-utf8"


def test_a_file_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "none.yaml")
    assert caught.value.reference == "unreadable"


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_bytes("\ufeffhosts: {}\n".encode())
    assert load(path).value == {"hosts": {}}


def test_deep_nesting_ends_in_a_fault() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("[" * (DEPTH_LIMIT + 2) + "]" * (DEPTH_LIMIT + 2), Path("f"))
    assert caught.value.reference == "yaml-too-large"


def test_aliases_that_multiply_end_in_a_fault() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
    with pytest.raises(ConfigError) as caught:
        parse("\n".join(lines), Path("f"))
    assert caught.value.reference == "yaml-too-large"


def test_an_explicit_text_tag_is_text() -> None:
    assert parse("a: ! true", Path("f")).value["a"] == "true"


def test_a_path_outside_the_working_folder_is_shown_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    assert shown_path(tmp_path / "in" / "x.yaml") == "x.yaml"
    assert shown_path(tmp_path / "y.yaml") == str(tmp_path / "y.yaml")


def test_a_place_that_is_not_in_the_file_falls_back_to_what_is_around_it() -> None:
    document = parse("a:\n  b: 1\n", Path("/f"))
    assert document.where(("a", "b")) == "/f:2:6"
    assert document.where(("a", "b"), key=True) == "/f:2:3"
    assert document.where(("a", "zzz", 3)) == "/f:2:3"
    document.marks.clear()
    assert document.where(()) == "/f"


VALUES = st.one_of(
    st.just(True),
    st.none(),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0")),
    st.lists(st.text("abc,[]{}: '\"#&*!|>%@`-"), min_size=1),
    st.dictionaries(st.text("abc"), st.text("abc:0 '\""), max_size=3),
)


@given(VALUES)
def test_what_is_written_reads_back_the_same(value: object) -> None:
    back = parse(f"a: {scalar(value)}", Path("f")).value["a"]
    if value is True:
        assert as_bool(back) is True
    elif value is None:
        assert is_null(back)
    elif isinstance(value, str):
        assert back == value
        assert not is_null(back)
        assert as_bool(back) is None
    else:
        assert back == value


def test_numbers_are_written_without_quotes() -> None:
    assert [scalar(v) for v in ("0.80", "8", Plain("true"), "", "no", 5)] == [
        "0.80", "8", '"true"', '""', "no", "5",
    ]  # fmt: skip
