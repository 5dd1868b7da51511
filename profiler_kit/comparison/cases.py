"""What a usual explanation is put to the test on: two runs of one configuration, and the words that all tests share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.comparison import ExplanationVerdict, MemorySplit, Side, TimeRatio
from profiler_kit.records.report import Evidence, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import Unit, text

APART: Final = 0.05  # two figures must differ by this much before anybody explains anything by them
CLOSE: Final = 1.1  # a prediction within this factor is right


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One configuration's two runs, and what is known of them; `runs` None for what was counted alone.

    `same_time`: the two steps differ by no more than runs differ anyway.
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
        """The configuration's name; None where nothing was run."""
        return self.runs[0].config.name if self.runs is not None else None

    def label(self, side: int) -> str:
        """What sentences call the side: 0 is a, 1 is b."""
        return self.sides[side].label

    def evidence(self, name: str, values: Sequence[int | float], unit: Unit) -> tuple[Evidence, ...]:
        """A number of each side."""
        return tuple(
            Evidence(name=name, value=value, unit=unit, where=side.label)
            for side, value in zip(self.sides, values, strict=True)
        )


def larger_first(values: Sequence[float]) -> tuple[int, int]:
    """The side with the larger value, then the other one."""
    return (0, 1) if values[0] > values[1] else (1, 0)


def apart(values: Sequence[float]) -> bool:
    """Whether two figures differ by enough to explain anything."""
    return abs(values[0] - values[1]) > APART * max(values)


def judged(predicted: float, measured: float) -> tuple[ExplanationVerdict, float | None]:
    """The verdict on a prediction of the right sign, and the factor it is off by: measured over predicted."""
    off_by = measured / predicted
    return ("right" if 1 / CLOSE <= off_by <= CLOSE else "off"), off_by


def bytes_words(value: int) -> str:
    """Bytes without a sign."""
    return text(abs(value), "bytes")
