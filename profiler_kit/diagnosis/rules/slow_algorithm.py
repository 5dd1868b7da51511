"""A layer that runs by an algorithm slower than one this report has seen, or by one known to be a last resort."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.advice import Attempt, attempt
from profiler_kit.diagnosis.efficiency import Efficiency, efficiency
from profiler_kit.diagnosis.pairs import changed_flags, counterpart, plain
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.timing import layer_timing
from profiler_kit.diagnosis.words import capital, layer, listing, opening, phase, quoted, sentences, threshold, times
from profiler_kit.records.counts import COUNT_PHASES
from profiler_kit.records.families import DIRECT, Algorithm, algorithm, family_words, is_convolution
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun, LayerTiming
from profiler_kit.statistics.noise import noise_of
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import percent, text

# A layer below a tenth of the device time can't change the step by more than that, whatever algorithm it runs by.
LEAST_SHARE: Final = 0.10
# Two algorithms within half of each other change places with clocks and shapes; past it the choice was wrong.
FACTOR: Final = 1.5
# Of alternatives this close to the fastest, the one that changes fewest flags is the better advice.
AS_GOOD: Final = 1.05
# What makes cuDNN choose among other kernels, where its flags do not.
TRIES: Final = ("channels_last", "amp_bf16")
# A fifth of the step is more than most changes to a model bring.
LARGE: Final = 0.20
# What cuDNN takes when nothing better is offered or fits.
LAST_RESORTS: Final = {DIRECT: "these are cuDNN's older kernels, which use no tensor cores"}

DOC = f"""
Looks at convolutions that take at least {threshold(LEAST_SHARE)} of the device time of a run with cuDNN on, phase by phase,
and fires where

- **picked badly**: another run of the report does the same layer and phase at least {FACTOR:g}x faster by kernel time, with
  another algorithm and the same arithmetic (so that precision is not what was traded); or
- **last resort**: the kernels are of a family taken when nothing better is offered or fits:
  {listing([family_words(family) for family in LAST_RESORTS])}. (PyTorch's own fallback: rule `not_on_cudnn`.)

Gives the effective FLOP/s (counted work over kernel time) and, where the device and the arithmetic are known, the share of
the datasheet's peak. FFT and Winograd execute fewer operations than are counted, so no share of peak is given for them.
One finding per layer and kind, for the run that comes first; further runs are named with what they use. `low` where the
baseline is not affected.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Faster:
    """The run that does the same layer and phase faster, and how."""

    run: ConfigRun
    timing: LayerTiming
    used: Algorithm


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One slow layer and phase of one run; `faster` None is a last resort."""

    run: ConfigRun
    timing: LayerTiming
    used: Algorithm
    share: float
    rate: Efficiency | None
    faster: _Faster | None

    @property
    def factor(self) -> float:
        """How many times as fast the better algorithm is; 1 without one."""
        return self.timing.kernel_ns / self.faster.timing.kernel_ns if self.faster is not None else 1.0

    @property
    def at_stake(self) -> float:
        """The share of the device time that the better algorithm saves; of a last resort, all of it is in question."""
        return self.share * (1.0 - 1.0 / self.factor) if self.faster is not None else self.share


def check(report: Report) -> Iterator[Finding]:
    """Fires once per layer and kind."""
    groups: dict[tuple[str, bool], list[_Case]] = {}
    for run in plain(report):
        for case in _cases(report, run):
            groups.setdefault((case.timing.path, case.faster is None), []).append(case)
    for cases in groups.values():
        of_first = sorted((c for c in cases if c.run is cases[0].run), key=lambda c: -c.at_stake)
        yield _finding(report, of_first, [c for c in cases if c.run is not cases[0].run])


def _cases(report: Report, run: ConfigRun) -> Iterator[_Case]:
    if run.clock != "kernel" or not run.device_ns or run.config.enabled is False:
        return
    for timing in run.modules:
        used = algorithm(timing.kernels)
        share = timing.kernel_ns / run.device_ns
        if used is None or not is_convolution(used.family) or share < LEAST_SHARE:
            continue
        better = _faster_elsewhere(report, run, timing, used)
        if better is not None or used.family in LAST_RESORTS:
            counted = next((name for name in COUNT_PHASES if name == timing.phase), None)
            rate = efficiency(report, run, timing.path, counted) if counted is not None else None
            yield _Case(run=run, timing=timing, used=used, share=share, rate=rate, faster=better)


def _faster_elsewhere(report: Report, run: ConfigRun, timing: LayerTiming, used: Algorithm) -> _Faster | None:
    found = []
    for other in plain(report):  # what further axes bring has a rule of its own
        there = layer_timing(other, timing.path, timing.phase)
        by = algorithm(there.kernels) if there is not None else None
        if other is run or other.clock != "kernel" or there is None or by is None or there.kernel_ns <= 0:
            continue
        is_faster = there.kernel_ns * FACTOR <= timing.kernel_ns
        if is_faster and by.family != used.family and _same_math(run, used, other, by):
            found.append(_Faster(run=other, timing=there, used=by))
    if not found:
        return None
    best_ns = min(item.timing.kernel_ns for item in found)
    as_good = [item for item in found if item.timing.kernel_ns <= AS_GOOD * best_ns]
    return min(as_good, key=lambda item: changed_flags(run.config, item.run.config))


def _same_math(run: ConfigRun, used: Algorithm, other: ConfigRun, by: Algorithm) -> bool:
    if used.math is not None and by.math is not None:
        return used.math == by.math
    # a kernel name that does not say leaves the flag, which is what the kernels were chosen by
    return run.config.allow_tf32 is other.config.allow_tf32


def _finding(report: Report, cases: list[_Case], elsewhere: list[_Case]) -> Finding:
    """One finding of `cases`, the phases of one layer in one run, the gravest first."""
    case = cases[0]
    tried = case.faster.run if case.faster is not None else _tf32_twin(report, case)
    at_stake = min(1.0, sum(c.at_stake for c in cases))
    is_baseline = case.run is report.baseline()
    more = attempt(report, case.run, TRIES if is_baseline else ())
    best = sweep_trial(case.run, tried, noise_of(report)) or more.trial
    names = ([tried.config.name] if tried is not None else []) + list(more.tries)
    return RULE.finding(
        severity="low" if not is_baseline else "high" if at_stake >= LARGE else "medium",
        title=_title(cases),
        explanation=sentences(
            *(_phase_words(c) for c in cases),
            _last_resort_words(report, case),
            _elsewhere_words(elsewhere),
        ),
        advice=_advice(case, tried),
        evidence=tuple(e for c in cases for e in _evidence(c)),
        paths=(case.timing.path,),
        attempt=Attempt(tries=tuple(dict.fromkeys(names)), trial=best),
        weight=at_stake,
    )


def _tf32_twin(report: Report, case: _Case) -> ConfigRun | None:
    twin = counterpart(report, case.run, "allow_tf32", True)
    return twin if twin is not None and twin.failure is None else None


def _title(cases: list[_Case]) -> str:
    case, path = cases[0], opening(cases[0].timing.path)
    if case.faster is not None:
        return (
            f"Slow algorithm in {layer(case.timing.path)}: {family_words(case.used.family)}, {times(case.factor)} the time of "
            f"{family_words(case.faster.used.family)}"
        )
    families = list(dict.fromkeys(family_words(c.used.family) for c in cases))
    share = percent(sum(c.share for c in cases))
    return f"{path} runs as {listing(families)} in {quoted(case.run)}, {share} of the device time"


def _phase_words(case: _Case) -> str:
    what = f"{phase(case.timing.phase)} of {layer(case.timing.path)}"
    took = text(case.timing.kernel_ns, "ns")
    said = f"In {quoted(case.run)} {what} {case.rate.sentence()}" if case.rate is not None else ""
    if case.faster is None:
        return said or f"In {quoted(case.run)} {what} takes {took}, by {family_words(case.used.family)}."
    return sentences(
        f"{capital(what)} takes {took} in {quoted(case.run)}, {text(case.faster.timing.kernel_ns, 'ns')} in "
        f"{quoted(case.faster.run)}.",
        f"The faster one is {family_words(case.faster.used.family)}, with the same arithmetic.",
        said or f"The slower one is {family_words(case.used.family)}.",
    )


def _last_resort_words(report: Report, case: _Case) -> str:
    if case.faster is not None:
        return ""
    said = f"It is a last resort: {LAST_RESORTS[case.used.family]}."
    twin = _tf32_twin(report, case)
    there = layer_timing(twin, case.timing.path, case.timing.phase) if twin is not None else None
    by = algorithm(there.kernels) if there is not None else None
    if twin is None or there is None or by is None:
        return said
    return (
        f"{said} {quoted(twin)}, where TF32 is allowed, takes {text(there.kernel_ns, 'ns')} for {phase(there.phase)}, by "
        f"{family_words(by.family)}."
    )


def _elsewhere_words(elsewhere: list[_Case]) -> str:
    gravest: dict[str, _Case] = {}
    for case in sorted(elsewhere, key=lambda c: -c.at_stake):
        gravest.setdefault(quoted(case.run), case)
    said = [
        f"{name} ({phase(c.timing.phase)}: {family_words(c.used.family)}, {text(c.timing.kernel_ns, 'ns')})"
        for name, c in gravest.items()
    ]
    return f"The same is found in {listing(said)}." if said else ""


def _advice(case: _Case, tried: ConfigRun | None) -> str:
    if case.faster is not None:
        how = (
            "Set torch.backends.cudnn.benchmark = True: cuDNN then times its algorithms instead of guessing"
            if case.faster.run.config.benchmark and not case.run.config.benchmark
            else f"Use the flags of {quoted(case.faster.run)}"
        )
        return f"{how}. A faster algorithm may need free memory for its workspace."
    options = ["run it in bfloat16 or float16 under torch.autocast", "use a smaller kernel, or a stride before it"]
    if tried is not None:
        options.insert(0, "allow TF32 where its error is acceptable (torch.backends.cudnn.allow_tf32 = True)")
    return f"In order of effort: {'; '.join(options)}."


def _evidence(case: _Case) -> Iterator[Evidence]:
    where = f"{case.timing.path}, {case.timing.phase}, {case.run.config.name}"
    if case.faster is not None:
        there = f"{case.timing.path}, {case.timing.phase}, {case.faster.run.config.name}"
        yield Evidence(name="factor", value=case.factor, unit="ratio", where=there)
        yield Evidence(name="device time", value=case.faster.timing.kernel_ns, unit="ns", where=there)
        yield Evidence(name="algorithm", value=family_words(case.faster.used.family), unit="text", where=there)
        yield Evidence(name="kernel", value=case.faster.used.kernel, unit="text", where=there)
    if case.rate is not None:
        yield from case.rate.evidence()
    else:
        yield Evidence(name="device time", value=case.timing.kernel_ns, unit="ns", where=where)
        yield Evidence(name="algorithm", value=family_words(case.used.family), unit="text", where=where)
    yield Evidence(name="kernel", value=case.used.kernel, unit="text", where=where)
    yield Evidence(name="share of device time", value=100.0 * case.share, unit="percent", where=where)


RULE = Rule("slow_algorithm", DOC, check, "cause")
