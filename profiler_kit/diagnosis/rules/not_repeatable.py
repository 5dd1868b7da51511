"""Runs whose results are not bitwise reproducible within one process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import find_trials
from profiler_kit.diagnosis.pairs import counterpart, measured_runs
from profiler_kit.diagnosis.phrases import Advice, advise, join_list, join_sentences, quoted_name
from profiler_kit.diagnosis.reproducibility import PASS_RESULTS, differs_between_passes, parts_that_differ
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun

DOC = """
Fires if three forward and backward passes of one process differ in any bit, although they have the same weights and inputs.
Outputs, loss and gradients are compared separately, and the finding names the parts that differ.

- `medium`: `cudnn.deterministic=True` is set, and outputs or gradients differ. The flag covers cuDNN's algorithms only.
- `info`: without the flag, or if only the value of the loss differs.

Some loss functions are not bitwise reproducible (`nll_loss2d`, the cross-entropy of segmentation maps). A loss that differs does
not show a problem of the convolutions. Rule `false_reproducibility` covers differences between processes.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding for runs with the deterministic flag, and one for runs without it."""
    unrepeatable = [run for run in measured_runs(report) if differs_between_passes(run)]
    for deterministic in (True, False):
        runs = [run for run in unrepeatable if (run.config.deterministic is True) is deterministic]
        if runs:
            yield _finding(report, runs, deterministic=deterministic)


def _equal_parts(run: ConfigRun) -> str:
    equal_names = [part.name for part in PASS_RESULTS if part.repeats(run) is True]
    if not equal_names or not parts_that_differ(run):
        return ""
    return f"The {join_list(equal_names)} {'is' if equal_names == ['loss'] else 'are'} equal."


def _finding(report: Report, runs: list[ConfigRun], *, deterministic: bool) -> Finding:
    run = runs[0]
    on_cpu = run.clock == "operator"
    names = join_list([quoted_name(r) for r in runs], most=2)
    remedy = None if deterministic else counterpart(report, run, "deterministic", True)
    remedy_works = remedy is not None and remedy.failure is None and remedy.repeatable is True
    can_try = not deterministic and run is report.baseline() and (remedy is None or remedy_works)
    parts = join_list(parts_that_differ(run)) or "outputs or gradients"
    # the value of the loss does not change the gradients
    matters = any(set(parts_that_differ(r)) != {"loss"} for r in runs)
    return new_finding(
        severity="medium" if deterministic and matters else "info",
        title=f"Not bitwise reproducible: passes over the same batch give different {parts} in {names}"
        + (", although cudnn.deterministic is set" if deterministic else ""),
        explanation=join_sentences(
            "Three passes ran in one process, with the same weights and inputs and no optimizer step between them.",
            _equal_parts(run),
            "The usual cause: threads add partial sums in an order that changes from run to run."
            if on_cpu
            else "The usual cause: kernels add with atomics, in an order that changes from run to run.",
            f"With cudnn.deterministic=True ({quoted_name(remedy)}) all passes are bitwise equal."
            if remedy_works and remedy is not None
            else "",
        ),
        advice=_advice(deterministic, on_cpu),
        evidence=[
            piece
            for r in runs
            for piece in evidence_of(
                r.config.name, *((f"repeatable {p.name}", p.repeats(r), "bool") for p in PASS_RESULTS)
            )
        ]
        or [Evidence(name="repeatable", value=False, unit="bool", where=run.config.name)],
        trials=find_trials(report, run, ("deterministic",) if can_try else ()),
    )


def _advice(deterministic: bool, on_cpu: bool) -> Advice:
    if deterministic:
        return advise(
            "Call {code}: it raises an error that names the operator without a deterministic version. Set the environment "
            "variable CUBLAS_WORKSPACE_CONFIG=:4096:8.",
            _ALL_OPERATORS,
        )
    if on_cpu:
        return advise(
            "No action is needed unless you need bitwise equal results. In that case call {code}.", _ALL_OPERATORS
        )
    return advise(
        f"No action is needed unless you need bitwise equal results. In that case set {{code}}, or call {_ALL_OPERATORS}, which "
        "also covers PyTorch's own operators.",
        "torch.backends.cudnn.deterministic = True",
    )


_ALL_OPERATORS: Final = "torch.use_deterministic_algorithms(True)"


RULE = Rule("not_repeatable", DOC, check)
