"""Takes a ratio of times, and a pair of memory peaks, apart into what they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from profiler_kit.records.comparison import MEMORY_PARTS, MemoryPart, MemorySplit, PartBytes, Side, TimeRatio
from profiler_kit.records.counts import MemoryCategories
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun, PeakMemory
from profiler_kit.units import text


def examples(run: ConfigRun, side: Side) -> int | None:
    """How many examples a step of `run` holds; the target's batch where the run does not say."""
    return run.samples if run.samples is not None else side.samples


def work_scale(run: ConfigRun, side: Side) -> Fraction:
    """A step's work in `run` over the counted one: other than 1 where the configuration changes the batch."""
    return Fraction(run.samples, side.samples) if run.samples and side.samples else Fraction(1)


def time_ratio(a: Report, b: Report, a_run: ConfigRun, b_run: ConfigRun, sides: tuple[Side, Side]) -> TimeRatio | None:
    """The two runs' step-time ratio as work and efficiency; None without samples, or without counted work on both sides."""
    if a_run.step_ns is None or b_run.step_ns is None or a.static is None or b.static is None:
        return None
    a_ns, b_ns = a_run.step_ns.median, b_run.step_ns.median
    a_flops = round(a.static.step.flops * work_scale(a_run, sides[0]))
    b_flops = round(b.static.step.flops * work_scale(b_run, sides[1]))
    if min(a_ns, b_ns, a_flops, b_flops) <= 0:
        return None
    ratio, work = b_ns / a_ns, b_flops / a_flops
    a_rate, b_rate = a_flops / a_ns * 1e9, b_flops / b_ns * 1e9
    a_samples, b_samples = examples(a_run, sides[0]), examples(b_run, sides[1])
    per_sample = None
    if a_samples and b_samples and a_samples != b_samples:
        per_sample = ratio * a_samples / b_samples
    labels = (sides[0].label, sides[1].label)
    told = _time_sentence(labels, (a_ns, b_ns), (a_flops, b_flops), (a_rate, b_rate))
    if per_sample is not None:
        told += _per_sample(per_sample, labels, (a_samples, b_samples))
    return TimeRatio(
        config=a_run.config.name,
        a_ns=a_ns,
        b_ns=b_ns,
        time_ratio=ratio,
        a_flops=a_flops,
        b_flops=b_flops,
        work_ratio=work,
        a_flops_per_s=a_rate,
        b_flops_per_s=b_rate,
        efficiency_ratio=b_rate / a_rate,
        per_sample_ratio=per_sample,
        sentence=told,
        a_samples=a_samples,
        b_samples=b_samples,
    )


def _time_sentence(
    labels: tuple[str, str], times_ns: tuple[int, int], flops: tuple[int, int], rates: tuple[float, float]
) -> str:
    """The ratio told from the slower side: ``V0 takes 4.05x the time of V1: 3.32x the work at 0.82x the efficiency``."""
    slow, fast = (1, 0) if times_ns[1] >= times_ns[0] else (0, 1)
    return (
        f"{labels[slow]} takes {text(times_ns[slow] / times_ns[fast], 'ratio')} the time of {labels[fast]}: "
        f"{text(flops[slow] / flops[fast], 'ratio')} the work at {text(rates[slow] / rates[fast], 'ratio')} the efficiency "
        f"({text(times_ns[slow], 'ns')} and {text(times_ns[fast], 'ns')} a step, "
        f"{text(rates[slow], 'flops/s')} and {text(rates[fast], 'flops/s')})."
    )


def _per_sample(ratio: float, labels: tuple[str, str], samples: tuple[int | None, int | None]) -> str:
    """The ratio per example, told from the side that takes longer for one."""
    slow, fast = (1, 0) if ratio >= 1 else (0, 1)
    each = ratio if slow == 1 else 1 / ratio
    return (
        f" Per sample {labels[slow]} takes {text(each, 'ratio')} the time ({samples[slow]} and {samples[fast]} a step)."
    )


def memory_splits(a: Report, b: Report, shared: Sequence[tuple[ConfigRun, ConfigRun]]) -> tuple[MemorySplit, ...]:
    """Both peaks taken apart under every shared configuration that measured them, then as predicted from tensor lifetimes."""
    splits = [
        _split(one.config.name, (one.memory.peak_bytes, other.memory.peak_bytes), (one.memory, other.memory))
        for one, other in shared
        if one.memory is not None and other.memory is not None
    ]
    if a.static and b.static and a.static.memory and b.static.memory:
        before, after = a.static.memory, b.static.memory
        splits.append(_split(None, (before.peak_bytes, after.peak_bytes), (before.categories, after.categories)))
    return tuple(splits)


def _split(
    config: str | None, peaks: tuple[int, int], of: tuple[PeakMemory | MemoryCategories, PeakMemory | MemoryCategories]
) -> MemorySplit:
    before, after = (_parts(peak_bytes, one) for peak_bytes, one in zip(peaks, of, strict=True))
    return MemorySplit(
        config=config,
        a_peak_bytes=peaks[0],
        b_peak_bytes=peaks[1],
        parts=tuple(PartBytes(part=part, a=before[part], b=after[part]) for part in MEMORY_PARTS),
    )


def _parts(peak_bytes: int, of: PeakMemory | MemoryCategories) -> dict[MemoryPart, int | None]:
    parts: dict[MemoryPart, int | None] = {part: getattr(of, part) for part in MEMORY_PARTS if part != "rest"}
    # temporaries, what the probe calls rest, and whatever an older report's parts leave over: the parts always make the peak
    parts["rest"] = peak_bytes - sum(value or 0 for value in parts.values())
    return parts
