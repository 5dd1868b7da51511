"""The effect of a memory limit: other algorithms, a slower step, or out of memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.advice import AdviceTrials
from profiler_kit.diagnosis.pairs import find_run, without_setting
from profiler_kit.diagnosis.phrases import (
    capitalize,
    join_list,
    join_sentences,
    layer_name,
    limit_percent,
    phase_name,
    quoted_name,
)
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.diagnosis.timing import layer_timing
from profiler_kit.records.families import family_name, main_algorithm
from profiler_kit.records.report import Evidence, Finding, Report, Severity, Trial
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.noise import noise_of
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import parse_bytes, percent, text

SETTING: Final = "memory_limit"
# A slowdown of a tenth is noticeable, and a reason for more memory.
LARGE_SLOWDOWN: Final = 0.10
_PASS_NAMES: Final = {"fprop": "forward", "dgrad": "gradient of the input", "wgrad": "gradient of the weight"}

DOC = f"""
Fires if the report has a run with a memory limit (`--memory-limit 4GiB`) and the same configuration without it. The finding
compares step and memory peak, and names the layers in which cuDNN uses another algorithm because the workspace does not fit.

- `high`: the run is out of memory with the limit.
- `medium`: the step is significantly slower, by at least {limit_percent(LARGE_SLOWDOWN)}.
- `low`: only a run with cuDNN off is out of memory.
- `info`: otherwise.

A memory limit does not slow the device itself down. A real device with less memory is often slower, too.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A run with a memory limit, and the same configuration without it.

    `trial`: their comparison; None if the limited run is out of memory. `changes`: pairs (path, changed algorithm in words).
    """

    limited: ConfigRun
    unlimited: ConfigRun
    trial: Trial | None
    changes: tuple[tuple[str, str], ...]

    @property
    def slowdown(self) -> float:
        """The increase of the step time, as a share of the step without the limit."""
        return -(self.trial.gain_percent or 0.0) / 100.0 if self.trial is not None else 0.0

    @property
    def is_fallback(self) -> bool:
        """Whether cuDNN is off in both runs."""
        return self.unlimited.config.enabled is False


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for all runs with a memory limit whose configuration was also measured without it."""
    noise = noise_of(report)
    cases = []
    for run in report.runs:
        if run.config.setting(SETTING) is None or run.config.repeat_of is not None:
            continue
        unlimited = find_run(report, without_setting(run.config, SETTING))
        if unlimited is None or unlimited.failure is not None:
            continue
        trial = sweep_trial(unlimited, run, noise)
        if trial is not None or (run.failure is not None and run.failure.kind == "out_of_memory"):
            changes = tuple(_changes(unlimited, run))
            cases.append(_Case(limited=run, unlimited=unlimited, trial=trial, changes=changes))
    if cases:
        yield _finding(cases)


def _finding(cases: list[_Case]) -> Finding:
    worst = max(
        cases,
        key=lambda case: (
            not case.is_fallback,  # a fallback that fails does not stop training
            case.trial is None,
            case.trial is not None and case.trial.verdict == "worse",
            case.slowdown,
        ),
    )
    ordered = [worst, *(case for case in cases if case is not worst)]
    severity: Severity = "low" if worst.is_fallback else "high"
    if worst.trial is not None:
        severity = "medium" if worst.trial.verdict == "worse" and worst.slowdown >= LARGE_SLOWDOWN else "info"
    return new_finding(
        severity=severity,
        title=_title(worst),
        explanation=join_sentences(*(_sentences(case) for case in ordered)),
        advice=_advice(worst),
        evidence=(piece for case in ordered for piece in _evidence(case)),
        paths=(path for path, _ in worst.changes),
        trials=AdviceTrials(trial=worst.trial),
        weight=worst.slowdown if worst.trial is not None else 1.0,
    )


def _limit(run: ConfigRun) -> str:
    value = run.config.setting(SETTING) or ""
    try:
        return text(parse_bytes(value), "bytes")
    except ValueError:
        return value


def _title(case: _Case) -> str:
    name, limit = quoted_name(case.unlimited), f"a memory limit of {_limit(case.limited)}"
    if case.trial is None:
        return f"Out of memory: {name} does not fit in {limit}"
    before, after = text(case.trial.before_ns.median, "ns"), text(case.trial.after_ns.median, "ns")
    if case.trial.verdict == "worse":
        return f"{name} takes {percent(case.slowdown)} longer with {limit}: {before} becomes {after}"
    result = "is faster" if case.trial.verdict == "better" else "takes the same time"
    return f"{name} {result} with {limit}: {before} and {after} ({percent(case.slowdown)})"


def _sentences(case: _Case) -> str:
    if case.trial is None:
        peak = case.unlimited.peak_allocated_bytes
        need = f"Without the limit, its memory peak is {text(peak, 'bytes')}." if peak is not None else ""
        return join_sentences(f"{quoted_name(case.limited)} ran out of memory.", need)
    before_peak, after_peak = case.trial.before_peak_bytes, case.trial.after_peak_bytes
    peaks = ""
    if before_peak is not None and after_peak is not None:
        peaks = f", and the memory peak changes from {text(before_peak, 'bytes')} to {text(after_peak, 'bytes')}"
    before, after = text(case.trial.before_ns.median, "ns"), text(case.trial.after_ns.median, "ns")
    return join_sentences(
        f"In {quoted_name(case.limited)} the step changes from {before} to {after}{peaks}.",
        f"{capitalize(join_list([change for _, change in case.changes]))}."
        if case.changes
        else "All layers use the same algorithms.",
    )


def _changes(unlimited: ConfigRun, limited: ConfigRun) -> Iterator[tuple[str, str]]:
    """Yield (path, change in words) for each part of a convolution whose algorithm changed; by phase without parts."""
    if unlimited.convolutions and limited.convolutions:
        parts_before = {(part.path, part.part): part for part in unlimited.convolutions}
        for after in limited.convolutions:
            before = parts_before.get((after.path, after.part))
            if before is not None and before.family != after.family:
                name = _PASS_NAMES[after.part]
                times = (before.kernel_ns, after.kernel_ns)
                yield after.path, _change(after.path, name, (before.family, after.family), times)
        return
    for item in limited.modules:
        timing = layer_timing(unlimited, item.path, item.phase)
        old, new = main_algorithm(timing.kernels) if timing is not None else None, main_algorithm(item.kernels)
        if timing is None or old is None or new is None or old.family == new.family:
            continue
        if new.family.startswith("conv"):
            times = (timing.kernel_ns, item.kernel_ns)
            yield item.path, _change(item.path, phase_name(item.phase), (old.family, new.family), times)


def _change(path: str, part: str, families: tuple[str, str], times_ns: tuple[int, int]) -> str:
    before, after = (family_name(family) for family in families)
    before_time, after_time = (text(ns, "ns") for ns in times_ns)
    return f"{part} of {layer_name(path)} changes from {before} to {after} ({before_time} becomes {after_time})"


def _advice(case: _Case) -> str:
    if case.trial is None:
        return (
            "On a device of this size, use a smaller batch, autocast or checkpointing. profiler-kit count --fits predicts "
            "which of them fit."
        )
    if case.trial.verdict == "worse":
        return "Leave free memory for the faster algorithms: a smaller batch may be faster per example."
    return "No action is needed: the algorithms that fit are as fast."


def _evidence(case: _Case) -> Iterator[Evidence]:
    limited, unlimited = case.limited.config.name, case.unlimited.config.name
    if case.trial is None:
        yield Evidence(name="failure", value="out_of_memory", unit="text", where=limited)
    else:
        yield Evidence(name="slowdown", value=100.0 * case.slowdown, unit="percent", where=limited)
        yield Evidence(name="median step", value=case.trial.after_ns.median, unit="ns", where=limited)
        yield Evidence(name="median step", value=case.trial.before_ns.median, unit="ns", where=unlimited)
    yield from evidence_of(limited, ("peak", case.limited.peak_allocated_bytes, "bytes"))
    yield from evidence_of(unlimited, ("peak", case.unlimited.peak_allocated_bytes, "bytes"))
    for path, change in case.changes:
        yield Evidence(name="algorithm", value=change, unit="text", where=f"{path}, {limited}")


RULE = Rule("under_a_cap", DOC, check, "memory")
