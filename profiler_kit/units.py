"""Convert numbers to text and back. An unknown value is a dash, never a zero.

FLOPs, MACs and counts scale by 1000 (K M G T P), bytes by 1024 (KiB MiB GiB TiB), times from ns to s.
Text has at most four significant digits, because a fifth would be noise in a time. JSON and CSV have exact figures.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final, Literal

Unit = Literal[
    "text",
    "count",
    "flops",
    "macs",
    "bytes",
    "ns",
    "flops/s",
    "bytes/s",
    "flops/byte",
    "percent",
    "basis_points",  # hundredths of a percent, so that a share is an integer
    "ratio",
    "fraction",
    "bool",
]

DASH: Final = "-"
_DECIMAL: Final = ("", "K", "M", "G", "T", "P", "E")
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def text(value: object, unit: Unit = "text") -> str:
    """`value` as text for people: ``text(25_327_125_920, "macs") == "25.33 G"``; None and NaN are a dash."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, (int, float)):
        return str(value)
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    match unit:
        case "flops" | "macs":
            return scaled(value)
        case "bytes":
            return bytes_text(value)
        case "ns":
            return duration(value)
        case "flops/s":
            return f"{scaled(value)}FLOP/s" if abs(value) >= 1000 else f"{digits(value)} FLOP/s"
        case "bytes/s":
            return f"{scaled(value)}B/s" if abs(value) >= 1000 else f"{digits(value)} B/s"
        case "percent":
            return f"{value:.1f} %"
        case "basis_points":
            return f"{value / 100:.1f} %"
        case "ratio":
            return f"{digits(value, 3)}x"
        case "fraction":
            return _scientific(value)
        case "count":
            return f"{value:,}" if isinstance(value, int) else digits(value)
        case _:
            return str(value) if isinstance(value, int) else digits(value)


def signed(value: int, unit: Unit) -> str:
    """`value` with its sign: ``+302 M``, ``-1 KiB``, ``0``."""
    return f"{'+' if value > 0 else '-' if value < 0 else ''}{text(abs(value), unit)}"


def percent(share: float, significant: int | None = None) -> str:
    """The fraction `share` as ``"42.6 %"``, with one decimal, or with at most `significant` digits."""
    return f"{digits(100 * share, significant)} %" if significant else text(100.0 * share, "percent")


def shape_text(shape: Iterable[int]) -> str:
    """`shape` as ``8x3x256x256``; ``scalar`` without dimensions."""
    return "x".join(map(str, shape)) or "scalar"


def plural(count: int, noun: str, plural_noun: str = "") -> str:
    """`count` with its noun: ``"1 call"``, ``"3 calls"``. The default plural appends an s."""
    return f"{count:,} {noun if count == 1 else plural_noun or f'{noun}s'}"


def digits(value: float, significant: int = 4) -> str:
    """`value` with at most `significant` digits, without exponent between 1e-4 and 1e6; integers keep all digits."""
    if value == 0:
        return "0"
    if abs(value) < 1e-4 or abs(value) >= 1e6:
        return f"{value:.{significant - 1}g}" if abs(value) < 1e-4 else f"{value:,.0f}"
    places = max(0, significant - 1 - math.floor(math.log10(abs(value))))
    rounded = f"{value:.{places}f}"
    return rounded.rstrip("0").rstrip(".") if "." in rounded else rounded


def _scientific(value: float) -> str:
    """`value` as ``5.0e-4``, which is shorter than 0.0005001188 and easier to compare with 1.1e-6."""
    number, _, power = f"{value:.1e}".partition("e")
    return f"{number}e{int(power)}" if value else "0"


def scaled(value: float) -> str:
    """`value` with a decimal prefix: ``"25.33 G"``, ``"389.7 K"``, ``"12"``."""
    step = 0
    size = float(value)
    while abs(size) >= 999.95 and step < len(_DECIMAL) - 1:
        size /= 1000
        step += 1
    return f"{digits(size)} {_DECIMAL[step]}".rstrip() if step else digits(size)


def bytes_text(value: float) -> str:
    """`value` bytes with a binary prefix: ``"170.7 MiB"``."""
    step = 0
    size = float(value)
    while abs(size) >= 1023.5 and step < len(_BINARY) - 1:
        size /= 1024
        step += 1
    return f"{digits(size)} {_BINARY[step]}"


def duration(nanoseconds: float) -> str:
    """`nanoseconds` in a suitable unit: ``"26.2 ms"``, ``"850 us"``, ``"12.4 s"``."""
    size = abs(nanoseconds)
    if size < 999.95:
        return f"{digits(nanoseconds)} ns"
    if size < 999_950:
        return f"{digits(nanoseconds / 1e3)} us"
    if size < 999_950_000:
        return f"{digits(nanoseconds / 1e6)} ms"
    return f"{digits(nanoseconds / 1e9)} s"


_BYTES_IN: Final = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "pb": 10**15,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "pib": 2**50,
}  # fmt: skip
_COUNT_IN: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15, "e": 10**18}
_SECONDS_IN: Final = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "m": 60.0, "min": 60.0, "h": 3600.0}
_NUMBER: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*\Z")


def parse_bytes(written: str) -> int:
    """Bytes of a text such as ``4GiB``, ``500MB`` or ``1024``. Raises: ValueError for anything else."""
    return round(_parse(written, _BYTES_IN, "bytes, such as 4GiB or 500MB"))


def parse_count(written: str) -> int:
    """Count of a text such as ``4.1G``, ``26M`` or ``1024``. Raises: ValueError for anything else."""
    return round(_parse(written, _COUNT_IN, "a count, such as 4.1G or 26M"))


def parse_seconds(written: str) -> float:
    """Seconds of a text such as ``60s``, ``2m``, ``250ms`` or ``60``. Raises: ValueError for anything else."""
    return _parse(written, _SECONDS_IN, "a time, such as 60s or 2m")


def _parse(written: str, factors: dict[str, float] | dict[str, int], expected: str) -> float:
    match = _NUMBER.match(written)
    factor = factors.get(match.group(2).lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"{written!r} is not {expected}")
    return float(match.group(1)) * factor
