"""The best value of cudnn.benchmark_limit, the number of algorithms that cudnn.benchmark tries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.advice import AdviceTrials
from profiler_kit.diagnosis.algorithm_search import planned_time, tuning_ns
from profiler_kit.diagnosis.pairs import find_run, flag_pairs, runs_with_settings, without_setting
from profiler_kit.diagnosis.phrases import advise, capitalize, join_sentences, limit_percent, plural
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.noise import MIN_USEFUL_SAVING, Noise, noise_of
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import text

SETTING: Final = "benchmark_limit"
DEFAULT_LIMIT: Final = "10"

DOC = f"""
Fires when runs with `cudnn.benchmark=True` and at least one other `cudnn.benchmark_limit` were measured (default
{DEFAULT_LIMIT}; 0 tries all algorithms), besides the run with the default limit and the run without benchmark. It compares
the time of each algorithm search and the step that results from it.

- `low`: the best limit is not the default.
- `info`: the default is the best.

With a planned number of steps (`--steps-planned`), the best limit has the shortest total time, search included. Otherwise it
is the limit with the shortest search whose step is not significantly slower than the fastest, or slower by less than
{limit_percent(MIN_USEFUL_SAVING)}.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LimitResult:
    """One limit: its run, its median step, and the time of its algorithm search."""

    limit: str
    run: ConfigRun
    step_ns: int
    tuning_ns: int


def check(report: Report) -> Iterator[Finding]:
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
    steps = report.asked.steps_planned if report.asked is not None else None
    noise = noise_of(report)
    best = _best_result(results, off, steps, noise)
    is_default = best.run is default
    name = f"The default benchmark_limit of {DEFAULT_LIMIT}" if is_default else f"benchmark_limit = {best.limit}"
    planned_steps = f" over {plural(steps, 'step')}" if steps else ""
    yield new_finding(
        severity="info" if is_default else "low",
        title=f"{name} is the best{planned_steps}: the algorithm search takes {text(best.tuning_ns, 'ns')}, then each step "
        f"takes {text(best.step_ns, 'ns')}",
        explanation=join_sentences(
            capitalize("; ".join(_describe(result, off, steps) for result in results)) + ".",
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
    search_ns = tuning_ns(off, run)
    limit = run.config.setting(SETTING) or DEFAULT_LIMIT
    if run.step_ns is None or search_ns is None or not limit.isdecimal():
        return None
    return _LimitResult(limit=limit, run=run, step_ns=run.step_ns.median, tuning_ns=search_ns)


def _best_result(results: list[_LimitResult], off: ConfigRun, steps: int | None, noise: Noise) -> _LimitResult:
    totals = {
        id(result): plan.on_ns for result in results if (plan := planned_time(off, result.run, steps)) is not None
    }
    if len(totals) == len(results):
        return min(results, key=lambda result: totals[id(result)])
    fastest = min(results, key=lambda result: result.step_ns)
    equally_fast = [result for result in results if not _is_slower(result, fastest, noise)]
    return min(equally_fast, key=lambda result: result.tuning_ns)


def _is_slower(result: _LimitResult, fastest: _LimitResult, noise: Noise) -> bool:
    difference = noise.difference(result.run, fastest.run) if result is not fastest else None
    return difference is not None and difference.outcome == "better" and difference.saved >= MIN_USEFUL_SAVING


def _describe(result: _LimitResult, off: ConfigRun, steps: int | None) -> str:
    note = {"0": " (all algorithms)", DEFAULT_LIMIT: " (default)"}.get(result.limit, "")
    plan = planned_time(off, result.run, steps)
    total = f", {plural(plan.steps, 'step')} {text(plan.on_ns, 'ns')}" if plan is not None else ""
    return (
        f"limit {result.limit}{note}: search {text(result.tuning_ns, 'ns')}, step {text(result.step_ns, 'ns')}{total}"
    )


RULE = Rule("benchmark_limit", DOC, check, "remedy")
