"""Input shapes that change: what a new one costs, and whether cudnn.benchmark's search pays over them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.rule import Rule, known
from profiler_kit.diagnosis.words import plural, sentences, threshold, times
from profiler_kit.records.laboratory import ShapeSchedule
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.schedules import (
    SchedulePair,
    cycle_ns,
    cycle_times,
    last_batch,
    new_factor,
    new_ns,
    pairs,
    seen_ns,
    shape_times,
    total_ns,
)
from profiler_kit.statistics.noise import WORTH
from profiler_kit.units import text

# A new shape also means first allocations of its size; what takes three steps' time is more than that: algorithms are chosen.
FACTOR: Final = 3.0
# Fewer shapes than a data loader with varying sizes soon gives: their first steps are start-up, and over at once.
SHAPES: Final = 8
# Below three shapes that came again, a median over the shapes is one or two of them.
FEWEST: Final = 3
# Twice the time for the same steps: the search is as much work as the training.
HIGH: Final = 2.0

DOC = f"""
From a run over changing shapes (`--shapes`). It fires where a shape's first step takes more than {FACTOR:g}x its later ones
(the median over the shapes that came again, so that large shapes are compared with themselves) and there are more than
{SHAPES} shapes; or where the same schedule takes longer with `cudnn.benchmark=True` than without: its search, run anew for
every shape and for a smaller last batch, then costs more than it gains. The difference must be more than
{threshold(WORTH)} of the schedule, and more than two cycles without a new shape differed.

`high` where benchmark makes the schedule more than {HIGH:g}x as long. `medium` where it makes it longer, or where new shapes
are slow in the configuration as it is; `low` where the steps planned (`--steps-planned`) are enough to pay the search back.
The number of cycles that pay it back assumes that the same shapes come again; where shapes stay new, it never is.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires at most once: for the pair without and with benchmark where it loses, else for the slowest new shapes."""
    losing = [pair for pair in pairs(report.schedules) if _loses(pair)]
    slow = [schedule for schedule in report.schedules if _is_slow(schedule)]
    if losing:
        pair = max(losing, key=lambda pair: total_ns(pair.on) / total_ns(pair.off))
        yield _lost(report, pair)
    elif slow:
        # the configuration as it is comes first: it is what runs today
        yield _slow(next((s for s in slow if not s.benchmark), slow[0]), slow)


def _is_slow(schedule: ShapeSchedule) -> bool:
    shapes = [time for time in shape_times(schedule) if not time.last_batch]
    again = [time for time in shapes if time.factor is not None]
    factor = new_factor(schedule)
    return factor is not None and factor > FACTOR and len(shapes) > SHAPES and len(again) >= FEWEST


def _loses(pair: SchedulePair) -> bool:
    off, on = total_ns(pair.off), total_ns(pair.on)
    return off > 0 and on - off > max(WORTH * off, _scatter_ns(pair) * len(cycle_times(pair.off)))


def _scatter_ns(pair: SchedulePair) -> int:
    """How far two cycles of one schedule differed that met no new shape: the noise of a cycle."""
    cycles = [(cycle_ns(schedule, 2), cycle_ns(schedule, 3)) for schedule in (pair.off, pair.on)]
    return max((abs(a - b) for a, b in cycles if a is not None and b is not None), default=0)


def _lost(report: Report, pair: SchedulePair) -> Finding:
    off, on = total_ns(pair.off), total_ns(pair.on)
    cycles = _cycles_to_pay(pair)
    steps = cycles * cycle_times(pair.off)[0].steps if cycles is not None else None
    planned = report.asked.steps_planned if report.asked is not None else None
    pays = steps is not None and planned is not None and steps <= planned
    return RULE.finding(
        severity="low" if pays else "high" if on > HIGH * off else "medium",
        title=f"Over {_shapes(pair.off)}, cudnn.benchmark=True takes {text(on, 'ns')} instead of {text(off, 'ns')}",
        explanation=sentences(
            "Its search runs anew for every shape.",
            f"{_by_cycle(pair.on)}; without it {_by_cycle(pair.off, capital=False)}.",
            _payback(cycles, steps, planned) if _comes_again(pair) else "",
            _last(pair.on, pair.off),
            _new(pair.off) if _is_slow(pair.off) else "",
        ),
        advice=_advice(pair.on, leave=not pays),
        evidence=(
            Evidence(name="schedule with benchmark", value=on, unit="ns", where=pair.on.config),
            Evidence(name="schedule without benchmark", value=off, unit="ns", where=pair.off.config),
            *_evidence(pair.off),
            *_evidence(pair.on),
            *_paid(pair, cycles),
        ),
        weight=(on - off) / on,
    )


def _slow(schedule: ShapeSchedule, slow: list[ShapeSchedule]) -> Finding:
    factor = new_factor(schedule) or 0.0  # known, as the schedule is slow
    others = [other for other in slow if other is not schedule]
    return RULE.finding(
        severity="low" if schedule.benchmark else "medium",
        title=f'The first step of a new shape takes {times(factor)} a later one\'s, under "{schedule.config}"',
        explanation=sentences(
            f"Over {_shapes(schedule)}, what is kept per shape is made in its first step.",
            f"{_by_cycle(schedule)}.",
            _new(schedule),
            _last(schedule, None),
            " ".join(f'Under "{o.config}" it is {times(new_factor(o) or 0.0)}.' for o in others),
        ),
        advice=_advice(schedule, leave=False),
        evidence=(
            Evidence(name="new shape's step over a seen one's", value=factor, unit="ratio", where=schedule.config),
            *_evidence(schedule),
        ),
        weight=1.0 - 1.0 / factor,
    )


def _cycles_to_pay(pair: SchedulePair) -> int | None:
    """After how many passes over the same shapes the search is paid back; None where it never is, or that is not known."""
    if not _comes_again(pair):
        return None
    offs, ons = cycle_times(pair.off), cycle_times(pair.on)
    saved_ns = min(time.ns for time in offs[1:]) - min(time.ns for time in ons[1:])
    if saved_ns <= _scatter_ns(pair):
        return None
    return 1 + math.ceil(max(0, ons[0].ns - offs[0].ns) / saved_ns)


def _comes_again(pair: SchedulePair) -> bool:
    """Whether the schedule ran through its shapes more than once, so that cycles without new ones are known."""
    return len(cycle_times(pair.off)) > 1


def _payback(cycles: int | None, steps: int | None, planned: int | None) -> str:
    if cycles is None:
        return "The cycles after the first do not gain enough to pay that back."
    said = f"If the same shapes come again, that is paid back after {plural(cycles, 'cycle')} ({plural(steps or 0, 'step')})"
    if planned is None:
        return f"{said}."
    return f"{said}: {'within' if (steps or 0) <= planned else 'beyond'} the {planned:,} planned."


def _shapes(schedule: ShapeSchedule) -> str:
    count = len([time for time in shape_times(schedule) if not time.last_batch])
    return f"{plural(len(schedule.steps), 'step')} of {plural(count, 'shape')}"


def _by_cycle(schedule: ShapeSchedule, *, capital: bool = True) -> str:
    cycles = cycle_times(schedule)
    what = "cycles" if len(cycles) > 1 else plural(len(schedule.steps), "step")
    return f"{'The' if capital else 'the'} {what} take {', '.join(text(time.ns, 'ns') for time in cycles)}"


def _new(schedule: ShapeSchedule) -> str:
    new, seen, factor = new_ns(schedule), seen_ns(schedule), new_factor(schedule)
    if new is None or seen is None or factor is None:
        return ""
    return (
        f'Under "{schedule.config}" the median step of a new shape is {text(new, "ns")}, of a seen one {text(seen, "ns")}; '
        f"shape by shape that is {times(factor)}."
    )


def _last(schedule: ShapeSchedule, without: ShapeSchedule | None) -> str:
    last = last_batch(schedule)
    if last is None:
        return ""
    said = f"A smaller last batch costs {text(last.first_ns, 'ns')} the first time"
    other = last_batch(without) if without is not None else None
    said += f" with it, {text(other.first_ns, 'ns')} without" if other is not None else ""
    return f"{said}, {text(last.seen_ns, 'ns')} later." if last.seen_ns is not None else f"{said}."


def _advice(schedule: ShapeSchedule, *, leave: bool) -> str:
    few = "Have fewer shapes: sort sizes into a few buckets and pad within each, and drop a smaller last batch (drop_last=True)."
    if leave and schedule.benchmark:
        return f"Leave torch.backends.cudnn.benchmark at False while shapes change. {few}"
    return few


def _evidence(schedule: ShapeSchedule) -> Iterator[Evidence]:
    """The numbers of one schedule: every cycle, new and seen shapes, the last batch."""
    for time in cycle_times(schedule):
        yield Evidence(name=f"cycle {time.cycle}", value=time.ns, unit="ns", where=schedule.config)
    last = last_batch(schedule)
    yield from known(
        schedule.config,
        ("new shape's step", new_ns(schedule), "ns"),
        ("seen shape's step", seen_ns(schedule), "ns"),
        ("last batch, first time", last.first_ns if last is not None else None, "ns"),
        ("last batch, later", last.seen_ns if last is not None else None, "ns"),
    )


def _paid(pair: SchedulePair, cycles: int | None) -> Iterator[Evidence]:
    if cycles is not None:
        yield Evidence(name="cycles that pay it back", value=cycles, unit="count", where=pair.on.config)
    elif _comes_again(pair):
        yield Evidence(name="cycles that pay it back", value="never", unit="text", where=pair.on.config)


RULE = Rule("changing_shapes", DOC, check, "remedy")
