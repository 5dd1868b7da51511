"""What the configurations bring in which more than cuDNN's flags differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from profiler_kit.diagnosis.advice import Attempt, outcome
from profiler_kit.diagnosis.pairs import is_limited, run_of, with_settings
from profiler_kit.diagnosis.rule import Rule, known
from profiler_kit.diagnosis.words import plural, quoted, sentences, threshold
from profiler_kit.records.report import Evidence, Finding, Report, Severity, Trial
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.noise import Noise, noise_of
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import digits, percent, text

# A fifth of the time is more than most changes to a model bring; a twentieth is worth a line of code.
LARGE: Final = 0.20
SMALL: Final = 0.05
# An error this many times as large as before is another arithmetic, not rounding.
MORE_ERROR: Final = 2.0
# A peak that moves by less than this is the allocator's rounding.
OTHER_PEAK: Final = 0.02

DOC = f"""
Every run in which more than cuDNN's flags differs (`--also channels_last,amp_bf16,compile,batch=2x`) stands beside the baseline:
faster, slower or no sure difference, with the time (per example, where the steps hold different numbers of them), and with what
changes in the peak (from {threshold(OTHER_PEAK)}), in the error against float64 (from {MORE_ERROR:g}x) and in the bits; highest
gain first. Where the same flags were run without the settings, that comparison is said too, as it is the settings' own part.
`high` where the best saves at least {threshold(LARGE)}, `medium` from {threshold(SMALL)}, `low` for less, `info` where none
helps.
Limits of the search and of memory have rules of their own (`benchmark_limit`, `under_a_cap`).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A run beside the baseline, and beside its twin without settings, where that is another run."""

    run: ConfigRun
    tried: Trial
    twin: ConfigRun | None
    beside_twin: Trial | None


def check(report: Report) -> Iterator[Finding]:
    """Fires once, where such a run and a baseline have step times."""
    base = report.baseline()
    if base is None or not base.config.is_plain:
        return
    noise = noise_of(report)
    runs = [run for run in with_settings(report) if not is_limited(run.config)]
    cases = [case for run in runs if (case := _case(report, base, run, noise)) is not None]
    if not cases:
        return
    cases.sort(key=lambda case: -(case.tried.gain_percent or 0.0))
    better = [case for case in cases if case.tried.verdict == "better"]
    first = better[0] if better else cases[0]
    share = (first.tried.gain_percent or 0.0) / 100.0
    grade: Severity = "high" if share >= LARGE else "medium" if share >= SMALL else "low"
    ordered = [first, *(case for case in cases if case is not first)]
    yield RULE.finding(
        severity=grade if better else "info",
        title=_title(first, len(cases), len(better)),
        explanation=sentences(*(_words(case, base) for case in ordered), noise.sentence()),
        advice=_advice(better),
        evidence=tuple(piece for case in ordered for piece in _evidence(case)),
        attempt=Attempt(tries=tuple(case.run.config.name for case in ordered), trial=first.tried),
        weight=share if better else 0.0,
    )


def _case(report: Report, base: ConfigRun, run: ConfigRun, noise: Noise) -> _Case | None:
    tried = sweep_trial(base, run, noise)
    twin = run_of(report, replace(run.config, settings=()))
    twin = twin if twin is not None and twin is not base else None
    beside = sweep_trial(twin, run, noise) if twin is not None and twin.failure is None else None
    return _Case(run=run, tried=tried, twin=twin, beside_twin=beside) if tried is not None else None


def _title(first: _Case, count: int, better: int) -> str:
    if not better and count > 1:
        return f"Not one of {plural(count, 'further configuration')} is surely faster"
    if not better:
        change = percent(-(first.tried.gain_percent or 0.0) / 100.0)
        return f"{quoted(first.run)} is not surely faster: the time changes by {change}"
    rest = f", the best of {plural(count, 'further configuration')}" if count > 1 else ""
    return f"{quoted(first.run)} takes {outcome(first.tried)}{rest}"


def _words(case: _Case, base: ConfigRun) -> str:
    tried, run = case.tried, case.run
    change = f" ({percent(-(tried.gain_percent or 0.0) / 100.0)})" if tried.verdict == "same" else ""
    parts = [f"{quoted(run)}: {_time(case, base)}, {outcome(tried)}{change}", _peak(tried), _error(tried)]
    if tried.same_bits is not None:
        parts.append("the outputs are equal to the bit" if tried.same_bits else "the outputs differ in their bits")
    if case.beside_twin is not None and case.twin is not None:
        parts.append(f"beside {quoted(case.twin)} {outcome(case.beside_twin)}")
    return "; ".join(part for part in parts if part) + "."


def _time(case: _Case, base: ConfigRun) -> str:
    before, after = case.tried.before_ns.median, case.tried.after_ns.median
    if case.tried.per_example and base.samples and case.run.samples:
        each = f"{text(before / base.samples, 'ns')} to {text(after / case.run.samples, 'ns')} per example"
        return f"{each} ({plural(case.run.samples, 'example')} in a step of {text(after, 'ns')})"
    return f"{text(before, 'ns')} to {text(after, 'ns')}"


def _peak(tried: Trial) -> str:
    before, after = tried.before_peak_bytes, tried.after_peak_bytes
    if before is None or after is None or before <= 0 or abs(after - before) < OTHER_PEAK * before:
        return ""
    return f"peak {text(before, 'bytes')} to {text(after, 'bytes')}"


def _error(tried: Trial) -> str:
    before, after = tried.before_error, tried.after_error
    if before is None or after is None or min(before, after) <= 0:
        return ""
    is_like = 1 / MORE_ERROR < after / before < MORE_ERROR
    return "" if is_like else f"error against float64 {digits(before, 2)} to {digits(after, 2)}"


def _advice(better: list[_Case]) -> str:
    if not better:
        return "Leave these off as far as the time goes; look at the peaks and errors above for other reasons."
    run = better[0].run
    costly = "" if not _error(better[0].tried) else " Check that its error is acceptable."
    return f"Take {quoted(run)}.{costly}"


def _evidence(case: _Case) -> Iterator[Evidence]:
    tried = case.tried
    return known(
        case.run.config.name,
        ("time saved per example" if tried.per_example else "time saved", tried.gain_percent, "percent"),
        ("median step", tried.after_ns.median, "ns"),
        ("peak", tried.after_peak_bytes, "bytes"),
        ("largest relative error", tried.after_error, "text"),
        ("same bits as the baseline", tried.same_bits, "bool"),
    )


RULE = Rule("further_axes", DOC, check, "remedy")
