"""Runs that are bitwise reproducible within one process, but not between two processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.advice import find_trials
from profiler_kit.diagnosis.pairs import measured_runs
from profiler_kit.diagnosis.phrases import Advice, advise, join_list, join_sentences, quoted_name
from profiler_kit.diagnosis.reproducibility import PassResult, parts_that_differ_between_processes
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.records.experiments import Repeat
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.runs import ConfigRun

DOC = """
Fires when three passes in one process gave bitwise equal results, but a second, fresh process of the same configuration and
seed gave different ones. Outputs, loss and gradients are compared separately.

- `medium`: `cudnn.deterministic=True` was set.
- `low`: it was not set.
- `info`: only the loss differs. Some losses are not bitwise reproducible even if the outputs are.

With `cudnn.benchmark=True`, the search may select another algorithm in the next process, deterministic or not. Without it,
the cause is a choice that depends on free memory, or an initialization that ignores the seed. Runs with benchmark and runs
without it get separate findings.
"""


@dataclass(frozen=True, slots=True)
class _DifferingRun:
    """A run, its second process, and the parts that differ between them."""

    first: ConfigRun
    second: ConfigRun | Repeat
    parts: tuple[PassResult, ...]


_COMPARE: Final = "Compare results between processes before you call them reproducible."


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding for runs with benchmark, and at most one for runs without it."""
    runs = [
        differing_run for run in measured_runs(report) if (differing_run := _differing_run(report, run)) is not None
    ]
    for benchmark in (True, False):
        group = [run for run in runs if (run.first.config.benchmark is True) is benchmark]
        if group:
            yield _finding(report, group, benchmark=benchmark)


def _differing_run(report: Report, run: ConfigRun) -> _DifferingRun | None:
    repeat = next((r for r in report.runs if r.config.repeat_of == run.config.name and r.failure is None), None)
    second = repeat or (run.repeat if run.repeat is not None and run.repeat.failure is None else None)
    parts = parts_that_differ_between_processes(run, second) if second is not None else ()
    return _DifferingRun(run, second, parts) if second is not None and parts else None


def _finding(report: Report, runs: list[_DifferingRun], *, benchmark: bool) -> Finding:
    first = runs[0].first
    names = join_list([quoted_name(run.first) for run in runs], most=3)
    parts = join_list(list(dict.fromkeys(part.name for run in runs for part in run.parts)))
    is_deterministic = any(run.first.config.deterministic is True for run in runs)
    verb = "is" if len(runs) == 1 else "are"
    deterministic = find_trials(
        report, first, ("deterministic",) if first is report.baseline() and not benchmark else ()
    )
    return new_finding(
        severity="info" if parts == "loss" else "medium" if is_deterministic else "low",
        title=f"{names} {verb} bitwise reproducible only within one process: two processes give different {parts}",
        explanation=join_sentences(
            "Three passes within one process gave bitwise equal results. A second, fresh process of the same configuration and "
            "seed gave different ones.",
            "cudnn.benchmark times each algorithm once or twice, so another one may win in the next process."
            if benchmark
            else "The two processes used different algorithms, or different initial values despite the seed.",
            "cudnn.deterministic=True does not prevent this: each algorithm repeats its own result, but two algorithms differ."
            if benchmark and is_deterministic
            else "",
        ),
        advice=Advice(f"{_COMPARE} Leave cudnn.benchmark at False if the next run must give the same results.")
        if benchmark
        else advise(
            f"{_COMPARE} Set {{code}}, and seed every random number generator that building the model uses.",
            "torch.backends.cudnn.deterministic = True",
        ),
        evidence=tuple(
            item
            for run in runs
            for part in run.parts
            for ordinal, process in (("first", run.first), ("second", run.second))
            for item in evidence_of(
                run.first.config.name, (f"{part.name} digest, {ordinal} process", part.digest(process), "text")
            )
        ),
        trials=deterministic,
    )


RULE = Rule("false_reproducibility", DOC, check)
