"""Time ratios split into work and efficiency, memory peaks split into their parts, and the cases of usual explanations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from profiler_kit.records.comparison import (
    MEMORY_PARTS,
    ExplanationVerdict,
    MemoryPart,
    MemorySplit,
    PartBytes,
    Side,
    TimeRatio,
)
from profiler_kit.records.counts import MemoryCategories
from profiler_kit.records.report import Evidence, Report
from profiler_kit.records.runs import ConfigRun, PeakMemory
from profiler_kit.records.uncounted import reason_of_unknown_work
from profiler_kit.units import Unit, text

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


def example_count(run: ConfigRun, side: Side) -> int | None:
    """The number of examples in a step of `run`; the target's batch size if the run does not record it."""
    return run.samples if run.samples is not None else side.samples


def work_scale(run: ConfigRun, side: Side) -> Fraction:
    """The work of a step of `run` over the counted work: not 1 if the configuration changes the batch size."""
    return Fraction(run.samples, side.samples) if run.samples and side.samples else Fraction(1)


def time_ratio(a: Report, b: Report, a_run: ConfigRun, b_run: ConfigRun, sides: tuple[Side, Side]) -> TimeRatio | None:
    """Split the ratio of two step times into work and efficiency; None without step times or counted work on both sides.

    Unknown work leaves the ratio of the times alone.
    """
    if a_run.step_ns is None or b_run.step_ns is None or a.static is None or b.static is None:
        return None
    a_ns, b_ns = a_run.step_ns.median, b_run.step_ns.median
    a_flops = round(a.static.step.flops * work_scale(a_run, sides[0]))
    b_flops = round(b.static.step.flops * work_scale(b_run, sides[1]))
    if min(a_ns, b_ns, a_flops, b_flops) <= 0:
        return None
    step_ratio, work_ratio = b_ns / a_ns, b_flops / a_flops
    a_rate, b_rate = a_flops / a_ns * 1e9, b_flops / b_ns * 1e9
    a_examples, b_examples = example_count(a_run, sides[0]), example_count(b_run, sides[1])
    per_example = None
    if a_examples and b_examples and a_examples != b_examples:
        per_example = step_ratio * a_examples / b_examples
    labels = (sides[0].label, sides[1].label)
    is_work_known = not reason_of_unknown_work(a.static, b.static)
    if per_example is not None:  # steps of different size: only the times per example compare
        sentence = _per_example_sentence(per_example, labels, (a_examples, b_examples))
    elif not is_work_known:
        sentence = f"{_time_alone(labels, (a_ns, b_ns))}."
    else:
        sentence = _time_sentence(labels, (a_ns, b_ns), (a_flops, b_flops), (a_rate, b_rate))
    return TimeRatio(
        config=a_run.config.name,
        a_ns=a_ns,
        b_ns=b_ns,
        time_ratio=step_ratio,
        a_flops=a_flops,
        b_flops=b_flops,
        work_ratio=work_ratio if is_work_known else None,
        a_flops_per_s=a_rate,
        b_flops_per_s=b_rate,
        efficiency_ratio=b_rate / a_rate if is_work_known else None,
        per_sample_ratio=per_example,
        sentence=sentence,
        a_samples=a_examples,
        b_samples=b_examples,
    )


def _time_sentence(
    labels: tuple[str, str], times_ns: tuple[int, int], flops: tuple[int, int], rates: tuple[float, float]
) -> str:
    """State the ratio with the slower side first: ``V0 takes 4.05x the time of V1: 3.32x the work at 0.82x the efficiency``."""
    slow, fast = (1, 0) if times_ns[1] >= times_ns[0] else (0, 1)
    return (
        f"{_time_alone(labels, times_ns)}: {text(flops[slow] / flops[fast], 'ratio')} the work "
        f"at {text(rates[slow] / rates[fast], 'ratio')} the efficiency "
        f"({text(times_ns[slow], 'ns')} and {text(times_ns[fast], 'ns')} per step, "
        f"{text(rates[slow], 'flops/s')} and {text(rates[fast], 'flops/s')})."
    )


def _time_alone(labels: tuple[str, str], times_ns: tuple[int, int]) -> str:
    slow, fast = (1, 0) if times_ns[1] >= times_ns[0] else (0, 1)
    return f"{labels[slow]} takes {text(times_ns[slow] / times_ns[fast], 'ratio')} the time of {labels[fast]}"


def _per_example_sentence(b_over_a: float, labels: tuple[str, str], examples: tuple[int | None, int | None]) -> str:
    """State the ratio per example with the slower side first."""
    slow, fast = (1, 0) if b_over_a >= 1 else (0, 1)
    slow_over_fast = b_over_a if slow == 1 else 1 / b_over_a
    return (
        f"Per example, {labels[slow]} takes {text(slow_over_fast, 'ratio')} the time "
        f"({examples[slow]} and {examples[fast]} examples per step)."
    )


def memory_splits(
    a: Report, b: Report, shared_runs: Sequence[tuple[ConfigRun, ConfigRun]], *, with_predicted: bool = True
) -> tuple[MemorySplit, ...]:
    """Both peaks split into parts: measured under every shared configuration, then predicted from tensor lifetimes.

    `with_predicted`: whether the predicted peaks are comparable.
    """
    splits = [
        _memory_split(
            a_run.config.name, (a_run.memory.peak_bytes, b_run.memory.peak_bytes), (a_run.memory, b_run.memory)
        )
        for a_run, b_run in shared_runs
        if a_run.memory is not None and b_run.memory is not None
    ]
    if with_predicted and a.static and b.static and a.static.memory and b.static.memory:
        before, after = a.static.memory, b.static.memory
        splits.append(_memory_split(None, (before.peak_bytes, after.peak_bytes), (before.categories, after.categories)))
    return tuple(splits)


def _memory_split(
    config: str | None,
    peaks: tuple[int, int],
    memories: tuple[PeakMemory | MemoryCategories, PeakMemory | MemoryCategories],
) -> MemorySplit:
    before, after = (_peak_parts(peak_bytes, memory) for peak_bytes, memory in zip(peaks, memories, strict=True))
    return MemorySplit(
        config=config,
        a_peak_bytes=peaks[0],
        b_peak_bytes=peaks[1],
        parts=tuple(PartBytes(part=part, a=before[part], b=after[part]) for part in MEMORY_PARTS),
    )


def _peak_parts(peak_bytes: int, memory: PeakMemory | MemoryCategories) -> dict[MemoryPart, int | None]:
    parts: dict[MemoryPart, int | None] = {part: getattr(memory, part, None) for part in MEMORY_PARTS if part != "rest"}
    # the probe's rest, and bytes that an older report's parts do not cover: all parts sum to the peak
    parts["rest"] = peak_bytes - sum(value or 0 for value in parts.values())
    return parts
