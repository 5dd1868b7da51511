"""A convolution with an algorithm that is slower than that of another run, or that is a last resort."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum
from typing import Final

from profiler_kit.diagnosis.advice import AdviceTrials, find_trials
from profiler_kit.diagnosis.facts import Facts, facts_of
from profiler_kit.diagnosis.pairs import count_differences, counterpart, plain_runs
from profiler_kit.diagnosis.phrases import (
    Advice,
    advise,
    capitalize,
    factor_text,
    join_list,
    join_sentences,
    layer_name,
    limit_percent,
    phase_name,
    quoted_name,
)
from profiler_kit.diagnosis.rule import Rule, new_finding
from profiler_kit.diagnosis.timing import Efficiency, busy_share, efficiency, layer_timing
from profiler_kit.records.claims import module_claims
from profiler_kit.records.counts import COUNT_PHASES
from profiler_kit.records.families import (
    DIRECT,
    family_name,
    is_convolution,
    main_algorithm,
)
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import TraceKernel, TraceModule
from profiler_kit.statistics.noise import noise_of
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import percent, text

# With any algorithm, a layer below a tenth of the device time cannot change the step by more than that.
MIN_LAYER_SHARE: Final = 0.10
# The order of two algorithms within this factor depends on clocks and shapes.
MIN_FACTOR: Final = 1.5
# Among alternatives within this factor of the fastest, the one with the fewest changed flags is the best advice.
SIMILAR_FACTOR: Final = 1.05
# Settings that make cuDNN select among other kernels.
TRIES: Final = ("channels_last", "amp_bf16")
# A fifth of the step is more than most changes of a model save.
LARGE_SHARE: Final = 0.20
# Families that cuDNN uses if nothing better is supported or fits.
LAST_RESORTS: Final = {DIRECT: "older cuDNN kernels that do not use tensor cores"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Faster:
    """The same layer and phase in a run that computes it faster."""

    run: ConfigRun
    timing: TraceModule
    used: TraceKernel


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One slow layer and phase of one run. `faster`: the better run; None for a last resort."""

    run: ConfigRun
    timing: TraceModule
    used: TraceKernel
    share: float
    rate: Efficiency | None
    faster: _Faster | None

    @property
    def factor(self) -> float:
        """Time of this algorithm over time of the better one; 1 without a better one."""
        return self.timing.kernel_ns / self.faster.timing.kernel_ns if self.faster is not None else 1.0

    @property
    def at_stake(self) -> float:
        """The share of the device time that the better algorithm saves; for a last resort, the whole share of the layer."""
        return self.share * (1.0 - 1.0 / self.factor) if self.faster is not None else self.share


def _slow_algorithm(report: Report) -> Iterator[Finding]:
    """Yield at most one finding per layer and kind."""
    groups: dict[tuple[str, bool], list[_Case]] = {}
    for run in plain_runs(report):
        for case in _cases(report, run):
            groups.setdefault((case.timing.path, case.faster is None), []).append(case)
    for cases in groups.values():
        of_first = sorted((c for c in cases if c.run is cases[0].run), key=lambda c: -c.at_stake)
        yield _finding(report, of_first, [c for c in cases if c.run is not cases[0].run])


def _cases(report: Report, run: ConfigRun) -> Iterator[_Case]:
    if run.clock != "kernel" or not run.device_ns or run.config.enabled is False:
        return
    for timing in run.modules:
        used = main_algorithm(timing.kernels)
        share = timing.kernel_ns / run.device_ns
        if used is None or not is_convolution(used.family) or share < MIN_LAYER_SHARE:
            continue
        better = _faster_run(report, run, timing, used)
        if better is not None or used.family in LAST_RESORTS:
            counted = next((name for name in COUNT_PHASES if name == timing.phase), None)
            rate = efficiency(report, run, timing.path, counted) if counted is not None else None
            yield _Case(run=run, timing=timing, used=used, share=share, rate=rate, faster=better)


def _faster_run(report: Report, run: ConfigRun, timing: TraceModule, used: TraceKernel) -> _Faster | None:
    candidates = []
    for other in plain_runs(report):  # rule `further_axes` covers runs with other settings
        other_timing = layer_timing(other, timing.path, timing.phase)
        other_used = main_algorithm(other_timing.kernels) if other_timing is not None else None
        if other is run or other.clock != "kernel" or other_timing is None or other_used is None:
            continue
        is_faster = 0 < other_timing.kernel_ns * MIN_FACTOR <= timing.kernel_ns
        if is_faster and other_used.family != used.family and _same_math(run, used, other, other_used):
            candidates.append(_Faster(run=other, timing=other_timing, used=other_used))
    if not candidates:
        return None
    best_ns = min(item.timing.kernel_ns for item in candidates)
    similar = [item for item in candidates if item.timing.kernel_ns <= SIMILAR_FACTOR * best_ns]
    return min(similar, key=lambda item: count_differences(run.config, item.run.config))


def _same_math(run: ConfigRun, used: TraceKernel, other: ConfigRun, other_used: TraceKernel) -> bool:
    if used.math is not None and other_used.math is not None:
        return used.math == other_used.math
    # without the arithmetic in a kernel name, compare the flags by which cuDNN selected the kernels
    return run.config.allow_tf32 is other.config.allow_tf32


def _finding(report: Report, cases: list[_Case], other_cases: list[_Case]) -> Finding:
    """Return one finding for `cases`, the phases of one layer in one run, sorted by the share at stake."""
    case = cases[0]
    better_run = case.faster.run if case.faster is not None else _tf32_counterpart(report, case)
    at_stake = min(1.0, fsum(c.at_stake for c in cases))
    is_baseline = case.run is report.baseline()
    trials = find_trials(report, case.run, TRIES if is_baseline else ())
    best = sweep_trial(case.run, better_run, noise_of(report)) or trials.trial
    names = ([better_run.config.name] if better_run is not None else []) + list(trials.tries)
    return new_finding(
        severity="low" if not is_baseline else "high" if at_stake >= LARGE_SHARE else "medium",
        title=_title(cases),
        explanation=join_sentences(
            *(_phase_sentences(c) for c in cases),
            _last_resort_sentences(report, case),
            _other_runs(other_cases),
        ),
        advice=_advice(case, better_run, facts_of(report)),
        evidence=tuple(e for c in cases for e in _slow_evidence(c)),
        paths=(case.timing.path,),
        trials=AdviceTrials(tries=tuple(dict.fromkeys(names)), trial=best),
        weight=at_stake * busy_share(report),
        claims=module_claims((case.timing.path,) if is_baseline else ()),
    )


def _tf32_counterpart(report: Report, case: _Case) -> ConfigRun | None:
    run = counterpart(report, case.run, "allow_tf32", True)
    return run if run is not None and run.failure is None else None


def _title(cases: list[_Case]) -> str:
    case, name = cases[0], layer_name(cases[0].timing.path)
    if case.faster is not None:
        return (
            f"Slow algorithm in {name}: {family_name(case.used.family)} takes {factor_text(case.factor)} as long as "
            f"{family_name(case.faster.used.family)}"
        )
    families = list(dict.fromkeys(family_name(c.used.family) for c in cases))
    share = percent(fsum(c.share for c in cases))
    return (
        f"Last-resort algorithm in {name}: {join_list(families)}, {share} of the device time in {quoted_name(case.run)}"
    )


def _phase_sentences(case: _Case) -> str:
    subject = f"{phase_name(case.timing.phase)} of {layer_name(case.timing.path)}"
    time = text(case.timing.kernel_ns, "ns")
    rate = f"In {quoted_name(case.run)}, {subject} {case.rate.sentence()}" if case.rate is not None else ""
    if case.faster is None:
        return rate or f"In {quoted_name(case.run)}, {subject} takes {time} with {family_name(case.used.family)}."
    return join_sentences(
        f"{capitalize(subject)} takes {time} in {quoted_name(case.run)} and {text(case.faster.timing.kernel_ns, 'ns')} in "
        f"{quoted_name(case.faster.run)}.",
        f"The faster run uses {family_name(case.faster.used.family)}, with the same arithmetic.",
        rate or f"The slower run uses {family_name(case.used.family)}.",
    )


def _last_resort_sentences(report: Report, case: _Case) -> str:
    if case.faster is not None:
        return ""
    reason = f"This is a last resort: {LAST_RESORTS[case.used.family]}."
    run = _tf32_counterpart(report, case)
    timing = layer_timing(run, case.timing.path, case.timing.phase) if run is not None else None
    used = main_algorithm(timing.kernels) if timing is not None else None
    if run is None or timing is None or used is None:
        return reason
    return (
        f"{reason} With TF32 allowed ({quoted_name(run)}), {phase_name(timing.phase)} takes {text(timing.kernel_ns, 'ns')} with "
        f"{family_name(used.family)}."
    )


def _other_runs(other_cases: list[_Case]) -> str:
    worst_by_run: dict[str, _Case] = {}
    for case in sorted(other_cases, key=lambda c: -c.at_stake):
        worst_by_run.setdefault(quoted_name(case.run), case)
    runs = [
        f"{name} ({phase_name(c.timing.phase)}: {family_name(c.used.family)}, {text(c.timing.kernel_ns, 'ns')})"
        for name, c in worst_by_run.items()
    ]
    return f"The same holds for {join_list(runs)}." if runs else ""


def _advice(case: _Case, better_run: ConfigRun | None, facts: Facts) -> Advice:
    if case.faster is not None:
        advice = Advice(f"Use the flags of {quoted_name(case.faster.run)}.")
        if case.faster.run.config.benchmark and not case.run.config.benchmark:
            search = "Set {code}: cuDNN then times its algorithms. Without it, cuDNN follows a heuristic."
            advice = advise(search, "torch.backends.cudnn.benchmark = True")
        return advice.then("A faster algorithm may need free memory for its workspace.")
    options = [] if facts.half else ["use bfloat16 or float16 with torch.autocast"]
    options.append("use a smaller kernel, or a stride before the layer")
    if better_run is not None:
        options.insert(0, "allow TF32 if its error is acceptable ({code})")
    tf32 = "torch.backends.cudnn.allow_tf32 = True"
    return advise(f"In order of effort: {'; '.join(options)}.", tf32 if better_run is not None else "")


def _slow_evidence(case: _Case) -> Iterator[Evidence]:
    where = f"{case.timing.path}, {case.timing.phase}, {case.run.config.name}"
    if case.faster is not None:
        faster_where = f"{case.timing.path}, {case.timing.phase}, {case.faster.run.config.name}"
        used = case.faster.used
        yield Evidence(name="factor", value=case.factor, unit="ratio", where=faster_where)
        yield Evidence(name="device time", value=case.faster.timing.kernel_ns, unit="ns", where=faster_where)
        yield Evidence(name="algorithm", value=family_name(used.family), unit="text", where=faster_where)
        yield Evidence(name="kernel", value=used.name, unit="text", where=faster_where)
    if case.rate is not None:
        yield from case.rate.evidence()
    else:
        yield Evidence(name="device time", value=case.timing.kernel_ns, unit="ns", where=where)
        yield Evidence(name="algorithm", value=family_name(case.used.family), unit="text", where=where)
    yield Evidence(name="kernel", value=case.used.name, unit="text", where=where)
    yield Evidence(name="share of device time", value=100.0 * case.share, unit="percent", where=where)


SLOW_ALGORITHM = Rule(
    "slow_algorithm",
    f"""
Fires if a convolution that takes at least {limit_percent(MIN_LAYER_SHARE)} of the device time in one phase runs with a slow
algorithm. The rule checks all runs with cuDNN on. There are two kinds:

- **Slow algorithm**: another run of the report computes the same layer and phase at least {MIN_FACTOR:g}x faster by kernel time,
  with another algorithm and the same arithmetic, so precision is equal.
- **Last resort**: cuDNN uses a kernel family that it selects only if nothing better is supported or fits:
  {join_list([family_name(family) for family in LAST_RESORTS])}. Rule `not_on_cudnn` covers PyTorch's own fallback.

Severity:

- `high`: the baseline is affected, and at least {limit_percent(LARGE_SHARE)} of its device time is at stake.
- `medium`: the baseline is affected.
- `low`: only other runs are affected.

The finding gives the effective FLOP/s (counted FLOPs over kernel time), and the share of the datasheet peak if device and
arithmetic are known. FFT and Winograd execute fewer operations than are counted, so they have no share of the peak. There is one
finding per layer and kind, for the first affected run. It names the other runs and their algorithms.
""",
    _slow_algorithm,
    "remedy",
    states_share=False,
)
