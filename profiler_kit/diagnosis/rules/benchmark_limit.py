"""How many algorithms the search has to try: the sweep over cudnn.benchmark_limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.advice import Attempt
from profiler_kit.diagnosis.pairs import pairs, run_of, with_settings, without
from profiler_kit.diagnosis.rule import Rule, known
from profiler_kit.diagnosis.tuning import planned, tuning_ns
from profiler_kit.diagnosis.words import plural, sentences, threshold
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.noise import WORTH, Noise, noise_of, saving, verdict
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import text

SETTING: Final = "benchmark_limit"
DEFAULT_LIMIT: Final = "10"

DOC = f"""
Runs with `cudnn.benchmark=True` and other limits (`cudnn.benchmark_limit`, {DEFAULT_LIMIT} by default, 0 for all) stand beside
the one with the default limit and the one without benchmark: what each search costs, and the step that it ends with. Where a
number of steps is planned, the best limit is the one with the shortest run, the search included; else the smallest one whose
step is not surely slower by {threshold(WORTH)} than the fastest. `low` where the best limit is not the default, `info` otherwise.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One limit: the run with it, what its search cost."""

    limit: str
    run: ConfigRun
    step_ns: int
    tuning_ns: int


def check(report: Report) -> Iterator[Finding]:
    """Fires once, where at least one other limit than the default's was measured."""
    swept = [run for run in with_settings(report) if [item.name for item in run.config.settings] == [SETTING]]
    if not swept:
        return
    default = run_of(report, without(swept[0].config, SETTING))
    off = next((pair.off for pair in pairs(report, "benchmark") if pair.on is default), None)
    if default is None or off is None:
        return
    rows = [row for run in (*swept, default) if (row := _row(off, run)) is not None]
    rows.sort(key=lambda row: (int(row.limit) == 0, int(row.limit)))
    if len(rows) < 2 or all(row.run is not default for row in rows):
        return
    steps = report.asked.steps_planned if report.asked is not None else None
    noise = noise_of(report)
    best = _best(rows, off, steps, noise)
    usual = best.run is default
    name = f"The default benchmark_limit of {DEFAULT_LIMIT}" if usual else f"benchmark_limit {best.limit}"
    over = f" over {plural(steps, 'step')}" if steps else ""
    yield RULE.finding(
        severity="info" if usual else "low",
        title=f"{name} is the best{over}: "
        f"{text(best.tuning_ns, 'ns')} of search, then {text(best.step_ns, 'ns')} a step",
        explanation=sentences(
            "By limit: " + "; ".join(_row_words(row, off, steps) for row in rows) + ".",
            f"Without benchmark the step takes {text(off.step_ns.median, 'ns')}." if off.step_ns is not None else "",
            noise.sentence(),
        ),
        advice="Leave torch.backends.cudnn.benchmark_limit as it is."
        if usual
        else f"Set torch.backends.cudnn.benchmark_limit = {best.limit} beside benchmark = True, before the first step.",
        evidence=(
            piece
            for row in (best, *(r for r in rows if r is not best))
            for piece in known(row.run.config.name, ("tuning", row.tuning_ns, "ns"), ("median step", row.step_ns, "ns"))
        ),
        attempt=Attempt(tries=(best.run.config.name,), trial=sweep_trial(off, best.run, noise)),
    )


def _row(off: ConfigRun, run: ConfigRun) -> _Row | None:
    cost_ns = tuning_ns(off, run)
    limit = run.config.setting(SETTING) or DEFAULT_LIMIT
    if run.step_ns is None or cost_ns is None or not limit.isdecimal():
        return None
    return _Row(limit=limit, run=run, step_ns=run.step_ns.median, tuning_ns=cost_ns)


def _best(rows: list[_Row], off: ConfigRun, steps: int | None, noise: Noise) -> _Row:
    totals = {id(row): whole.on_ns for row in rows if (whole := planned(off, row.run, steps)) is not None}
    if len(totals) == len(rows):
        return min(rows, key=lambda row: totals[id(row)])
    fastest = min(rows, key=lambda row: row.step_ns)
    as_good = [row for row in rows if not _slower(row, fastest, noise)]
    return min(as_good, key=lambda row: row.tuning_ns)


def _slower(row: _Row, fastest: _Row, noise: Noise) -> bool:
    if row is fastest or row.run.step_ns is None or fastest.run.step_ns is None:
        return False
    return verdict(row.run, fastest.run, noise) == "better" and saving(row.run.step_ns, fastest.run.step_ns) >= WORTH


def _row_words(row: _Row, off: ConfigRun, steps: int | None) -> str:
    name = {"0": "all algorithms", DEFAULT_LIMIT: f"{DEFAULT_LIMIT} (default)"}.get(row.limit, row.limit)
    whole = planned(off, row.run, steps)
    total = f", {text(whole.on_ns, 'ns')} for {plural(whole.steps, 'step')}" if whole is not None else ""
    return f"{name}: {text(row.tuning_ns, 'ns')} of search, {text(row.step_ns, 'ns')} a step{total}"


RULE = Rule("benchmark_limit", DOC, check, "remedy")
