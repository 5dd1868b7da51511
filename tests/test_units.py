"""Numbers to text and back: short, never wrong by more than they show, and read back as they were written."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from profiler_kit import units


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (None, "count", "-"),
        (float("nan"), "ns", "-"),
        (float("inf"), "ratio", "inf"),
        (float("-inf"), "ratio", "-inf"),
        (True, "bool", "yes"),
        (False, "count", "no"),
        ("conv1", "bytes", "conv1"),
        (0, "flops", "0"),
        (12, "macs", "12"),
        (999, "macs", "999"),
        (1000, "macs", "1 K"),
        (389_702, "flops", "389.7 K"),
        (25_327_125_920, "macs", "25.33 G"),
        (999_999_999, "flops", "1 G"),
        (0, "bytes", "0 B"),
        (1023, "bytes", "1023 B"),
        (1024, "bytes", "1 KiB"),
        (1024**2 - 1, "bytes", "1 MiB"),
        (179_012_548, "bytes", "170.7 MiB"),
        (-2048, "bytes", "-2 KiB"),
        (0, "ns", "0 ns"),
        (850_000, "ns", "850 us"),
        (999_999, "ns", "1 ms"),
        (26_200_000, "ns", "26.2 ms"),
        (12_400_000_000, "ns", "12.4 s"),
        (-1_500, "ns", "-1.5 us"),
        (43e12, "flops/s", "43 TFLOP/s"),
        (12, "flops/s", "12 FLOP/s"),
        (3.35e12, "bytes/s", "3.35 TB/s"),
        (0.5, "bytes/s", "0.5 B/s"),
        (99.44, "percent", "99.4 %"),
        (1.0, "ratio", "1x"),
        (1.7432, "ratio", "1.74x"),
        (0.0005001188, "fraction", "5.0e-4"),
        (1.1e-6, "fraction", "1.1e-6"),
        (12.5, "fraction", "1.2e1"),
        (0.0, "fraction", "0"),
        (389_702, "count", "389,702"),
        (86.5, "count", "86.5"),
        (2371.4, "flops/byte", "2371"),
        (4.1e-4, "text", "0.00041"),
        (1.1e-6, "text", "1.1e-06"),
        (7, "text", "7"),
    ],
)
def test_values_as_people_read_them(value: object, unit: units.Unit, expected: str) -> None:
    assert units.text(value, unit) == expected


NUMBERS = st.integers(-(10**19), 10**19) | st.floats(-1e19, 1e19, allow_nan=False)


@pytest.mark.parametrize(
    ("value", "unit", "expected"), [(302_000_000, "flops", "+302 M"), (-1024, "bytes", "-1 KiB"), (0, "ns", "0 ns")]
)
def test_signed_values(value: int, unit: units.Unit, expected: str) -> None:
    assert units.signed(value, unit) == expected


def test_shares_and_shapes() -> None:
    assert [units.percent(share, 2) for share in (0.9384, 0.000438, 1.0)] == ["94 %", "0.044 %", "100 %"]
    assert [units.percent(share) for share in (0.9384, 0.000438, 1.0)] == ["93.8 %", "0.0 %", "100.0 %"]
    assert units.percent(0.99521, 3) == "99.5 %"
    assert units.shape_text((8, 3, 256)) == "8x3x256"
    assert units.shape_text(()) == "scalar"


SIZES: tuple[units.Unit, ...] = ("flops", "macs", "bytes", "ns", "flops/s", "bytes/s")


@given(value=NUMBERS, unit=st.sampled_from(SIZES))
@example(value=1023.6 * 1024, unit="bytes")
@example(value=1e-06, unit="bytes")
@example(value=999.96, unit="ns")
@example(value=999_960, unit="ns")
@example(value=999.97, unit="flops")
@example(value=999_950_000_000, unit="ns")
def test_a_prefix_leaves_one_to_four_digits_before_the_point(value: float, unit: units.Unit) -> None:
    expected = units.text(value, unit).split()[0].lstrip("-")
    number = expected.split(".")[0].replace(",", "")
    if value == 0 or 1e-3 <= abs(value) < 1e12:  # below there is an exponent, above no larger unit than seconds
        assert len(number) <= 4
    if unit != "bytes":
        largest = unit == "ns" and abs(value) >= 999.5e9  # there is no kilosecond
        assert number != "1000" or value == 1000 or unit in ("flops/s", "bytes/s") or largest
    else:
        assert float(number) < 1024 or abs(value) >= 1023 * 1024**5


@given(value=st.floats(1e-3, 1e9))
def test_digits_is_right_to_half_of_its_last(value: float) -> None:
    expected = float(units.digits(value).replace(",", ""))
    assert expected == pytest.approx(value, rel=6e-4)


@given(value=st.integers(0, 10**9))
def test_counts_keep_every_digit(value: int) -> None:
    assert int(units.text(value, "count").replace(",", "")) == value


@given(value=st.floats(-1e9, 1e9, allow_nan=False), unit=st.sampled_from(SIZES))
def test_no_exponent_and_no_trailing_zeros(value: float, unit: units.Unit) -> None:
    if abs(value) >= 1e-4:
        number = units.text(value, unit).split()[0]
        assert "e" not in number
        assert not re.search(r"\.\d*0\Z|\.\Z", number)


@given(value=st.integers(0, 2**60))
def test_bytes_are_read_back(value: int) -> None:
    # four digits are off by at most half of the fourth, and what was read is rounded to a whole byte
    read = units.parse_bytes(units.bytes_text(value))
    assert abs(read - value) <= 6e-4 * value + 0.5


@given(value=st.integers(0, 10**20))
def test_counts_are_read_back(value: int) -> None:
    assert units.parse_count(units.scaled(value).replace(",", "")) == pytest.approx(value, rel=6e-4)


@given(value=st.integers(0, 10**15))
def test_times_are_read_back(value: int) -> None:
    seconds = units.parse_seconds(units.duration(value).replace(",", ""))
    assert seconds == pytest.approx(value / 1e9, rel=6e-4)


@given(a=NUMBERS, b=NUMBERS)
def test_signs_are_symmetric(a: float, b: float) -> None:
    for unit in SIZES:
        if a:
            assert units.text(-a, unit).lstrip("-") == units.text(a, unit).lstrip("-")


@pytest.mark.parametrize(
    ("written", "value"),
    [("4GiB", 4 * 2**30), ("500MB", 500_000_000), ("1024", 1024), (" 1.5 kib ", 1536), (".5KB", 500), ("2 B", 2)],
)
def test_bytes_as_people_write_them(written: str, value: int) -> None:
    assert units.parse_bytes(written) == value


@pytest.mark.parametrize(
    ("written", "value"), [("4.1G", 4_100_000_000), ("26M", 26_000_000), ("1024", 1024), (".5k", 500)]
)
def test_counts_as_people_write_them(written: str, value: int) -> None:
    assert units.parse_count(written) == value


@pytest.mark.parametrize(("written", "value"), [("60s", 60), ("2m", 120), ("250ms", 0.25), ("60", 60), ("1.5h", 5400)])
def test_times_as_people_write_them(written: str, value: float) -> None:
    assert units.parse_seconds(written) == pytest.approx(value)


@pytest.mark.parametrize(
    "written", ["", "x", "4GX", "-1", "1e3", "1,000", "GiB", "1.2.3", "٣GiB", "4 G iB", "nan", "inf"]
)
def test_nonsense_is_refused_and_quoted(written: str) -> None:
    for parse in (units.parse_bytes, units.parse_count, units.parse_seconds):
        with pytest.raises(ValueError, match=re.escape(repr(written))):
            parse(written)


@given(value=st.floats(allow_nan=True, allow_infinity=True))
def test_no_float_is_too_odd_to_show(value: float) -> None:
    for unit in ("text", "count", "percent", "ratio", *SIZES):
        expected = units.text(value, unit)  # type: ignore[arg-type]
        assert expected
        assert math.isnan(value) == (expected == "-")
