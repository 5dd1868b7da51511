"""The usual explanations of memory, tested: saved activations, and the effect of checkpointing."""

from __future__ import annotations

from functools import partial
from typing import Final

from profiler_kit.comparison.efficiency import workspace_algorithm
from profiler_kit.comparison.measured_metrics import PEAK_NOISE_SHARE
from profiler_kit.comparison.ratios import Case, differs, judge_prediction, larger_first
from profiler_kit.records.comparison import PART_TITLES, Explanation, ExplanationVerdict, PartBytes
from profiler_kit.records.counts import WhatIf
from profiler_kit.records.report import Evidence, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.report_noise import noise_between
from profiler_kit.units import bytes_text, percent, signed, text

CHECKPOINT: Final = "checkpoint"  # the setting of a run with checkpointing
# Of the peak: if less is saved for backward there, checkpointing everything would hardly change the peak.
MAX_SMALL_SAVED_SHARE: Final = 0.1

_checkpointing_explanation: Final = partial(Explanation, key="checkpointing", explanation="Checkpointing would help")


def explain_by_activations(case: Case) -> Explanation | None:
    """Test "more memory is more activations": the difference of the peaks against the difference saved for backward."""
    split = case.memory
    if split is None or case.a.static is None or case.b.static is None:
        return None
    saved = (case.a.static.saved_bytes, case.b.static.saved_bytes)
    peaks = (split.a_peak_bytes, split.b_peak_bytes)
    if not differs(peaks) or max(saved) <= 0:
        return None
    high, low = larger_first(peaks)
    high_label, low_label = case.label(high), case.label(low)
    peak_gap, saved_gap = peaks[high] - peaks[low], saved[high] - saved[low]
    growth, grown_part = max(
        ((_part_bytes(part, high) - _part_bytes(part, low), part) for part in split.parts), key=lambda pair: pair[0]
    )
    verdict: ExplanationVerdict = "wrong"
    error_factor = None
    if saved_gap > 0:
        verdict, error_factor = judge_prediction(peak_gap, saved_gap)
    location = _workspace_location(case, high) if grown_part.part == "workspace" else ""
    part_title = PART_TITLES[grown_part.part]
    conjunction = "although" if saved_gap <= 0 else "and"
    saved_text = f"saves {'less' if saved_gap < 0 else 'more'} for backward ({bytes_text(saved[high])}, {bytes_text(saved[low])})"
    if saved_gap == 0:
        saved_text = f"saves the same amount for backward ({bytes_text(saved[high])})"
    return Explanation(
        key="activations",
        config=case.config,
        explanation="More memory = activations",
        predicts=f"{signed(peak_gap, 'bytes')} saved",
        measured=f"{signed(saved_gap, 'bytes')}, {signed(growth, 'bytes')} {part_title}",
        verdict=verdict,
        sentence=(
            f"{high_label} has a higher peak than {low_label} ({bytes_text(peaks[high])}, {bytes_text(peaks[low])}) "
            f"{conjunction} it {saved_text}. The largest part of the difference is {part_title}: {high_label} has "
            f"{bytes_text(_part_bytes(grown_part, high))} at its peak{location}, {bytes_text(growth)} more than {low_label}."
        ),
        numbers=(
            *case.evidence("peak", peaks, "bytes"),
            *case.evidence("saved for backward", saved, "bytes"),
            *case.evidence(part_title, (_part_bytes(grown_part, 0), _part_bytes(grown_part, 1)), "bytes"),
        ),
        off_by=error_factor,
    )


def _part_bytes(part: PartBytes, side_index: int) -> int:
    return (part.b if side_index else part.a) or 0


def _workspace_location(case: Case, side_index: int) -> str:
    """The layer and algorithm of the workspace at a side's peak: `` in conv_r1's forward (FFT in fp32)``."""
    run = case.runs[side_index] if case.runs is not None else None
    if run is None or run.memory is None:
        return ""
    peak = run.memory
    use = workspace_algorithm(run, peak.peak_path, peak.peak_phase)
    algorithm = use.words if use is not None else peak.peak_op
    return f" in {peak.peak_path or 'the root'}'s {peak.peak_phase} ({algorithm})"


def explain_by_checkpointing(case: Case) -> Explanation | None:
    """Test "checkpointing would help": measured, else simulated, else bounded by the bytes saved for backward at the peak.

    Measurements and simulations hold for all configurations, so only the baseline's case has them.
    """
    if case.runs is None:
        return None
    baseline = case.a.baseline()
    explanation = None
    if baseline is not None and case.config == baseline.config.name:
        explanation = _measured_checkpointing(case) or _simulated_checkpointing(case)
    return explanation or _bounded_checkpointing(case)


def _measured_checkpointing(case: Case) -> Explanation | None:
    pairs = [pair for report in (case.a, case.b) if (pair := _checkpointed_runs(report)) is not None]
    if len(pairs) < 2:
        return None
    noise = noise_between(case.a.runs, case.b.runs)
    differences = [found for before, after in pairs if (found := noise.difference(before, after)) is not None]
    times = [difference.ratio for difference in differences]
    peaks = [(after.peak_allocated_bytes or 0) / (before.peak_allocated_bytes or 1) for before, after in pairs]
    faster = [difference.outcome == "better" for difference in differences]
    smaller = [ratio < 1 - PEAK_NOISE_SHARE for ratio in peaks]
    verdict: ExplanationVerdict = "off"
    if not any(faster) or not any(smaller):
        verdict = "wrong"
    elif all(faster) and all(smaller):
        verdict = "right"
    times_text, peaks_text = (" and ".join(text(ratio, "ratio") for ratio in ratios) for ratios in (times, peaks))
    settings = "; ".join(str(after.config.setting(CHECKPOINT)) for _, after in pairs)
    return _checkpointing_explanation(
        config=case.config,
        predicts="less memory, less time",
        measured=f"{times_text} the time, {peaks_text} the peak",
        verdict=verdict,
        sentence=(
            f"With checkpointing ({settings}), {case.label(0)} and {case.label(1)} take {times_text} the time and "
            f"{peaks_text} the peak memory."
        ),
        numbers=(
            *case.evidence("time with checkpointing over without", times, "ratio"),
            *case.evidence("peak with checkpointing over without", peaks, "ratio"),
        ),
    )


def _checkpointed_runs(report: Report) -> tuple[ConfigRun, ConfigRun] | None:
    """The baseline and the first run that differs from it only in checkpointing, both with time and peak."""
    before = report.baseline()
    for after in report.runs:
        only_checkpoint = [setting.name for setting in after.config.settings] == [CHECKPOINT] and after.failure is None
        same_flags = before is not None and before.config.flags == after.config.flags
        if before is not None and only_checkpoint and same_flags and _has_time_and_peak(before, after):
            return before, after
    return None


def _has_time_and_peak(*runs: ConfigRun) -> bool:
    return all(run.step_ns is not None and run.step_ns.median > 0 and bool(run.peak_allocated_bytes) for run in runs)


def _simulated_checkpointing(case: Case) -> Explanation | None:
    answers = [answer for report in (case.a, case.b) if (answer := _checkpointing_what_if(report)) is not None]
    if len(answers) < 2:
        return None
    peak_changes = [answer.difference_bytes or 0 for answer in answers]
    work_percents = [(answer.recompute_percent or 0.0) for answer in answers]
    work_text = " and ".join(percent(work / 100, 2) for work in work_percents)
    modules = " and ".join(", ".join(answer.checkpoint) for answer in answers)
    return _checkpointing_explanation(
        config=case.config,
        predicts="less memory, less time",
        measured=f"{signed(peak_changes[0], 'bytes')} and {signed(peak_changes[1], 'bytes')}, {work_text} more work",
        verdict="off" if min(peak_changes) < 0 else "wrong",
        sentence=(
            f"Simulated: checkpointing {modules} changes {case.label(0)}'s peak by {signed(peak_changes[0], 'bytes')} and "
            f"{case.label(1)}'s by {signed(peak_changes[1], 'bytes')}, and adds {work_text} to the work."
        ),
        numbers=(
            *case.evidence("change of the peak", peak_changes, "bytes"),
            *case.evidence("work computed again", work_percents, "percent"),
        ),
    )


def _checkpointing_what_if(report: Report) -> WhatIf | None:
    memory = report.static.memory if report.static is not None else None
    for answer in memory.what_ifs if memory is not None else ():
        if (
            answer.checkpoint
            and answer.batch is None
            and None not in (answer.difference_bytes, answer.recompute_percent)
        ):
            return answer
    return None


def _bounded_checkpointing(case: Case) -> Explanation | None:
    """The most that checkpointing can remove from the higher peak: the activations saved for backward there."""
    split = case.memory
    if split is None:
        return None
    peaks = (split.a_peak_bytes, split.b_peak_bytes)
    high, _ = larger_first(peaks)
    activations = [part for part in split.parts if part.part == "saved_activations"]
    saved_bytes = _part_bytes(activations[0], high) if activations else 0
    all_known = all(part.a is not None and part.b is not None for part in activations)
    if not differs(peaks) or not all_known or saved_bytes >= MAX_SMALL_SAVED_SHARE * peaks[high]:
        return None
    at_most = f"at most {bytes_text(saved_bytes)} of {bytes_text(peaks[high])}"
    return _checkpointing_explanation(
        config=case.config,
        predicts="less memory",
        measured=at_most,
        verdict="wrong",
        sentence=(
            f"Checkpointing can reduce {case.label(high)}'s peak by {at_most}: the activations saved for backward at the peak."
        ),
        numbers=(
            Evidence(name="peak", value=peaks[high], unit="bytes", where=case.label(high)),
            Evidence(name="saved activations at the peak", value=saved_bytes, unit="bytes", where=case.label(high)),
        ),
    )
