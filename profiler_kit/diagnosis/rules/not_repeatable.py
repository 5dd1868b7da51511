"""Runs that do not give the same bits twice in one process."""

from __future__ import annotations

from collections.abc import Iterator

from profiler_kit.diagnosis.advice import attempt
from profiler_kit.diagnosis.bits import PARTS, differing, parts_that_differ
from profiler_kit.diagnosis.pairs import counterpart, measured
from profiler_kit.diagnosis.rule import Rule, known
from profiler_kit.diagnosis.words import listing, quoted, sentences
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun

DOC = """
Two forward and backward passes of one process, from the same weights and inputs, are compared bit by bit: outputs, loss and
gradients apart. `info` where they differ, with the part that differs; `medium` where `cudnn.deterministic=True` was set and they
differ nevertheless, as the flag covers cuDNN's algorithms only; `info` again where only the loss's value does. Some losses are
not repeatable by themselves (`nll_loss2d`, what cross-entropy on maps becomes), so a loss that differs says nothing about the
convolutions.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires at most once for runs with deterministic, and once for those without."""
    found = [run for run in measured(report) if differing(run)]
    for deterministic in (True, False):
        runs = [run for run in found if (run.config.deterministic is True) is deterministic]
        if runs:
            yield _finding(report, runs, deterministic=deterministic)


def _same_part(run: ConfigRun) -> str:
    same = [part.name for part in PARTS if part.repeats(run) is True]
    differ = parts_that_differ(run)
    if not same or not differ:
        return ""
    return f"The {listing(same)} {'is' if same == ['loss'] else 'are'} the same."


def _finding(report: Report, runs: list[ConfigRun], *, deterministic: bool) -> Finding:
    run = runs[0]
    names = listing([quoted(r) for r in runs], most=2)
    cure = None if deterministic else counterpart(report, run, "deterministic", True)
    cures = cure is not None and cure.failure is None and cure.repeatable is True
    failed = cure is not None and not cures
    is_baseline = run is report.baseline()  # what is tried stands beside that one
    tried = attempt(report, run, ("deterministic",) if is_baseline and not deterministic and not failed else ())
    parts = listing(parts_that_differ(run)) or "outputs or gradients"
    # a loss that differs in its value alone trains nothing
    matters = any(set(parts_that_differ(r)) != {"loss"} for r in runs)
    return RULE.finding(
        severity="medium" if deterministic and matters else "info",
        title=f"Two passes over the same batch give different {parts} in {names}"
        + (", although deterministic is set" if deterministic else ""),
        explanation=sentences(
            "The three passes ran in one process, from the same weights and inputs, with no optimizer step between.",
            _same_part(run),
            "The usual cause is kernels that add with atomics, in an order that changes from run to run.",
            f"With cudnn.deterministic=True ({quoted(cure)}) all passes give the same bits."
            if cures and cure is not None
            else "",
        ),
        advice=_advice(deterministic),
        evidence=[
            piece
            for r in runs
            for piece in known(r.config.name, *((f"repeatable {p.name}", p.repeats(r), "bool") for p in PARTS))
        ]
        or [Evidence(name="repeatable", value=False, unit="bool", where=run.config.name)],
        attempt=tried,
    )


def _advice(deterministic: bool) -> str:
    if deterministic:
        return (
            "Use torch.use_deterministic_algorithms(True), which names the operator that has no deterministic version, and "
            "set the variable CUBLAS_WORKSPACE_CONFIG=:4096:8."
        )
    return (
        "Nothing to do unless you need equal bits from run to run; then set torch.backends.cudnn.deterministic = True, or "
        "torch.use_deterministic_algorithms(True) for PyTorch's own operators too."
    )


RULE = Rule("not_repeatable", DOC, check)
