"""What a device really reaches, as measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from profiler_kit.records.saved import Saved

# A ceiling that varies more than this was measured while something else used the device: on an idle one it is under 1 %.
STEADY_PERCENT: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MathRate:
    """FLOP/s that a square matrix product reached in one arithmetic (``fp32``, ``tf32``, ``f16``, ``bf16``): the median.

    `size`: rows of the matrices; `spread_percent`: half the median's 95 % interval, in percent of it.
    """

    math: str
    flops_per_s: float
    size: int
    repeats: int
    spread_percent: float

    @property
    def steady(self) -> bool:
        """Whether the rate can be taken for a ceiling."""
        return self.spread_percent <= STEADY_PERCENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings(Saved, kind="ceilings"):
    """What a device really reaches: FLOP/s of large matrix products, and bytes/s of a copy on the device (read + written).

    `device` and `device_name` are torch's, `driver` the installed one's version. None, or no rate: not measured, see `notes`.
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
        """The most that any of its figures varied."""
        return max([self.bandwidth_spread_percent or 0.0, *(rate.spread_percent for rate in self.rates)])

    @property
    def steady(self) -> bool:
        """Whether all of it can be taken for ceilings."""
        return self.largest_spread_percent <= STEADY_PERCENT
