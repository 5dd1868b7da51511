"""Summaries of runs over changing shapes: time by cycle, new and repeated shapes, pairs without and with benchmark."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from profiler_kit.records.experiments import ShapeSchedule, ShapeStep


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleTime:
    """The time of one pass over a schedule's shapes."""

    cycle: int
    steps: int
    ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeTime:
    """One shape of a schedule: its first step, and the median of its later steps (None if it occurred once)."""

    config: str
    shape: tuple[int, ...]
    first_ns: int
    steps: int
    seen_ns: int | None
    peak_bytes: int | None
    last_batch: bool

    @property
    def factor(self) -> float | None:
        """The first step divided by the later steps; None if the shape occurred once."""
        return self.first_ns / self.seen_ns if self.seen_ns else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePair:
    """The same steps without (`off`) and with (`on`) cudnn.benchmark."""

    off: ShapeSchedule
    on: ShapeSchedule


def shape_text(shape: tuple[int, ...]) -> str:
    """The text of a shape: ``2x3x256x256``."""
    return "x".join(map(str, shape)) or "()"


def cycle_times(schedule: ShapeSchedule) -> tuple[CycleTime, ...]:
    """The time of every cycle, in order. If the schedule stopped early, the last cycle has fewer steps."""
    cycles: dict[int, list[int]] = {}
    for step in schedule.steps:
        cycles.setdefault(step.cycle, []).append(step.ns)
    return tuple(CycleTime(cycle=cycle, steps=len(ns), ns=sum(ns)) for cycle, ns in cycles.items())


def cycle_ns(schedule: ShapeSchedule, number: int) -> int | None:
    """The time of the cycle `number`, counted from 1; None if it does not exist or is incomplete."""
    times = {time.cycle: time for time in cycle_times(schedule)}
    cycle = times.get(number)
    if cycle is None or schedule.failure is None or number != max(times):
        return cycle.ns if cycle is not None else None
    full_steps = max((time.steps for time in times.values() if time.cycle != number), default=None)
    return cycle.ns if cycle.steps == full_steps else None


def shape_times(schedule: ShapeSchedule) -> tuple[ShapeTime, ...]:
    """Every shape of a schedule, in order of first occurrence."""
    by_shape: dict[tuple[int, ...], list[ShapeStep]] = {}
    for step in schedule.steps:
        by_shape.setdefault(step.shape, []).append(step)
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
        for shape, steps in by_shape.items()
    )


def new_shape_ns(schedule: ShapeSchedule) -> int | None:
    """The median step of a new shape, without smaller last batches."""
    return _median(time.first_ns for time in shape_times(schedule) if not time.last_batch)


def repeated_shape_ns(schedule: ShapeSchedule) -> int | None:
    """The median step of a repeated shape, without smaller last batches."""
    return _median(step.ns for step in schedule.steps if step.seen and not step.last_batch)


def new_shape_factor(schedule: ShapeSchedule) -> float | None:
    """The first step of a shape divided by its later steps: the median over all shapes that occur more than once.

    Computed per shape, because large shapes are slower than small ones whether they are new or not.
    """
    factors = [time.factor for time in shape_times(schedule) if time.factor is not None and not time.last_batch]
    return statistics.median(factors) if factors else None


def last_batch(schedule: ShapeSchedule) -> ShapeTime | None:
    """The smaller last batch; None if there is none. If it occurs in several sizes, the first one."""
    return next((time for time in shape_times(schedule) if time.last_batch), None)


def total_ns(schedule: ShapeSchedule) -> int:
    """The time of all steps."""
    return sum(step.ns for step in schedule.steps)


def benchmark_pairs(schedules: Iterable[ShapeSchedule]) -> tuple[SchedulePair, ...]:
    """Pairs of completed schedules without and with cudnn.benchmark that are otherwise equal and ran the same steps.

    The configurations' names identify the pairs, because they list all differences from the default.
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


def _same_steps(first: ShapeSchedule, second: ShapeSchedule) -> bool:
    return [(s.cycle, s.shape) for s in first.steps] == [(s.cycle, s.shape) for s in second.steps]


def _median(values: Iterable[int]) -> int | None:
    durations = list(values)
    return round(statistics.median(durations)) if durations else None
