"""The cases that usual explanations are tested on, and comparisons of two figures that all tests share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.comparison import ExplanationVerdict, MemorySplit, Side, TimeRatio
from profiler_kit.records.report import Evidence, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import Unit

MIN_DIFFERENCE_SHARE: Final = 0.05  # of the larger figure: nobody explains anything by a smaller difference
MAX_RIGHT_FACTOR: Final = 1.1  # a prediction within this factor of the measurement is right


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Two runs of one configuration with their time ratio and memory split; `runs` is None for counted figures alone.

    `same_time`: the two step times are equal or differ by no more than noise.
    """

    a: Report
    b: Report
    sides: tuple[Side, Side]
    runs: tuple[ConfigRun, ConfigRun] | None = None
    time: TimeRatio | None = None
    memory: MemorySplit | None = None
    same_time: bool = False

    @property
    def config(self) -> str | None:
        """The configuration's name; None without runs."""
        return self.runs[0].config.name if self.runs is not None else None

    def label(self, side_index: int) -> str:
        """The side's name in sentences: 0 is a, 1 is b."""
        return self.sides[side_index].label

    def evidence(self, name: str, values: Sequence[int | float], unit: Unit) -> tuple[Evidence, ...]:
        """One piece of evidence per side, called `name`."""
        return tuple(
            Evidence(name=name, value=value, unit=unit, where=side.label)
            for side, value in zip(self.sides, values, strict=True)
        )


def larger_first(values: Sequence[float]) -> tuple[int, int]:
    """The index of the larger of two values, then the index of the smaller one."""
    return (0, 1) if values[0] > values[1] else (1, 0)


def differs(values: Sequence[float]) -> bool:
    """Whether two figures differ by at least `MIN_DIFFERENCE_SHARE`, enough to explain a result."""
    return abs(values[0] - values[1]) > MIN_DIFFERENCE_SHARE * max(values)


def judge_prediction(predicted: float, measured: float) -> tuple[ExplanationVerdict, float | None]:
    """The verdict on a prediction with the right sign, and its error factor: measured over predicted."""
    error_factor = measured / predicted
    return ("right" if 1 / MAX_RIGHT_FACTOR <= error_factor <= MAX_RIGHT_FACTOR else "off"), error_factor
