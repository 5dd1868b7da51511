"""The measured peaks of a device: FLOP/s of matrix products, bytes/s of a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from profiler_kit.records.saved import Saved

# A ceiling that varies more than this was measured while something else used the device: on an idle one it is under 1 %.
MAX_SPREAD_PERCENT: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MathRate:
    """The median FLOP/s of a square matrix product in one arithmetic.

    - `math`: the arithmetic, `fp32`, `tf32`, `f16` or `bf16`.
    - `size`: the number of rows and columns of the matrices.
    - `repeats`: the number of timed products.
    - `spread_percent`: half the width of the 95 % interval, in percent of the median.
    """

    math: str
    flops_per_s: float
    size: int
    repeats: int
    spread_percent: float

    @property
    def steady(self) -> bool:
        """Whether the rate varied little enough to serve as a peak."""
        return self.spread_percent <= MAX_SPREAD_PERCENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings(Saved, kind="ceilings"):
    """The measured peaks of a device.

    - `device`, `device_name`: the device type (`cuda`, `cpu`) and the name that torch reports.
    - `torch`, `driver`: versions; `driver` is None on a CPU and where it cannot be read.
    - `threads`: the threads that torch used on a CPU; None on other devices.
    - `rates`: FLOP/s of large matrix products, one entry per arithmetic that could be measured.
    - `bandwidth_bytes_per_s`: bytes read and written per second by a copy on the device; None where the copy failed.
    - `copy_bytes`: the size of the copied tensor.
    - `bandwidth_spread_percent`: half the width of the 95 % interval, in percent of the median.
    - `duration_ns`: the duration of all measurements.
    - `notes`: the measurements that failed, and why.
    """

    device: str
    device_name: str
    torch: str
    driver: str | None
    threads: int | None
    rates: tuple[MathRate, ...]
    bandwidth_bytes_per_s: float | None
    copy_bytes: int
    bandwidth_spread_percent: float | None
    duration_ns: int
    notes: tuple[str, ...] = ()

    @property
    def largest_spread_percent(self) -> float:
        """The largest spread among the rates and the bandwidth."""
        return max([self.bandwidth_spread_percent or 0.0, *(rate.spread_percent for rate in self.rates)])

    @property
    def steady(self) -> bool:
        """Whether all figures varied little enough to serve as peaks."""
        return self.largest_spread_percent <= MAX_SPREAD_PERCENT
