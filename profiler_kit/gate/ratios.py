"""Takes a ratio of times, and a pair of memory peaks, apart into what they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast, get_args

from profiler_kit.records.comparison import MemoryPart, MemorySplit, PartBytes, Side, TimeRatio
from profiler_kit.records.counts import MemoryEstimate
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun, PeakMemory
from profiler_kit.units import bytes_text, digits, text

PARTS: Final = cast("tuple[MemoryPart, ...]", get_args(MemoryPart))
PART_TITLES: Final[dict[MemoryPart, str]] = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer_state": "optimizer state",
    "inputs": "inputs",
    "saved_activations": "saved activations",
    "workspace": "workspace",
    "rest": "the rest",
}
OPPOSITE_SHARE: Final = 0.05  # both must differ by this much before "more here, less there" is worth a sentence


def time_ratio(a: Report, b: Report, a_run: ConfigRun, b_run: ConfigRun, sides: tuple[Side, Side]) -> TimeRatio | None:
    """The two runs' step-time ratio as work and efficiency; None without samples, or without counted work on both sides."""
    if a_run.step_ns is None or b_run.step_ns is None or a.static is None or b.static is None:
        return None
    a_ns, b_ns = a_run.step_ns.median, b_run.step_ns.median
    a_flops, b_flops = a.static.step.flops, b.static.step.flops
    if min(a_ns, b_ns, a_flops, b_flops) <= 0:
        return None
    ratio, work = b_ns / a_ns, b_flops / a_flops
    a_rate, b_rate = a_flops / a_ns * 1e9, b_flops / b_ns * 1e9
    a_samples, b_samples = sides[0].samples, sides[1].samples
    per_sample = None
    if a_samples and b_samples and a_samples != b_samples:
        per_sample = ratio * a_samples / b_samples
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
        sentence=_time_sentence(sides, (a_ns, b_ns), (a_flops, b_flops), (a_rate, b_rate), per_sample),
    )


def _time_sentence(
    sides: tuple[Side, Side],
    times_ns: tuple[int, int],
    flops: tuple[int, int],
    rates: tuple[float, float],
    per_sample: float | None,
) -> str:
    """The ratio told from the slower side: ``V0 takes 4.05x the time of V1: 3.32x the work at 0.82x the efficiency``."""
    slow, fast = (1, 0) if times_ns[1] >= times_ns[0] else (0, 1)
    told = (
        f"{sides[slow].label} takes {_factor(times_ns[slow] / times_ns[fast])} the time of {sides[fast].label}: "
        f"{_factor(flops[slow] / flops[fast])} the work at {_factor(rates[slow] / rates[fast])} the efficiency "
        f"({text(times_ns[slow], 'ns')} and {text(times_ns[fast], 'ns')} a step, "
        f"{text(flops[slow], 'flops')} and {text(flops[fast], 'flops')} FLOPs, "
        f"{text(rates[slow], 'flops/s')} and {text(rates[fast], 'flops/s')})."
    )
    if per_sample is None:
        return told
    each = per_sample if slow == 1 else 1 / per_sample
    return (
        f"{told} Per sample it takes {_factor(each)} the time ({sides[slow].samples} and {sides[fast].samples} a step)."
    )


def _factor(value: float) -> str:
    return f"{digits(value, 3)}x"


def memory_splits(a: Report, b: Report, shared: Sequence[tuple[ConfigRun, ConfigRun]]) -> tuple[MemorySplit, ...]:
    """Both peaks taken apart under every shared configuration that measured them, then as predicted from tensor lifetimes."""
    splits = [
        _split(
            one.config.name,
            (one.memory.peak_bytes, other.memory.peak_bytes),
            _measured(one.memory),
            _measured(other.memory),
        )
        for one, other in shared
        if one.memory is not None and other.memory is not None
    ]
    if a.static and b.static and a.static.memory and b.static.memory:
        before, after = a.static.memory, b.static.memory
        splits.append(_split(None, (before.peak_bytes, after.peak_bytes), _predicted(before), _predicted(after)))
    return tuple(splits)


def _split(
    config: str | None,
    peaks: tuple[int, int],
    before: dict[MemoryPart, int | None],
    after: dict[MemoryPart, int | None],
) -> MemorySplit:
    return MemorySplit(
        config=config,
        a_peak_bytes=peaks[0],
        b_peak_bytes=peaks[1],
        parts=tuple(PartBytes(part=part, a=before[part], b=after[part]) for part in PARTS),
    )


def _measured(memory: PeakMemory) -> dict[MemoryPart, int | None]:
    parts: dict[MemoryPart, int | None] = {part: getattr(memory, part) for part in PARTS if part != "rest"}
    # what the probe calls rest, and whatever an older report's parts leave over, so that the parts always make the peak
    parts["rest"] = memory.peak_bytes - sum(value or 0 for value in parts.values())
    return parts


def _predicted(memory: MemoryEstimate) -> dict[MemoryPart, int | None]:
    parts: dict[MemoryPart, int | None] = {part: getattr(memory.categories, part) for part in PARTS if part != "rest"}
    parts["rest"] = memory.peak_bytes - sum(value or 0 for value in parts.values())  # temporaries
    return parts


def opposite_sentence(
    a: Report,
    b: Report,
    split: MemorySplit,
    sides: tuple[Side, Side],
    runs: tuple[ConfigRun | None, ConfigRun | None],
) -> str | None:
    """The sentence for the case that one side saves more for backward and the other peaks higher; None in every other case."""
    if a.static is None or b.static is None:
        return None
    saved = (a.static.saved_bytes, b.static.saved_bytes)
    peaks = (split.a_peak_bytes, split.b_peak_bytes)
    more, high = (0 if saved[0] > saved[1] else 1), (0 if peaks[0] > peaks[1] else 1)
    if more == high or not (_apart(saved) and _apart(peaks)):
        return None
    grown = [(_of(part, high) - _of(part, 1 - high), part) for part in split.parts]
    grown_bytes, cause = max(grown, key=lambda pair: pair[0])
    run = runs[high]
    peak = run.memory if run is not None else None
    where = ""
    if peak is not None and cause.part == "workspace":
        where = f", in {peak.peak_path or 'the root'}'s {peak.peak_phase} ({peak.peak_op})"
    saver, peaker = sides[more].label, sides[high].label
    return (
        f"{saver} saves more for backward ({bytes_text(saved[more])}, {peaker} {bytes_text(saved[high])}), and yet "
        f"{peaker} peaks higher ({bytes_text(peaks[high])}, {saver} {bytes_text(peaks[more])}): at its peak it holds "
        f"{bytes_text(_of(cause, high))} of {PART_TITLES[cause.part]}{where}, {bytes_text(grown_bytes)} more than {saver}."
    )


def _of(part: PartBytes, side: int) -> int:
    return (part.b if side else part.a) or 0


def _apart(pair: tuple[int, int]) -> bool:
    return abs(pair[0] - pair[1]) > OPPOSITE_SHARE * max(pair)
