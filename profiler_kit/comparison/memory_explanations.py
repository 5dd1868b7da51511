"""The usual explanations of memory, put to the test: activations, and what checkpointing would do."""

from __future__ import annotations

from functools import partial
from typing import Final

from profiler_kit.comparison.cases import Case, apart, judged, larger_first
from profiler_kit.comparison.layer_algorithms import workspace_algorithm
from profiler_kit.records.comparison import PART_TITLES, Explanation, ExplanationVerdict, PartBytes
from profiler_kit.records.counts import WhatIf
from profiler_kit.records.report import Evidence, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.report_noise import noise_between
from profiler_kit.units import bytes_text, percent, signed, text

CHECKPOINT: Final = "checkpoint"  # the setting that a checkpointed run has
SMALL_SHARE: Final = 0.1  # of the peak: where less is kept for backward, letting go of all of it changes little

_explained: Final = partial(Explanation, key="checkpointing", explanation="Checkpointing would help")


def activations(case: Case) -> Explanation | None:
    """What becomes of "more memory is more activations": who peaks higher, who saves more, and what is there instead."""
    split = case.memory
    if split is None or case.a.static is None or case.b.static is None:
        return None
    saved = (case.a.static.saved_bytes, case.b.static.saved_bytes)
    peaks = (split.a_peak_bytes, split.b_peak_bytes)
    if not apart(peaks) or max(saved) <= 0:
        return None
    high, low = larger_first(peaks)
    peaker, other = case.label(high), case.label(low)
    gap, saved_gap = peaks[high] - peaks[low], saved[high] - saved[low]
    grown, cause = max(((_of(part, high) - _of(part, low), part) for part in split.parts), key=lambda pair: pair[0])
    verdict: ExplanationVerdict = "wrong"
    off_by = None
    if saved_gap > 0:
        verdict, off_by = judged(gap, saved_gap)
    by = _workspace_words(case, high) if cause.part == "workspace" else ""
    less = "less" if saved_gap < 0 else "more"
    although = "although" if saved_gap <= 0 else "and"
    how_much = f"saves {less} for backward ({bytes_text(saved[high])}, {bytes_text(saved[low])})"
    if saved_gap == 0:
        how_much = f"saves as much for backward ({bytes_text(saved[high])})"
    return Explanation(
        key="activations",
        config=case.config,
        explanation="More memory = activations",
        predicts=f"{signed(gap, 'bytes')} saved",
        measured=f"{signed(saved_gap, 'bytes')}, {signed(grown, 'bytes')} {PART_TITLES[cause.part]}",
        verdict=verdict,
        sentence=(
            f"{peaker} peaks higher than {other} ({bytes_text(peaks[high])}, {bytes_text(peaks[low])}) {although} it "
            f"{how_much}: at its peak it holds {bytes_text(_of(cause, high))} of {PART_TITLES[cause.part]}{by}, "
            f"{bytes_text(grown)} more than {other}."
        ),
        numbers=(
            *case.evidence("peak", peaks, "bytes"),
            *case.evidence("saved for backward", saved, "bytes"),
            *case.evidence(PART_TITLES[cause.part], (_of(cause, 0), _of(cause, 1)), "bytes"),
        ),
        off_by=off_by,
    )


def _of(part: PartBytes, side: int) -> int:
    return (part.b if side else part.a) or 0


def _workspace_words(case: Case, side: int) -> str:
    """Where a side's peak has its workspace, and which algorithm takes it: `` in conv_r1's forward (FFT in fp32)``."""
    run = case.runs[side] if case.runs is not None else None
    if run is None or run.memory is None:
        return ""
    peak = run.memory
    use = workspace_algorithm(run, peak.peak_path, peak.peak_phase)
    by = use.words if use is not None else peak.peak_op
    return f" in {peak.peak_path or 'the root'}'s {peak.peak_phase} ({by})"


def checkpointing(case: Case) -> Explanation | None:
    """What becomes of "checkpointing would help": measured, else simulated, else bounded by what the peak holds for backward.

    What was run or simulated is told once, beside the first case.
    """
    if case.runs is None:
        return None
    first = case.a.baseline()
    tried = _ran(case) or _simulated(case) if first is not None and case.config == first.config.name else None
    return tried or _bounded(case)


def _ran(case: Case) -> Explanation | None:
    found = [_checkpointed(report) for report in (case.a, case.b)]
    pairs = [pair for pair in found if pair is not None]
    if len(pairs) < 2:
        return None
    times = [
        after.step_ns.median / before.step_ns.median for before, after in pairs if before.step_ns and after.step_ns
    ]
    peaks = [(after.peak_allocated_bytes or 0) / (before.peak_allocated_bytes or 1) for before, after in pairs]
    limit = noise_between(case.a, case.b).limit()
    faster = [one < 1 - limit for one in times]
    smaller = [one < 1 - limit for one in peaks]
    verdict: ExplanationVerdict = "off"
    if not any(faster) or not any(smaller):
        verdict = "wrong"
    elif all(faster) and all(smaller):
        verdict = "right"
    time_words, peak_words = (" and ".join(text(ratio, "ratio") for ratio in ratios) for ratios in (times, peaks))
    told = f"{time_words} the time, {peak_words} the peak"
    return _explained(
        config=case.config,
        predicts="less memory, less time",
        measured=told,
        verdict=verdict,
        sentence=(
            f"Checkpointing ({pairs[0][1].config.setting(CHECKPOINT)}; {pairs[1][1].config.setting(CHECKPOINT)}) makes it "
            f"{told} of {case.label(0)} and {case.label(1)}."
        ),
        numbers=(
            *case.evidence("time with checkpointing over without", times, "ratio"),
            *case.evidence("peak with checkpointing over without", peaks, "ratio"),
        ),
    )


def _checkpointed(report: Report) -> tuple[ConfigRun, ConfigRun] | None:
    """The first run that differs from the baseline in checkpointing alone, after the baseline; both with time and peak."""
    before = report.baseline()
    for after in report.runs:
        alone = [setting.name for setting in after.config.settings] == [CHECKPOINT] and after.failure is None
        alike = before is not None and before.config.flags == after.config.flags
        if before is not None and alone and alike and _measured(before) and _measured(after):
            return before, after
    return None


def _measured(run: ConfigRun) -> bool:
    return run.step_ns is not None and run.step_ns.median > 0 and bool(run.peak_allocated_bytes)


def _simulated(case: Case) -> Explanation | None:
    found = [_what_if(report) for report in (case.a, case.b)]
    changes = [one for one in found if one is not None]
    if len(changes) < 2:
        return None
    peaks = [one.difference_bytes or 0 for one in changes]
    work_more = [(one.recompute_percent or 0.0) for one in changes]
    more = " and ".join(percent(one / 100, 2) for one in work_more)
    return _explained(
        config=case.config,
        predicts="less memory, less time",
        measured=f"{signed(peaks[0], 'bytes')} and {signed(peaks[1], 'bytes')}, {more} more work",
        verdict="off" if min(peaks) < 0 else "wrong",
        sentence=(
            f"Checkpointing {' and '.join(', '.join(one.checkpoint) for one in changes)} would change {case.label(0)}'s peak by "
            f"{signed(peaks[0], 'bytes')} and {case.label(1)}'s by {signed(peaks[1], 'bytes')} (simulated), and add {more} to "
            "the work."
        ),
        numbers=(
            *case.evidence("change of the peak", peaks, "bytes"),
            *case.evidence("work computed again", work_more, "percent"),
        ),
    )


def _what_if(report: Report) -> WhatIf | None:
    memory = report.static.memory if report.static is not None else None
    for answer in memory.what_ifs if memory is not None else ():
        if (
            answer.checkpoint
            and answer.batch is None
            and None not in (answer.difference_bytes, answer.recompute_percent)
        ):
            return answer
    return None


def _bounded(case: Case) -> Explanation | None:
    """What checkpointing can take off the higher peak at most: what is kept for backward there."""
    split = case.memory
    if split is None:
        return None
    peaks = (split.a_peak_bytes, split.b_peak_bytes)
    high, _ = larger_first(peaks)
    kept = next((_of(part, high) for part in split.parts if part.part == "saved_activations"), 0)
    known = all(part.a is not None and part.b is not None for part in split.parts if part.part == "saved_activations")
    if not apart(peaks) or not known or kept >= SMALL_SHARE * peaks[high]:
        return None
    at_most = f"at most {bytes_text(kept)} of {bytes_text(peaks[high])}"
    return _explained(
        config=case.config,
        predicts="less memory",
        measured=at_most,
        verdict="wrong",
        sentence=f"Checkpointing can take {at_most} off {case.label(high)}'s peak: no more of it is kept for backward.",
        numbers=(
            Evidence(name="peak", value=peaks[high], unit="bytes", where=case.label(high)),
            Evidence(name="saved activations at the peak", value=kept, unit="bytes", where=case.label(high)),
        ),
    )
