"""What a run over changing shapes says: time by cycle, steps of new and of seen shapes, pairs without and with benchmark."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from profiler_kit.records.laboratory import ShapeSchedule, ShapeStep


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleTime:
    """One pass over a schedule's shapes: all its steps together."""

    cycle: int
    steps: int
    ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeTime:
    """One shape of a schedule: its first step, and the median of the later ones (None where it came once)."""

    config: str
    shape: tuple[int, ...]
    first_ns: int
    steps: int
    seen_ns: int | None
    peak_bytes: int | None
    last_batch: bool

    @property
    def factor(self) -> float | None:
        """How many times as long the first step took; None where the shape came once."""
        return self.first_ns / self.seen_ns if self.seen_ns else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePair:
    """The same steps without and with cudnn.benchmark."""

    off: ShapeSchedule
    on: ShapeSchedule


def shape_text(shape: tuple[int, ...]) -> str:
    """``2x3x256x256``."""
    return "x".join(map(str, shape)) or "()"


def cycle_times(schedule: ShapeSchedule) -> tuple[CycleTime, ...]:
    """Every cycle's time, in the order they ran. Where the schedule broke off, the last one is short of steps."""
    cycles: dict[int, list[int]] = {}
    for step in schedule.steps:
        cycles.setdefault(step.cycle, []).append(step.ns)
    return tuple(CycleTime(cycle=cycle, steps=len(ns), ns=sum(ns)) for cycle, ns in cycles.items())


def cycle_ns(schedule: ShapeSchedule, number: int) -> int | None:
    """The time of the cycle of this number, counted from 1; None where there is none, or it broke off."""
    times = {time.cycle: time for time in cycle_times(schedule)}
    found = times.get(number)
    if found is None or schedule.failure is None or number != max(times):
        return found.ns if found is not None else None
    whole = max((time.steps for time in times.values() if time.cycle != number), default=None)
    return found.ns if found.steps == whole else None


def shape_times(schedule: ShapeSchedule) -> tuple[ShapeTime, ...]:
    """Every shape of a schedule, in the order they came."""
    found: dict[tuple[int, ...], list[ShapeStep]] = {}
    for step in schedule.steps:
        found.setdefault(step.shape, []).append(step)
    return tuple(
        ShapeTime(
            config=schedule.config,
            shape=shape,
            first_ns=steps[0].ns,
            steps=len(steps),
            seen_ns=_median(step.ns for step in steps[1:]),
            peak_bytes=max((step.peak_bytes for step in steps if step.peak_bytes is not None), default=None),
            last_batch=steps[0].last_batch,
        )
        for shape, steps in found.items()
    )


def new_ns(schedule: ShapeSchedule) -> int | None:
    """The median step of a new shape, smaller last batches aside."""
    return _median(time.first_ns for time in shape_times(schedule) if not time.last_batch)


def seen_ns(schedule: ShapeSchedule) -> int | None:
    """The median step of a shape seen before, smaller last batches aside."""
    return _median(step.ns for step in schedule.steps if step.seen and not step.last_batch)


def new_factor(schedule: ShapeSchedule) -> float | None:
    """How many times as long a shape's first step takes as its later ones: the median over the shapes that came again.

    Shape by shape, because a large shape takes longer than a small one whether it is new or not.
    """
    factors = [time.factor for time in shape_times(schedule) if time.factor is not None and not time.last_batch]
    return statistics.median(factors) if factors else None


def last_batch(schedule: ShapeSchedule) -> ShapeTime | None:
    """The smaller last batch; None where there was none. Where it came in several sizes, the first that came."""
    return next((time for time in shape_times(schedule) if time.last_batch), None)


def total_ns(schedule: ShapeSchedule) -> int:
    """All steps together."""
    return sum(step.ns for step in schedule.steps)


def pairs(schedules: Iterable[ShapeSchedule]) -> tuple[SchedulePair, ...]:
    """The schedules that ran to their end without and with cudnn.benchmark, over the same steps and all else the same.

    They are known by their configurations' names, which say what differs from the default.
    """
    done = [schedule for schedule in schedules if schedule.failure is None and schedule.steps]
    return tuple(
        SchedulePair(off=off, on=on)
        for on in done
        if on.benchmark
        for off in done
        if off.benchmark is False and _words(off.config) == _words(on.config) - {"benchmark"} and _same_steps(off, on)
    )


def _words(config: str) -> frozenset[str]:
    return frozenset(config.split("+")) - {"default"}


def _same_steps(one: ShapeSchedule, other: ShapeSchedule) -> bool:
    return [(s.cycle, s.shape) for s in one.steps] == [(s.cycle, s.shape) for s in other.steps]


def _median(values: Iterable[int]) -> int | None:
    known = list(values)
    return round(statistics.median(known)) if known else None
