"""The gain of cudnn.benchmark=True, the cost of its algorithm search, and the break-even number of steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import AdviceTrials, with_option
from profiler_kit.diagnosis.algorithm_search import LARGE_SEARCH_SHARE, PlannedTime, planned_time
from profiler_kit.diagnosis.pairs import FlagPair, flag_pairs
from profiler_kit.diagnosis.phrases import (
    Advice,
    advise,
    interval_text,
    join_sentences,
    limit_percent,
    plural,
    quoted_name,
)
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.diagnosis.timing import kernels_of
from profiler_kit.records.claims import kernel_claims
from profiler_kit.records.report import Evidence, Finding, Report, Severity
from profiler_kit.statistics.differences import Difference
from profiler_kit.statistics.noise import MIN_USEFUL_SAVING, Noise, break_even_steps, noise_of
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import percent, text

# A fifth of the step is more than most changes to a model save; a twentieth is worth one line of code.
HIGH_SAVING: Final = 0.20
MEDIUM_SAVING: Final = 0.05
# Three algorithms still include both kinds of implicit GEMM, and one more: the setting to try when the search is expensive.
SHORT_SEARCH: Final = "benchmark_limit=3"

# When the first step of the second process is this much shorter, the first process also read kernels from disk.
COLD_START_SHARE: Final = 0.3

DOC = f"""
Fires when a run with `cudnn.benchmark=True` and a run with otherwise the same flags were measured. It compares the baseline's
pair first.

- `high`: benchmark saves at least {limit_percent(HIGH_SAVING)} of the step, beyond the noise.
- `medium`: it saves at least {limit_percent(MEDIUM_SAVING)}.
- `low`: it saves at least {limit_percent(MIN_USEFUL_SAVING)}, or it makes the step at least that much slower, beyond the noise.
- `info`: the difference is smaller, or within the noise.

The price is an algorithm search in the first step of every new input shape. Its time, called tuning, is (first step - steady
step), minus the same difference without benchmark. If a configuration ran in two processes, the one with the faster first
step counts; the finding notes a first process that started much slower. Benchmark breaks even after tuning / (steady step
without - steady step with) steps; this is *never* if it saves less than {limit_percent(MIN_USEFUL_SAVING)} or the difference
is within the noise. The search tries algorithms with large workspaces, so the finding also gives the memory peak of the
first step.

With `--steps-planned N` the verdict covers N steps of this shape, search included: `low` if they do not reach break-even. If
the search takes more than {limit_percent(LARGE_SEARCH_SHARE)} of these steps, the finding shows that share and suggests
`{SHORT_SEARCH}`.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield one finding, whether benchmark pays or not, if a pair was measured."""
    noise = noise_of(report)
    benchmark_pairs = flag_pairs(report, "benchmark")
    if not benchmark_pairs:
        return
    pair = benchmark_pairs[0]
    difference = noise.difference(pair.off, pair.on)
    if difference is None:
        return
    pays = _pays(difference)
    break_even = break_even_steps(pair.on.tuning_ns, pair.before, pair.after) if pays else None
    plan = planned_time(pair.off, pair.on, report.asked.steps_planned if report.asked is not None else None)
    is_search_expensive = pays and plan is not None and plan.share > LARGE_SEARCH_SHARE
    short_search = with_option(pair.on.config, SHORT_SEARCH).name
    yield new_finding(
        severity=_severity(difference, plan),
        title=_title(pair, difference, break_even, plan),
        explanation=join_sentences(
            _search_cost(pair, break_even),
            _cold_start(pair),
            _planned_time(plan),
            f"The median step takes {interval_text(pair.before)} without cudnn.benchmark and {interval_text(pair.after)} with it"
            + (f"; over all processes, {percent(difference.saved)} less." if pays else "."),
            difference.sentence(),
            noise.sentence(),
            _memory_peaks(pair),
            _other_pairs(benchmark_pairs[1:], noise),
        ),
        advice=_advice(pays, break_even, plan, is_search_expensive),
        evidence=_evidence(pair, difference, break_even, plan),
        trials=AdviceTrials(
            tries=(pair.on.config.name, *([short_search] if is_search_expensive else [])),
            trial=sweep_trial(pair.off, pair.on, noise),
        ),
        weight=difference.saved if pays else 0.0,
        claims=kernel_claims(
            kernel.name
            for kernel in kernels_of(pair.off)
            if pays and pair.off is report.baseline() and kernel.family.startswith("conv")
        ),
    )


def _pays(difference: Difference | None) -> bool:
    """Whether benchmark saves time for sure, and enough to be worth a flag."""
    return difference is not None and difference.outcome == "better" and difference.saved >= MIN_USEFUL_SAVING


def _costs(difference: Difference) -> bool:
    return difference.outcome == "worse" and -difference.saved >= MIN_USEFUL_SAVING


def _severity(difference: Difference, plan: PlannedTime | None) -> Severity:
    if not _pays(difference):
        return "low" if _costs(difference) else "info"
    if plan is not None and not plan.breaks_even:
        return "low"
    gain = difference.saved
    return "high" if gain >= HIGH_SAVING else "medium" if gain >= MEDIUM_SAVING else "low"


def _title(pair: FlagPair, difference: Difference, break_even: int | None, plan: PlannedTime | None) -> str:
    gain = difference.saved
    if _pays(difference):
        step = f"from {text(pair.before.median, 'ns')} to {text(pair.after.median, 'ns')}"
        return f"cudnn.benchmark=True cuts the step {step}{_break_even(break_even, plan)}"
    if _costs(difference):
        return f"cudnn.benchmark=True never pays here: the step takes {percent(-gain)} longer"
    if difference.outcome == "better":
        return f"cudnn.benchmark=True never pays here: it saves only {percent(gain)} of the step"
    return f"cudnn.benchmark=True: no difference is established, the step changes by {percent(-gain)}"


def _break_even(break_even: int | None, plan: PlannedTime | None) -> str:
    clauses = []
    if break_even is not None:
        clauses.append(f"breaks even after {plural(break_even, 'step')}")
    if plan is not None:
        clauses.append(f"{'pays' if plan.breaks_even else 'does not pay'} within your {plural(plan.steps, 'step')}")
    return f" ({', '.join(clauses)})" if clauses else ""


def _search_cost(pair: FlagPair, break_even: int | None) -> str:
    if pair.on.tuning_ns is None:
        return "The cost of the algorithm search is unknown."
    search = f"The algorithm search takes {text(max(0, pair.on.tuning_ns), 'ns')} in the first step of each input shape"
    if break_even is None:
        return f"{search}."
    saved = text(pair.before.median - pair.after.median, "ns")
    return f"{search}. Every later step saves {saved}."


def _cold_start(pair: FlagPair) -> str:
    """The first step of both processes, if the second started much faster because the kernels were already read from disk."""
    first = pair.on.first_step_ns
    second = pair.on.repeat.first_step_ns if pair.on.repeat is not None else None
    if first is None or second is None or first - second < COLD_START_SHARE * first:
        return ""
    return (
        f"The first step of {quoted_name(pair.on)} took {text(first, 'ns')} in the first process and {text(second, 'ns')} in the "
        "second: the first process also read kernels from disk."
    )


def _planned_time(plan: PlannedTime | None) -> str:
    if plan is None:
        return ""
    share = f" ({percent(plan.share)} of that time)" if plan.share > LARGE_SEARCH_SHARE else ""
    return (
        f"{plural(plan.steps, 'step')} take {text(plan.off_ns, 'ns')} without benchmark and {text(plan.on_ns, 'ns')} with it, "
        f"including the search{share}."
    )


def _memory_peaks(pair: FlagPair) -> str:
    first_off, first_on = pair.off.first_step_peak_bytes, pair.on.first_step_peak_bytes
    off, on = pair.off.peak_allocated_bytes, pair.on.peak_allocated_bytes
    return join_sentences(
        f"Memory peaks at {text(first_on, 'bytes')} during the search, {text(first_on - first_off, 'bytes')} more than in the "
        "first step without benchmark."
        if first_off is not None and first_on is not None and first_on > first_off
        else "",
        f"A steady step peaks at {text(on, 'bytes')} with benchmark and at {text(off, 'bytes')} without."
        if off is not None and on is not None
        else "",
    )


def _other_pairs(other_pairs: tuple[FlagPair, ...], noise: Noise) -> str:
    outcomes = []
    for pair in other_pairs:
        break_even = break_even_steps(pair.on.tuning_ns, pair.before, pair.after)
        pays = f"breaks even after {plural(break_even, 'step')}" if break_even is not None else "pays"
        is_faster = _pays(noise.difference(pair.off, pair.on))
        outcomes.append(f"{pair.summary()}, {pays if is_faster else 'no gain is established'}")
    return f"With other flags: {'; '.join(outcomes)}." if outcomes else ""


def _advice(pays: bool, break_even: int | None, plan: PlannedTime | None, is_search_expensive: bool) -> Advice:
    limit = advise("Shorten the search: {code}.", f"torch.backends.cudnn.{SHORT_SEARCH.replace('=', ' = ')}")
    if not pays:
        return Advice("Leave torch.backends.cudnn.benchmark at False.")
    if plan is not None and not plan.breaks_even:
        return Advice(f"Leave torch.backends.cudnn.benchmark at False for this few steps. {limit.text}", limit.code)
    min_uses = (
        f"It pays for shapes that occur at least {plural(break_even, 'time')}. " if break_even is not None else ""
    )
    return advise(
        f"If input shapes stay the same, set {{code}} before the first step. {min_uses}"
        "Every new shape starts a new search: pad or bucket varying sizes, and drop a smaller last batch. "
        "Setting the flag later has no effect on shapes that already ran.",
        "torch.backends.cudnn.benchmark = True",
    ).then(limit.text if is_search_expensive else "")


def _evidence(
    pair: FlagPair, difference: Difference, break_even: int | None, plan: PlannedTime | None
) -> Iterator[Evidence]:
    off, on = pair.off.config.name, pair.on.config.name
    yield Evidence(name="saving", value=100.0 * difference.saved, unit="percent", where=on)
    yield Evidence(name="median step without benchmark", value=pair.before.median, unit="ns", where=off)
    yield Evidence(name="median step with benchmark", value=pair.after.median, unit="ns", where=on)
    never = "never" if difference.is_sure and not _pays(difference) else None
    yield from evidence_of(on, ("tuning", pair.on.tuning_ns, "ns"))
    yield from evidence_of(
        on,
        ("break-even steps", break_even, "count") if break_even is not None else ("break-even steps", never, "text"),
    )
    if plan is not None:
        yield Evidence(name=f"{plan.steps:,} planned steps", value=plan.off_ns, unit="ns", where=off)
        yield Evidence(name=f"{plan.steps:,} planned steps", value=plan.on_ns, unit="ns", where=on)
        yield Evidence(name="tuning share of the planned steps", value=100.0 * plan.share, unit="percent", where=on)
    yield from evidence_of(off, ("first step's peak", pair.off.first_step_peak_bytes, "bytes"))
    yield from evidence_of(on, ("first step's peak", pair.on.first_step_peak_bytes, "bytes"))


RULE = Rule("benchmark_pays", DOC, check, "remedy", states_share=False)
