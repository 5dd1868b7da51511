"""cuDNN's flags: what each of them saves or costs, and the search of ``cudnn.benchmark``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from profiler_kit.configurations.naming import FLAG_CHANGES, OFF
from profiler_kit.diagnosis.advice import AdviceTrials, with_option
from profiler_kit.diagnosis.pairs import RunPair, find_run, flag_pairs, plain_runs, runs_with_settings, without_setting
from profiler_kit.diagnosis.phrases import (
    Advice,
    advise,
    capitalize,
    join_sentences,
    limit_percent,
    plural,
    quoted_name,
)
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.diagnosis.setting_rule import NEVER_SERIOUS, Extras, Setting, saves_time, setting_rule
from profiler_kit.diagnosis.step_rule import Shares
from profiler_kit.diagnosis.timing import kernels_of, ratio
from profiler_kit.records.comparison import clock_name
from profiler_kit.records.families import IM2COL
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Difference
from profiler_kit.statistics.noise import MIN_USEFUL_SAVING, Noise, break_even_steps, noise_of
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import percent, text

# Three algorithms still include both kinds of implicit GEMM, and one more: the setting to try when the search is expensive.
SHORT_SEARCH: Final = "benchmark_limit=3"
# A search that takes more than this share of the planned run is reported, even if the run is faster with it.
LARGE_SEARCH_SHARE: Final = 0.10
# When the first step of the second process is this much shorter, the first process also read kernels from disk.
COLD_START_SHARE: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A planned number of steps of one input shape: their time without the search, and with it including the search."""

    steps: int
    off_ns: int
    on_ns: int
    tuning_ns: int

    @property
    def breaks_even(self) -> bool:
        """Whether the planned steps take less time with the search, that is, reach break-even."""
        return self.on_ns < self.off_ns

    @property
    def share(self) -> float:
        """The share of the search in the time with it."""
        return self.tuning_ns / self.on_ns if self.on_ns > 0 else 0.0


def _start_up_ns(run: ConfigRun) -> int | None:
    """Return how much longer the first step takes than a median step; None if either is unknown."""
    return run.first_step_ns - run.step_ns.median if run.first_step_ns is not None and run.step_ns is not None else None


def _tuning_ns(off: ConfigRun, on: ConfigRun) -> int | None:
    """Return the time of the algorithm search of `on`: its start-up minus that of `off`, at least 0; None if unknown."""
    if on.tuning_ns is not None:
        return max(0, on.tuning_ns)
    on_ns, off_ns = _start_up_ns(on), _start_up_ns(off)
    return max(0, on_ns - off_ns) if on_ns is not None and off_ns is not None else None


def _planned(report: Report, off: ConfigRun, on: ConfigRun) -> _Plan | None:
    """Return the time of the planned steps with the flags of `off` and `on`; None without a plan, or if a time is unknown."""
    steps = report.asked.steps_planned if report.asked is not None else None
    cost_ns = _tuning_ns(off, on)
    if not steps or steps < 1 or cost_ns is None or off.step_ns is None or on.step_ns is None:
        return None
    start_ns = max(0, _start_up_ns(off) or 0)
    off_ns, on_ns = (start_ns + steps * run.step_ns.median for run in (off, on) if run.step_ns is not None)
    return _Plan(steps=steps, off_ns=off_ns, on_ns=on_ns + cost_ns, tuning_ns=cost_ns)


def _search(report: Report, pair: RunPair, difference: Difference) -> Extras:
    """Return the cost of the search, the break-even number of steps, and the verdict on the planned steps."""
    pays, plan = saves_time(difference), _planned(report, pair.off, pair.on)
    break_even = break_even_steps(pair.on.tuning_ns, pair.before, pair.after) if pays else None
    is_expensive = pays and plan is not None and plan.share > LARGE_SEARCH_SHARE
    never = "never" if difference.is_sure and not pays else None
    return Extras(
        title=_break_even(break_even, plan) if pays else "",
        sentences=(
            _search_cost(pair, break_even),
            _cold_start(pair),
            _plan_sentence(plan),
            _first_peak(pair),
        ),
        measures=(
            ("tuning", pair.on.tuning_ns, "ns"),
            ("break-even steps", break_even, "count")
            if break_even is not None
            else ("break-even steps", never, "text"),
            *(() if plan is None else _plan_measures(plan)),
            ("first step's peak", pair.on.first_step_peak_bytes, "bytes"),
        ),
        advice=_search_advice(break_even, plan, is_expensive) if pays else None,
        tries=(with_option(pair.on.config, SHORT_SEARCH).name,) if is_expensive else (),
        most="low" if pays and plan is not None and not plan.breaks_even else "high",
    )


def _plan_measures(plan: _Plan) -> Iterator[tuple[str, float, str]]:
    yield f"{plan.steps:,} planned steps without it", plan.off_ns, "ns"
    yield f"{plan.steps:,} planned steps", plan.on_ns, "ns"
    yield "tuning share of the planned steps", 100.0 * plan.share, "percent"


def _break_even(break_even: int | None, plan: _Plan | None) -> str:
    clauses = []
    if break_even is not None:
        clauses.append(f"breaks even after {plural(break_even, 'step')}")
    if plan is not None:
        clauses.append(f"{'pays' if plan.breaks_even else 'does not pay'} within your {plural(plan.steps, 'step')}")
    return f" ({', '.join(clauses)})" if clauses else ""


def _search_cost(pair: RunPair, break_even: int | None) -> str:
    if pair.on.tuning_ns is None:
        return "The cost of the algorithm search is unknown."
    search = f"The algorithm search takes {text(max(0, pair.on.tuning_ns), 'ns')} in the first step of each input shape"
    if break_even is None:
        return f"{search}."
    return f"{search}. Every later step saves {text(pair.before.median - pair.after.median, 'ns')}."


def _cold_start(pair: RunPair) -> str:
    """The first step of both processes, if the second started much faster because the kernels were already read from disk."""
    first = pair.on.first_step_ns
    second = pair.on.repeat.first_step_ns if pair.on.repeat is not None else None
    if first is None or second is None or first - second < COLD_START_SHARE * first:
        return ""
    return (
        f"The first step of {quoted_name(pair.on)} took {text(first, 'ns')} in the first process and {text(second, 'ns')} in the "
        "second: the first process also read kernels from disk."
    )


def _plan_sentence(plan: _Plan | None) -> str:
    if plan is None:
        return ""
    share = f" ({percent(plan.share)} of that time)" if plan.share > LARGE_SEARCH_SHARE else ""
    return (
        f"{plural(plan.steps, 'step')} take {text(plan.off_ns, 'ns')} without benchmark and {text(plan.on_ns, 'ns')} with it, "
        f"including the search{share}."
    )


def _first_peak(pair: RunPair) -> str:
    off, on = pair.off.first_step_peak_bytes, pair.on.first_step_peak_bytes
    if off is None or on is None or on <= off:
        return ""
    more = f"{text(on - off, 'bytes')} more than in the first step without benchmark"
    return f"Memory peaks at {text(on, 'bytes')} during the search, {more}."


def _search_advice(break_even: int | None, plan: _Plan | None, is_expensive: bool) -> Advice:
    limit = advise("Shorten the search: {code}.", f"torch.backends.cudnn.{SHORT_SEARCH.replace('=', ' = ')}")
    if plan is not None and not plan.breaks_even:
        return Advice(f"Leave torch.backends.cudnn.benchmark at False for this few steps. {limit.text}", limit.code)
    uses = f"It pays for shapes that occur at least {plural(break_even, 'time')}. " if break_even is not None else ""
    return advise(
        f"If input shapes stay the same, set {{code}} before the first step. {uses}"
        "Every new shape starts a new search: pad or bucket varying sizes, and drop a smaller last batch. "
        "Setting the flag later has no effect on shapes that already ran.",
        FLAG_CHANGES["benchmark"].line,
    ).then(limit.text if is_expensive else "")


BENCHMARK_PAYS = setting_rule(
    "benchmark_pays",
    Setting(
        subject="cudnn.benchmark=True",
        word="benchmark",
        pairs=lambda report: flag_pairs(report, "benchmark"),
        gains=Shares(MIN_USEFUL_SAVING, medium=0.05, high=0.20),  # a twentieth is worth one line of code
        costs=NEVER_SERIOUS,
        when_better="",
        otherwise="Leave torch.backends.cudnn.benchmark at False.",
        family="conv",
        extras=_search,
    ),
    f"""
Fires when a run with `cudnn.benchmark=True` and a run with otherwise the same flags were measured. It compares the baseline's
pair first.

The price is an algorithm search in the first step of every new input shape. Its time, called tuning, is (first step - steady
step), minus the same difference without benchmark. If a configuration ran in two processes, the one with the faster first
step counts; the finding notes a first process that started much slower. Benchmark breaks even after tuning / (steady step
without - steady step with) steps; this is *never* if it saves less than {limit_percent(MIN_USEFUL_SAVING)} or the difference
is within the noise. The search tries algorithms with large workspaces, so the finding also gives the memory peak of the
first step.

With `--steps-planned N` the verdict covers N steps of this shape, search included: `low` if they do not reach break-even. If
the search takes more than {limit_percent(LARGE_SEARCH_SHARE)} of these steps, the finding shows that share and suggests
`{SHORT_SEARCH}`.
""",
    "remedy",
    states_share=False,
)

_SCOPE: Final = (
    "The flag covers cuDNN's algorithms only; torch.use_deterministic_algorithms(True) also covers PyTorch's own."
)


def _is_costly(report: Report, pair: RunPair, difference: Difference) -> Extras:
    is_cost = difference.outcome == "worse" and -difference.saved >= MIN_USEFUL_SAVING
    leave = "Leave torch.backends.cudnn.deterministic at False unless runs must be bitwise reproducible."
    return Extras(advice=Advice(f"{leave} {_SCOPE}")) if is_cost else Extras()


DETERMINISM_PRICE = setting_rule(
    "determinism_price",
    Setting(
        subject="cudnn.deterministic=True",
        word="deterministic",
        pairs=lambda report: flag_pairs(report, "deterministic"),
        # a user notices a tenth of the step; reports range from 2.4x to 80x (pytorch/pytorch issue 28777)
        costs=Shares(MIN_USEFUL_SAVING, medium=0.10, high=0.50),
        when_better=f"If you want bitwise reproducible convolutions, set {{code}}: here it costs nothing. {_SCOPE}",
        otherwise=f"If you want bitwise reproducible convolutions, set {{code}}: here it costs little. {_SCOPE}",
        extras=_is_costly,
    ),
    """
Fires when a run with `cudnn.deterministic=True` and a run with otherwise the same flags were measured. It compares the
baseline's pair first. If the flag saves no time, the finding names the convolutions whose algorithm changes.
""",
)


def _pairs_without_cudnn(report: Report) -> Sequence[RunPair]:
    """Return each plain run with cuDNN and the run without it; that in float32 first, as the fallback computes in float32."""
    off = next((run for run in plain_runs(report) if run.config.enabled is False and run.step_ns is not None), None)
    runs = [run for run in plain_runs(report) if _is_plain_cudnn(run)]
    runs.sort(key=lambda run: run.config.allow_tf32 is not False)
    return [RunPair.of(run, off) for run in runs] if off is not None else []


def _is_plain_cudnn(run: ConfigRun) -> bool:
    flags = run.config
    return flags.enabled is True and not flags.benchmark and not flags.deterministic and run.step_ns is not None


def _im2col(report: Report, pair: RunPair, difference: Difference) -> Extras:
    im2col_ns = sum(k.kernel_ns for k in kernels_of(pair.on) if k.family == IM2COL)
    share = ratio(im2col_ns, pair.on.device_ns)
    if not im2col_ns or share is None:
        return Extras()
    sentence = (
        f"PyTorch's own convolution copies every input patch into a buffer (im2col, {percent(share)} of the "
        f"{clock_name(pair.on.clock)}) and then multiplies, one sample at a time. The buffer holds kernel height x kernel width "
        "values for each output position and input channel."
    )
    return Extras(sentences=(sentence,))


CUDNN_OFF_FALLBACK = setting_rule(
    "cudnn_off_fallback",
    Setting(
        subject="Turning cuDNN off",
        word=OFF,
        pairs=_pairs_without_cudnn,
        gains=NEVER_SERIOUS,
        when_better="Try {code} for this model, and compare the results.",
        otherwise="Leave torch.backends.cudnn.enabled at True. Pass enabled=True to torch.backends.cudnn.flags(...): its default "
        "turns cuDNN off inside the block.",
        extras=_im2col,
    ),
    """
Fires when a run with `cudnn.enabled=False` and a plain run with cuDNN (no benchmark, not deterministic) were measured.

Without cuDNN, convolutions run as PyTorch's own im2col and matrix product, which is a fallback and not a choice. They compute in
float32 unless TF32 is also allowed for matrix products, so the comparison uses the run without TF32 if there is one.
""",
)

SETTING: Final = "benchmark_limit"
DEFAULT_LIMIT: Final = "10"


@dataclass(frozen=True, slots=True, kw_only=True)
class _LimitResult:
    """One limit: its run, its median step, and the time of its algorithm search."""

    limit: str
    run: ConfigRun
    step_ns: int
    tuning_ns: int


def _best_limit(report: Report) -> Iterator[Finding]:
    """Yield at most one finding: if at least one limit other than the default was measured."""
    limited_runs = [
        run for run in runs_with_settings(report) if [item.name for item in run.config.settings] == [SETTING]
    ]
    if not limited_runs:
        return
    default = find_run(report, without_setting(limited_runs[0].config, SETTING))
    off = next((pair.off for pair in flag_pairs(report, "benchmark") if pair.on is default), None)
    if default is None or off is None:
        return
    results = [result for run in (*limited_runs, default) if (result := _limit_result(off, run)) is not None]
    results.sort(key=lambda result: (int(result.limit) == 0, int(result.limit)))
    if len(results) < 2 or all(result.run is not default for result in results):
        return
    noise = noise_of(report)
    best = _best_result(report, results, off, noise)
    steps = report.asked.steps_planned if report.asked is not None else None
    is_default = best.run is default
    name = f"The default benchmark_limit of {DEFAULT_LIMIT}" if is_default else f"benchmark_limit = {best.limit}"
    planned_steps = f" over {plural(steps, 'step')}" if steps else ""
    yield new_finding(
        severity="info" if is_default else "low",
        title=f"{name} is the best{planned_steps}: the algorithm search takes {text(best.tuning_ns, 'ns')}, then each step "
        f"takes {text(best.step_ns, 'ns')}",
        explanation=join_sentences(
            capitalize("; ".join(_describe(report, result, off) for result in results)) + ".",
            f"Without benchmark the step takes {text(off.step_ns.median, 'ns')}." if off.step_ns is not None else "",
            noise.sentence(),
        ),
        advice="Leave torch.backends.cudnn.benchmark_limit at its default."
        if is_default
        else advise(
            "Set {code} next to benchmark = True, before the first step.",
            f"torch.backends.cudnn.benchmark_limit = {best.limit}",
        ),
        evidence=(
            item
            for result in (best, *(other for other in results if other is not best))
            for item in evidence_of(
                result.run.config.name, ("tuning", result.tuning_ns, "ns"), ("median step", result.step_ns, "ns")
            )
        ),
        trials=AdviceTrials(tries=(best.run.config.name,), trial=sweep_trial(off, best.run, noise)),
    )


def _limit_result(off: ConfigRun, run: ConfigRun) -> _LimitResult | None:
    search_ns = _tuning_ns(off, run)
    limit = run.config.setting(SETTING) or DEFAULT_LIMIT
    if run.step_ns is None or search_ns is None or not limit.isdecimal():
        return None
    return _LimitResult(limit=limit, run=run, step_ns=run.step_ns.median, tuning_ns=search_ns)


def _best_result(report: Report, results: list[_LimitResult], off: ConfigRun, noise: Noise) -> _LimitResult:
    totals = {id(result): plan.on_ns for result in results if (plan := _planned(report, off, result.run)) is not None}
    if len(totals) == len(results):
        return min(results, key=lambda result: totals[id(result)])
    fastest = min(results, key=lambda result: result.step_ns)
    equally_fast = [result for result in results if not _is_slower(result, fastest, noise)]
    return min(equally_fast, key=lambda result: result.tuning_ns)


def _is_slower(result: _LimitResult, fastest: _LimitResult, noise: Noise) -> bool:
    difference = noise.difference(result.run, fastest.run) if result is not fastest else None
    return difference is not None and difference.outcome == "better" and difference.saved >= MIN_USEFUL_SAVING


def _describe(report: Report, result: _LimitResult, off: ConfigRun) -> str:
    note = {"0": " (all algorithms)", DEFAULT_LIMIT: " (default)"}.get(result.limit, "")
    plan = _planned(report, off, result.run)
    total = f", {plural(plan.steps, 'step')} {text(plan.on_ns, 'ns')}" if plan is not None else ""
    return (
        f"limit {result.limit}{note}: search {text(result.tuning_ns, 'ns')}, step {text(result.step_ns, 'ns')}{total}"
    )


BENCHMARK_LIMIT = Rule(
    "benchmark_limit",
    f"""
Fires when runs with `cudnn.benchmark=True` and at least one other `cudnn.benchmark_limit` were measured (default
{DEFAULT_LIMIT}; 0 tries all algorithms), besides the run with the default limit and the run without benchmark. It compares
the time of each algorithm search and the step that results from it.

- `low`: the best limit is not the default.
- `info`: the default is the best.

With a planned number of steps (`--steps-planned`), the best limit has the shortest total time, search included. Otherwise it
is the limit with the shortest search whose step is not significantly slower than the fastest, or slower by less than
{limit_percent(MIN_USEFUL_SAVING)}.
""",
    _best_limit,
    "remedy",
)
