"""Functions and values as a command line names them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridrt.cli.target import UsageError, find_function, parse_arguments, parse_value
from tests.cli import functions

plain = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
literals = st.recursive(
    plain | st.binary(), lambda inner: st.lists(inner) | st.tuples(inner, inner), max_leaves=4
)
documents = st.recursive(
    plain, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=4
)


@settings(max_examples=40)
@given(literals)
def test_every_python_literal_comes_back(value: object) -> None:
    assert parse_value(repr(value)) == value


@settings(max_examples=40)
@given(documents)
def test_every_json_document_comes_back(value: object) -> None:
    assert parse_value(json.dumps(value)) == value


@pytest.mark.parametrize("text", ["to be or not", "a=b", "hello", "", "2 + x", "-"])
def test_what_is_no_literal_is_text(text: str) -> None:
    assert parse_value(text) == text


@pytest.mark.parametrize("text", ["[1", "{'a': 1", "'open", "(1, nobody)", "{[1]: 2}", 20_000 * "["])
def test_what_begins_like_a_literal_must_be_one(text: str) -> None:
    with pytest.raises(UsageError, match="neither JSON nor a Python literal"):
        parse_value(text)


def test_a_file_is_read_as_bytes_or_as_text(tmp_path: Path) -> None:
    file = tmp_path / "page"
    file.write_text("ä[", encoding="utf-8")
    assert parse_value(f"@{file}") == "ä[".encode()
    assert parse_value(f"@@{file}") == "ä["


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "page").write_bytes(b"\xff")
    for text in (f"@{tmp_path / 'nothing'}", f"@@{tmp_path / 'page'}"):
        with pytest.raises(UsageError, match=f"cannot read {text}"):
            parse_value(text)


def test_arguments_are_positional_or_have_names() -> None:
    assert parse_arguments(["1", "x", "n=2", "m=[3]"]) == ([1, "x"], {"n": 2, "m": [3]})
    assert parse_arguments(["'a=b'", "1 = 1"]) == (["a=b", "1 = 1"], {})
    with pytest.raises(UsageError, match="'4' after one"):
        parse_arguments(["n=2", "4"])


def test_a_function_is_found_by_its_dotted_name() -> None:
    assert find_function("json:loads") is json.loads
    assert find_function("tests.cli.functions:Holder.double") is functions.Holder.double


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("json", "named module:function"),
        (":loads", "named module:function"),
        ("no_such_module:f", "no module 'no_such_module'"),
        ("json.nothing:f", r"no module 'json\.nothing'"),
        ("./steps:f", "a module is named from the top"),
        ("steps.py:f", "give a module's name, not a file's"),
        ("json:nothing", "has no 'nothing'"),
        ("tests.cli.functions:Holder.number", "cannot be called, it is 7"),
    ],
)
def test_what_is_not_there_is_named(name: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        find_function(name)


def test_what_a_module_itself_misses_is_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lame_module.py").write_text("import no_such_module\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        find_function("lame_module:f")
