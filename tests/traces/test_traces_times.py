from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler_kit.traces.event_runs import NO_TIME_NS, from_floats, from_texts, nanoseconds

DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**6), max_value=10**15, places=6)


def exactly(text: str) -> int:
    return floor(Fraction(text) * 1000 + Fraction(1, 2))


@given(st.integers(0, 2**62), st.sampled_from(["{0}.{1:03d}", "{0}.{1:03d}000", "{0}.{1:03d}4"]))
def test_times_lose_nothing(ns: int, form: str) -> None:
    assert nanoseconds(form.format(ns // 1000, ns % 1000)) == ns


@given(DECIMALS)
def test_times_are_rounded_half_up(microseconds: object) -> None:
    assert nanoseconds(str(microseconds)) == exactly(str(microseconds))


@pytest.mark.parametrize(
    ("written", "ns"),
    [(5, 5000), ("5", 5000), ("0.5", 500), ("1.5e3", 1_500_000), ("1790857026000123.457", 1790857026000123457)],
)
def test_spellings_of_a_time(written: int | str, ns: int) -> None:
    assert nanoseconds(written) == ns


@pytest.mark.parametrize("written", ["NaN", "Infinity", "", "soon", "1e999999999"])
def test_no_time(written: str) -> None:
    with pytest.raises(ValueError, match="not a time"):
        nanoseconds(written)


@given(st.lists(st.integers(0, 2**63), max_size=20))
def test_what_three_digits_say_is_sure_in_floats_below_fifty_days(times_ns: list[int]) -> None:
    """What Kineto writes needs no look at its text, as long as a float holds it."""
    times_ns = [ns % (2**42 * 1000) for ns in times_ns]
    result, unsure = from_floats(
        np.array([float(f"{ns // 1000}.{ns % 1000:03d}") for ns in times_ns], dtype=np.float64)
    )
    assert not unsure.any()
    assert result.tolist() == times_ns


@given(st.lists(DECIMALS, min_size=1, max_size=20))
def test_floats_are_sure_only_of_what_the_text_says(microseconds: list[object]) -> None:
    written = [str(value) for value in microseconds]
    result, unsure = from_floats(np.array([float(text) for text in written]))
    for text, ns, asked in zip(written, result.tolist(), unsure.tolist(), strict=True):
        assert asked or ns == exactly(text)


@pytest.mark.parametrize("scale", [1, 10**6, 10**9, 10**12, 4 * 10**12])
def test_half_a_ns_is_never_sure(scale: int) -> None:
    for micro in (scale + 0.0005, scale + 0.0015, scale + 0.4995):
        result, unsure = from_floats(np.array([micro]))
        assert unsure.all() or result[0] == exactly(repr(micro))


def test_missing_and_infinite_floats() -> None:
    result, unsure = from_floats(np.array([np.nan, np.inf, -np.inf, 1e300]))
    assert result[0] == NO_TIME_NS
    assert unsure.tolist() == [False, True, True, True]


@given(st.lists(st.one_of(DECIMALS.map(str), st.integers(-(10**6), 10**15).map(str), st.integers(0, 2**61).map(
    lambda ns: f"{ns // 1000}.{ns % 1000:03d}")), max_size=30))  # fmt: skip
def test_texts_are_read_exactly_together(written: list[str]) -> None:
    assert from_texts([text.encode() for text in written]).tolist() == [exactly(text) for text in written]


def test_texts_that_are_no_time() -> None:
    texts = [b"soon", b"", b"null", b'"5"', b"1e400", b"[1]", b"\xff", b"9999999999999999.999", b"1e17"]
    assert from_texts(texts).tolist() == [
        NO_TIME_NS, NO_TIME_NS, NO_TIME_NS, 5000, NO_TIME_NS, NO_TIME_NS, NO_TIME_NS, NO_TIME_NS, NO_TIME_NS
    ]  # fmt: skip
