"""Changing input shapes, and new threads: what libraries prepare again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.pairs import measured_runs
from profiler_kit.diagnosis.phrases import (
    Advice,
    advise,
    factor_text,
    join_list,
    join_sentences,
    limit_percent,
    plural,
    quoted_name,
)
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.diagnosis.timing import ratio
from profiler_kit.records.experiments import ShapeSchedule
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.schedules import (
    SchedulePair,
    benchmark_pairs,
    cycle_ns,
    cycle_times,
    last_batch,
    new_shape_factor,
    new_shape_ns,
    repeated_shape_ns,
    shape_times,
    total_ns,
)
from profiler_kit.statistics.noise import MIN_USEFUL_SAVING
from profiler_kit.units import text

# A new shape also allocates memory of its size. Beyond three times a later step, algorithms are chosen or compiled.
MIN_NEW_SHAPE_FACTOR: Final = 3.0
# With this few shapes, first steps are start-up cost and soon over. A data loader with varying sizes gives more.
MAX_FEW_SHAPES: Final = 8
# A median over fewer repeated shapes is one or two individual shapes.
MIN_REPEATED_SHAPES: Final = 3
# Above twice the time for the same steps, the search takes as long as the training.
HIGH_FACTOR: Final = 2.0


def _changing_shapes(report: Report) -> Iterator[Finding]:
    """Yield at most one finding: for the pair that loses most by benchmark, otherwise for the slowest new shapes."""
    losing_pairs = [pair for pair in benchmark_pairs(report.schedules) if _is_slower_with_benchmark(pair)]
    slow_schedules = [schedule for schedule in report.schedules if _is_slow(schedule)]
    if losing_pairs:
        pair = max(losing_pairs, key=lambda pair: total_ns(pair.on) / total_ns(pair.off))
        yield _benchmark_finding(report, pair)
    elif slow_schedules:
        # the schedule without benchmark comes first: it is the code as users run it today
        schedule = next((s for s in slow_schedules if not s.benchmark), slow_schedules[0])
        yield _new_shape_finding(schedule, slow_schedules)


def _is_slow(schedule: ShapeSchedule) -> bool:
    shapes = [time for time in shape_times(schedule) if not time.last_batch]
    repeated = [time for time in shapes if time.factor is not None]
    factor = new_shape_factor(schedule)
    if factor is None or len(shapes) <= MAX_FEW_SHAPES or len(repeated) < MIN_REPEATED_SHAPES:
        return False
    return factor > MIN_NEW_SHAPE_FACTOR


def _is_slower_with_benchmark(pair: SchedulePair) -> bool:
    off, on = total_ns(pair.off), total_ns(pair.on)
    return off > 0 and on - off > max(MIN_USEFUL_SAVING * off, _cycle_noise_ns(pair) * len(cycle_times(pair.off)))


def _cycle_noise_ns(pair: SchedulePair) -> int:
    """The difference between two cycles of one schedule that had no new shape; the larger of both schedules."""
    cycles = [(cycle_ns(schedule, 2), cycle_ns(schedule, 3)) for schedule in (pair.off, pair.on)]
    return max((abs(a - b) for a, b in cycles if a is not None and b is not None), default=0)


def _benchmark_finding(report: Report, pair: SchedulePair) -> Finding:
    off, on = total_ns(pair.off), total_ns(pair.on)
    cycles = _break_even_cycles(pair)
    steps = cycles * cycle_times(pair.off)[0].steps if cycles is not None else None
    planned_steps = report.asked.steps_planned if report.asked is not None else None
    pays = steps is not None and planned_steps is not None and steps <= planned_steps
    return new_finding(
        severity="low" if pays else "high" if on > HIGH_FACTOR * off else "medium",
        title=f"cudnn.benchmark=True takes {text(on, 'ns')} instead of {text(off, 'ns')} over {_schedule_size(pair.off)}",
        explanation=join_sentences(
            "The algorithm search runs again for every shape. A cycle is one pass over the shapes.",
            f"With benchmark {_cycle_durations(pair.on)}.",
            f"Without benchmark {_cycle_durations(pair.off)}.",
            _break_even(cycles, steps, planned_steps) if _repeats_shapes(pair) else "",
            _last_batch(pair.on, pair.off),
            _new_shapes(pair.off) if _is_slow(pair.off) else "",
        ),
        advice=_shapes_advice(disable_benchmark=bool(pair.on.benchmark) and not pays),
        evidence=(
            Evidence(name="schedule with benchmark", value=on, unit="ns", where=pair.on.config),
            Evidence(name="schedule without benchmark", value=off, unit="ns", where=pair.off.config),
            *_evidence(pair.off),
            *_evidence(pair.on),
            *_break_even_evidence(pair, cycles),
        ),
        weight=(on - off) / on,
    )


def _new_shape_finding(schedule: ShapeSchedule, slow_schedules: list[ShapeSchedule]) -> Finding:
    factor = new_shape_factor(schedule) or 0.0  # not None: the schedule is slow
    others = [other for other in slow_schedules if other is not schedule]
    return new_finding(
        severity="low" if schedule.benchmark else "medium",
        title=f'New input shapes are slow in "{schedule.config}": the first step of a shape takes {factor_text(factor)} '
        "as long as later ones",
        explanation=join_sentences(
            f"The run has {_schedule_size(schedule)}. The first step of a shape chooses algorithms "
            "and allocates memory; later steps reuse both.",
            f"In order, {_cycle_durations(schedule)}.",
            _new_shapes(schedule),
            _last_batch(schedule, None),
            " ".join(f'In "{o.config}" the factor is {factor_text(new_shape_factor(o) or 0.0)}.' for o in others),
        ),
        advice=_shapes_advice(disable_benchmark=False),
        evidence=(
            Evidence(name="new shape's step over a repeated one's", value=factor, unit="ratio", where=schedule.config),
            *_evidence(schedule),
        ),
        weight=1.0 - 1.0 / factor,
    )


def _break_even_cycles(pair: SchedulePair) -> int | None:
    """The number of cycles over the same shapes after which the search breaks even; None if never, or if it is unknown."""
    if not _repeats_shapes(pair):
        return None
    off_cycles, on_cycles = cycle_times(pair.off), cycle_times(pair.on)
    saved_ns = min(time.ns for time in off_cycles[1:]) - min(time.ns for time in on_cycles[1:])
    if saved_ns <= _cycle_noise_ns(pair):
        return None
    return 1 + math.ceil(max(0, on_cycles[0].ns - off_cycles[0].ns) / saved_ns)


def _repeats_shapes(pair: SchedulePair) -> bool:
    """Whether the schedule has more than one cycle, so that the time of a cycle without new shapes is known."""
    return len(cycle_times(pair.off)) > 1


def _break_even(cycles: int | None, steps: int | None, planned_steps: int | None) -> str:
    if cycles is None:
        return "Later cycles do not save enough to break even."
    sentence = (
        f"If the same shapes come again, it breaks even after {plural(cycles, 'cycle')} ({plural(steps or 0, 'step')})"
    )
    if planned_steps is None:
        return f"{sentence}."
    return f"{sentence}, {'within' if (steps or 0) <= planned_steps else 'beyond'} the {planned_steps:,} planned steps."


def _schedule_size(schedule: ShapeSchedule) -> str:
    count = len([time for time in shape_times(schedule) if not time.last_batch])
    return f"{plural(len(schedule.steps), 'step')} of {plural(count, 'shape')}"


def _cycle_durations(schedule: ShapeSchedule) -> str:
    cycles = cycle_times(schedule)
    subject = "cycles" if len(cycles) > 1 else plural(len(schedule.steps), "step")
    return f"the {subject} take {', '.join(text(time.ns, 'ns') for time in cycles)}"


def _new_shapes(schedule: ShapeSchedule) -> str:
    new, repeated, factor = new_shape_ns(schedule), repeated_shape_ns(schedule), new_shape_factor(schedule)
    if new is None or repeated is None or factor is None:
        return ""
    return (
        f'In "{schedule.config}" the median step takes {text(new, "ns")} with a new shape and {text(repeated, "ns")} with a '
        f"repeated shape. The median ratio per shape is {factor_text(factor)}."
    )


def _last_batch(schedule: ShapeSchedule, without: ShapeSchedule | None) -> str:
    last = last_batch(schedule)
    if last is None:
        return ""
    baseline = last_batch(without) if without is not None else None
    sentence = f"The smaller last batch takes {text(last.first_ns, 'ns')}"
    if baseline is not None:
        sentence += f" with benchmark and {text(baseline.first_ns, 'ns')} without"
    return f"{sentence} the first time" + (f", later {text(last.seen_ns, 'ns')}." if last.seen_ns is not None else ".")


def _shapes_advice(*, disable_benchmark: bool) -> Advice:
    leave = "Leave torch.backends.cudnn.benchmark at False while shapes change. " if disable_benchmark else ""
    return advise(
        f"{leave}Reduce the number of shapes: sort sizes into a few buckets, pad within each bucket, and drop a smaller last "
        "batch ({code}).",
        "drop_last=True",
    )


def _evidence(schedule: ShapeSchedule) -> Iterator[Evidence]:
    """The numbers of one schedule: each cycle, steps of new and repeated shapes, the last batch."""
    for time in cycle_times(schedule):
        yield Evidence(name=f"cycle {time.cycle}", value=time.ns, unit="ns", where=schedule.config)
    last = last_batch(schedule)
    yield from evidence_of(
        schedule.config,
        ("new shape's step", new_shape_ns(schedule), "ns"),
        ("repeated shape's step", repeated_shape_ns(schedule), "ns"),
        ("last batch, first time", last.first_ns if last is not None else None, "ns"),
        ("last batch, later", last.seen_ns if last is not None else None, "ns"),
    )


def _break_even_evidence(pair: SchedulePair, cycles: int | None) -> Iterator[Evidence]:
    if cycles is not None:
        yield Evidence(name="break-even cycles", value=cycles, unit="count", where=pair.on.config)
    elif _repeats_shapes(pair):
        yield Evidence(name="break-even cycles", value="never", unit="text", where=pair.on.config)


CHANGING_SHAPES = Rule(
    "changing_shapes",
    f"""
Fires on a run over changing shapes (`--shapes`) in two cases:

- The same schedule of shapes takes longer with `cudnn.benchmark=True` than without. The algorithm search runs again for every
  shape and for a smaller last batch, and costs more than it gains. The difference must exceed
  {limit_percent(MIN_USEFUL_SAVING)} of the schedule, and the difference between two cycles without a new shape.
- The first step of a shape takes more than {MIN_NEW_SHAPE_FACTOR:g}x its later steps, and there are more than
  {MAX_FEW_SHAPES} shapes. The factor is the median over all shapes that repeat, each compared with itself.

Severity:

- `high`: benchmark makes the schedule more than {HIGH_FACTOR:g}x as long.
- `medium`: benchmark makes it longer, or new shapes are slow without benchmark.
- `low`: the planned steps (`--steps-planned`) are enough to break even, or new shapes are slow only with benchmark.

The break-even number of cycles assumes that the same shapes come again. If shapes stay new, the search never breaks even.
""",
    _changing_shapes,
    "remedy",
    needs_runs=False,
)


# A thread starts with cold caches and an empty queue. A factor of five means that cuDNN selects algorithms again.
MIN_FACTOR: Final = 5.0
# The start of a thread takes a fraction of this.
MIN_EXTRA_NS: Final = 1_000_000
# From here on, the delay of every new thread is visible to a user.
LONG_EXTRA_NS: Final = 1_000_000_000


def _new_thread(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for the baseline or the run with the longest delay."""
    slow_runs = [(run, factor) for run in measured_runs(report) if (factor := _factor(run)) is not None]
    if not slow_runs:
        return
    baseline = report.baseline()
    slowest = max(slow_runs, key=lambda item: _extra_ns(item[0]))
    run, factor = next((item for item in slow_runs if item[0] is baseline), slowest)
    assert run.new_thread is not None  # it has a factor
    first_ns, steady_ns = run.new_thread.first_ns, run.new_thread.steady_ns
    others = [
        f"{quoted_name(other)} ({factor_text(other_factor)})" for other, other_factor in slow_runs if other is not run
    ]
    yield new_finding(
        severity="medium" if run is baseline and first_ns - steady_ns >= LONG_EXTRA_NS else "low",
        title=f"New threads start slowly: their first forward pass takes {factor_text(factor)} as long as later ones "
        f"({text(first_ns, 'ns')}, then {text(steady_ns, 'ns')})",
        explanation=join_sentences(
            f"In {quoted_name(run)} the main thread had run the same shapes before. cuDNN caches its execution plans "
            "per thread, so a new thread "
            f"{'repeats the algorithm search' if run.config.benchmark else 'selects its algorithms again'}.",
            f"The same holds for {join_list(others)}." if others else "",
        ),
        advice="Reuse threads (a pool of fixed size, warmed up once). DataParallel starts new threads in every step; "
        "DistributedDataParallel does not.",
        evidence=(
            Evidence(name="first pass over steady pass", value=factor, unit="ratio", where=run.config.name),
            *(
                item
                for other, _ in slow_runs
                if (thread := other.new_thread) is not None
                for item in evidence_of(
                    other.config.name,
                    ("first pass in a new thread", thread.first_ns, "ns"),
                    ("steady pass in the new thread", thread.steady_ns, "ns"),
                )
            ),
        ),
        weight=1.0 - 1.0 / factor,
    )


def _factor(run: ConfigRun) -> float | None:
    """Return first pass over steady pass in a new thread; None if it is unknown or below the limits."""
    if run.new_thread is None or _extra_ns(run) < MIN_EXTRA_NS:
        return None
    factor = ratio(run.new_thread.first_ns, run.new_thread.steady_ns)
    return factor if factor is not None and factor > MIN_FACTOR else None


def _extra_ns(run: ConfigRun) -> int:
    return run.new_thread.first_ns - run.new_thread.steady_ns if run.new_thread is not None else 0


NEW_THREAD = Rule(
    "new_thread",
    f"""
Fires if the first forward pass in a new thread takes more than {MIN_FACTOR:g}x as long as a steady pass in that thread, and at
least {text(MIN_EXTRA_NS, "ns")} longer, although the main thread has run the same shapes before.

- `medium`: the baseline is affected, and the first pass takes at least {text(LONG_EXTRA_NS, "ns")} longer.
- `low`: otherwise.

cuDNN caches its execution plans per thread. A new thread selects them again, and with `cudnn.benchmark=True` it repeats the
algorithm search. A server with one thread per request has this delay in every request; `nn.DataParallel`, which starts threads in
every step, has it in every step. The creation of a cuDNN handle is not part of the measured time.

The rule yields one finding: for the baseline if it is affected, else for the run with the longest delay. It names the other runs.
""",
    _new_thread,
    "note",
)
