"""Configurations compared with the baseline: other settings, a memory limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from profiler_kit.diagnosis.advice import AdviceTrials, outcome_text
from profiler_kit.diagnosis.pairs import (
    RunPair,
    find_run,
    limits_algorithms,
    measured_runs,
    runs_with_settings,
    without_setting,
)
from profiler_kit.diagnosis.phrases import (
    join_sentences,
    limit_percent,
    plural,
    quoted_name,
)
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.diagnosis.setting_rule import Extras, Setting, setting_rule
from profiler_kit.diagnosis.step_rule import Shares
from profiler_kit.records.report import Evidence, Finding, Report, Severity, Trial
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Difference
from profiler_kit.statistics.noise import MIN_USEFUL_SAVING, Noise, noise_of
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import digits, parse_bytes, percent, text

# A fifth of the time is more than most changes to a model save; a twentieth is worth a line of code.
HIGH_SAVING: Final = 0.20
MEDIUM_SAVING: Final = 0.05
# From this factor, a larger error comes from other arithmetic, not from rounding.
MIN_ERROR_FACTOR: Final = 2.0
# Below this share, a change of the peak may be the allocator's rounding.
MIN_PEAK_CHANGE: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """A run with settings, compared with the baseline, and with the run of the same flags without settings."""

    run: ConfigRun
    trial: Trial
    same_flags: ConfigRun | None
    same_flags_trial: Trial | None


def _further_axes(report: Report) -> Iterator[Finding]:
    """Yield at most one finding: if a run with settings and a plain baseline have step times."""
    base = report.baseline()
    if base is None or not base.config.is_plain:
        return
    noise = noise_of(report)
    runs = [run for run in runs_with_settings(report) if not limits_algorithms(run.config)]
    comparisons = [comparison for run in runs if (comparison := _compare(report, base, run, noise)) is not None]
    if not comparisons:
        return
    comparisons.sort(key=lambda comparison: -(comparison.trial.gain_percent or 0.0))
    faster = [comparison for comparison in comparisons if comparison.trial.verdict == "better"]
    best = faster[0] if faster else comparisons[0]
    share = (best.trial.gain_percent or 0.0) / 100.0
    severity: Severity = "high" if share >= HIGH_SAVING else "medium" if share >= MEDIUM_SAVING else "low"
    ordered = [best, *(comparison for comparison in comparisons if comparison is not best)]
    yield new_finding(
        severity=severity if faster else "info",
        title=_axes_title(best, len(comparisons), len(faster)),
        explanation=join_sentences(*(_describe(comparison, base) for comparison in ordered), noise.sentence()),
        advice=_axes_advice(faster),
        evidence=tuple(item for comparison in ordered for item in _axes_evidence(comparison)),
        trials=AdviceTrials(tries=tuple(comparison.run.config.name for comparison in ordered), trial=best.trial),
        weight=share if faster else 0.0,
    )


def _compare(report: Report, base: ConfigRun, run: ConfigRun, noise: Noise) -> _Comparison | None:
    trial = sweep_trial(base, run, noise)
    same_flags = find_run(report, replace(run.config, settings=()))
    same_flags = same_flags if same_flags is not None and same_flags is not base else None
    has_samples = same_flags is not None and same_flags.failure is None
    same_flags_trial = sweep_trial(same_flags, run, noise) if same_flags is not None and has_samples else None
    if trial is None:
        return None
    return _Comparison(run=run, trial=trial, same_flags=same_flags, same_flags_trial=same_flags_trial)


def _axes_title(best: _Comparison, count: int, faster_count: int) -> str:
    if not faster_count and count > 1:
        return f"No gain from extra settings: none of {plural(count, 'configuration')} is significantly faster"
    if not faster_count:
        change = -(best.trial.gain_percent or 0.0) / 100.0
        size = f"{percent(abs(change))} {'more' if change > 0 else 'less'} time"
        outcome = "is slower" if best.trial.verdict == "worse" else "is not significantly faster"
        return f"{quoted_name(best.run)} {outcome}: {size}"
    total = f", the best of {plural(count, 'configuration')} with extra settings" if count > 1 else ""
    return f"{quoted_name(best.run)} takes {outcome_text(best.trial)}{total}"


def _describe(comparison: _Comparison, base: ConfigRun) -> str:
    trial, run = comparison.trial, comparison.run
    change = f" ({percent(-(trial.gain_percent or 0.0) / 100.0)})" if trial.verdict == "same" else ""
    clauses = [
        f"{quoted_name(run)}: {_time_change(comparison, base)}, {outcome_text(trial)}{change}",
        _peak_change(trial),
        _error_change(trial),
    ]
    if trial.same_bits is not None:
        clauses.append("outputs bitwise equal" if trial.same_bits else "outputs not bitwise equal")
    if comparison.same_flags_trial is not None and comparison.same_flags is not None:
        clauses.append(
            f"compared with {quoted_name(comparison.same_flags)} {outcome_text(comparison.same_flags_trial)}"
        )
    return "; ".join(clause for clause in clauses if clause) + "."


def _time_change(comparison: _Comparison, base: ConfigRun) -> str:
    before, after = comparison.trial.before_ns.median, comparison.trial.after_ns.median
    samples = comparison.run.samples
    if comparison.trial.per_example and base.samples and samples:
        per_example = f"{text(before / base.samples, 'ns')} to {text(after / samples, 'ns')} per example"
        return f"{per_example} ({plural(samples, 'example')} in a step of {text(after, 'ns')})"
    return f"{text(before, 'ns')} to {text(after, 'ns')}"


def _peak_change(trial: Trial) -> str:
    before, after = trial.before_peak_bytes, trial.after_peak_bytes
    if before is None or after is None or before <= 0 or abs(after - before) < MIN_PEAK_CHANGE * before:
        return ""
    return f"peak {text(before, 'bytes')} to {text(after, 'bytes')}"


def _error_change(trial: Trial) -> str:
    before, after = trial.before_error, trial.after_error
    if before is None or after is None or min(before, after) <= 0:
        return ""
    is_similar = 1 / MIN_ERROR_FACTOR < after / before < MIN_ERROR_FACTOR
    return "" if is_similar else f"error against float64 {digits(before, 2)} to {digits(after, 2)}"


def _axes_advice(faster: list[_Comparison]) -> str:
    if not faster:
        return (
            "Leave these settings off: none saves time. Their peaks and errors above may be another reason to use them."
        )
    error_check = " Check that its error is acceptable." if _error_change(faster[0].trial) else ""
    return f"Use {quoted_name(faster[0].run)}.{error_check}"


def _axes_evidence(comparison: _Comparison) -> Iterator[Evidence]:
    trial = comparison.trial
    return evidence_of(
        comparison.run.config.name,
        ("time saved per example" if trial.per_example else "time saved", trial.gain_percent, "percent"),
        ("median step", trial.after_ns.median, "ns"),
        ("peak", trial.after_peak_bytes, "bytes"),
        ("largest relative error", trial.after_error, "text"),
        ("outputs bitwise equal to the baseline's", trial.same_bits, "bool"),
    )


FURTHER_AXES = Rule(
    "further_axes",
    f"""
Fires when a run changed more than cuDNN's flags (`--also channels_last,amp_bf16,compile,batch=2x`) and can be compared with
the baseline.

- `high`: the best of these runs saves at least {limit_percent(HIGH_SAVING)} of the time.
- `medium`: it saves at least {limit_percent(MEDIUM_SAVING)}.
- `low`: it saves less, but is significantly faster.
- `info`: none is significantly faster.

The finding lists all these runs, the best first: the time (per example if the batch sizes differ), and changes in the memory
peak (from {limit_percent(MIN_PEAK_CHANGE)}), in the error against float64 (from {MIN_ERROR_FACTOR:g}x) and in the bits of the
outputs. If a run with the same flags but without the extra settings exists, the finding compares with it too: the difference
is the effect of the settings alone.

Limits of the algorithm search and of memory have rules of their own (`benchmark_limit`, `under_a_cap`).
""",
    _further_axes,
    "remedy",
)


LIMIT: Final = "memory_limit"


def _limit_pairs(report: Report) -> list[RunPair]:
    """Return the runs without and with a memory limit, the largest slowdown first; those without cuDNN, a fallback, last."""
    pairs = [
        RunPair.of(off, run)
        for run in measured_runs(report)
        if run.config.setting(LIMIT) is not None
        and run.step_ns is not None
        and (off := find_run(report, without_setting(run.config, LIMIT))) is not None
        and off.step_ns is not None
    ]
    return sorted(
        pairs, key=lambda pair: (pair.off.config.enabled is False, pair.before.median / max(1, pair.after.median))
    )


def _without_memory(report: Report) -> list[ConfigRun]:
    """Return the runs that a memory limit stopped, those without cuDNN last."""
    runs = [
        run
        for run in report.runs
        if run.config.setting(LIMIT) is not None and run.failure is not None and run.failure.kind == "out_of_memory"
    ]
    return sorted(runs, key=lambda run: run.config.enabled is False)


def _limit(run: ConfigRun) -> str:
    value = run.config.setting(LIMIT) or ""
    try:
        return text(parse_bytes(value), "bytes")
    except ValueError:
        return value


def _limit_extras(report: Report, pair: RunPair, difference: Difference) -> Extras:
    failed = tuple(f"{quoted_name(run)} ran out of memory." for run in _without_memory(report))
    return Extras(title=f" ({_limit(pair.on)})", sentences=failed)


_LIMITED = setting_rule(
    "under_a_cap",
    Setting(
        subject="A memory limit",
        word=LIMIT,
        pairs=_limit_pairs,
        costs=Shares(MIN_USEFUL_SAVING, medium=0.10),  # noticeable, and a reason for more memory
        when_better="No action is needed: the algorithms that fit are as fast.",
        otherwise="If the step is slower, leave memory for the faster algorithms: a smaller batch may be faster per example.",
        extras=_limit_extras,
    ),
    """
Fires if the report has a run with a memory limit (`--memory-limit 4GiB`) and the same configuration without it. The finding
compares step and memory peak, and names the layers in which cuDNN uses another algorithm because the workspace does not fit. It
is `high` if a run is out of memory with the limit, `low` if that run has cuDNN off.

A memory limit does not slow the device itself down. A real device with less memory is often slower, too.
""",
    "memory",
)


def _under_a_cap(report: Report) -> Iterator[Finding]:
    failed = _without_memory(report)
    if not failed or (failed[0].config.enabled is False and _limit_pairs(report)):
        yield from _LIMITED.findings(report)
        return
    run = failed[0]
    unlimited = find_run(report, without_setting(run.config, LIMIT))
    peak = unlimited.peak_allocated_bytes if unlimited is not None else None
    if unlimited is None or unlimited.failure is not None:
        return
    yield new_finding(
        severity="low" if run.config.enabled is False else "high",
        title=f"Out of memory: {quoted_name(unlimited)} does not fit in a memory limit of {_limit(run)}",
        explanation=join_sentences(
            *(f"{quoted_name(other)} ran out of memory." for other in failed),
            f"Without the limit, the memory peak is {text(peak, 'bytes')}." if peak is not None else "",
        ),
        advice="On a device of this size, use a smaller batch, autocast or checkpointing. profiler-kit count --fits predicts "
        "which of them fit.",
        evidence=(
            *evidence_of(run.config.name, ("failure", "out_of_memory", "text")),
            *evidence_of(unlimited.config.name, ("peak", peak, "bytes")),
        ),
        weight=1.0,
    )


UNDER_A_CAP = replace(_LIMITED, check=_under_a_cap)
