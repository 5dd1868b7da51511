"""Changes of TOML texts: every other byte stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler_kit.errors import UsageError
from profiler_kit.gate.toml_text import comment_text, parse_toml, toml_key, toml_value, with_block, with_value


@given(st.text(), st.text() | st.booleans() | st.integers(-(2**62), 2**62) | st.lists(st.text()))
def test_keys_and_values_are_read_back(key: str, value: object) -> None:
    key, value = str(key).replace("\x00", ""), value
    assert parse_toml(f"{toml_key(key)} = {toml_value(value)}", "x") == {key: value}


@given(st.text())
def test_a_comment_never_ends_its_line(text: str) -> None:
    assert parse_toml(f"a = 1  # {comment_text(text)}\nb = 2", "x") == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('[b]\nflops = "+5%"\nx=1', "[b]\nflops = 7  # reason\nx=1"),
        ('[b]\r\n  "flops"="+5%" # kept\r\n', '[b]\r\n  "flops"=7  # reason; kept\r\n'),
        ('b.flops = "a # b"  # today 3\n[c]\nflops = 1\n', "b.flops = 7  # reason\n[c]\nflops = 1\n"),
        ("[c]\nflops = 1\n[b]\nflops = 1\n", "[c]\nflops = 1\n[b]\nflops = 7  # reason\n"),
    ],
)
def test_a_value_changes_on_its_line(before: str, after: str) -> None:
    assert with_value(before, ("b", "flops"), 7, "reason", "x") == after


def test_a_value_over_several_lines_is_replaced() -> None:
    text = "[b]\nflops = [\n1\n]  # today 1\nx = 1\n"
    assert with_value(text, ("b", "flops"), 7, "reason", "x") == "[b]\nflops = 7  # reason\nx = 1\n"


def test_a_key_is_added_to_its_table() -> None:
    text = "[a]\nx = 1\n[b] # first\ny = 2\n\n[b.c]\nz = 3\n"
    assert with_value(text, ("b", "w"), 4, "why", "x") == text.replace("y = 2\n", "y = 2\nw = 4  # why\n")


def test_a_field_changes_in_a_table_with_a_header() -> None:
    text = "[b.flops]\nlimit = 1\nseverity = 'warn'\n"
    new = with_value(text, ("b", "flops"), {"limit": 2, "severity": "warn"}, "why", "x")
    assert new == text.replace("limit = 1", "limit = 2  # why")


@pytest.mark.parametrize("text", ["", "a = 1", "a = 1\n", "a = 1\r\n[t]\r\n"])
def test_a_block_is_added_at_the_end(text: str) -> None:
    new = with_block(text, "[n]\nb = 2\n", {"n": {"b": 2}}, "x")
    assert new.startswith(text)
    assert parse_toml(new, "x") == {**parse_toml(text, "x"), "n": {"b": 2}}
    assert ("\r\n" in text) == ("\r\n" in new)


def test_a_block_into_an_inline_table_is_an_error_with_the_block() -> None:
    with pytest.raises(UsageError, match="cannot add tables") as caught:
        with_block("n = { a = 1 }\n", "[n.b]\nc = 2\n", {"n": {"b": {"c": 2}}}, "x")
    assert "[n.b]\nc = 2" in (caught.value.hint or "")
