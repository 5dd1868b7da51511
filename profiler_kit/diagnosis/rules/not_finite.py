"""Outputs, losses or gradients that are NaN or infinite."""

from __future__ import annotations

from collections.abc import Iterator

from profiler_kit.diagnosis.pairs import measured_runs
from profiler_kit.diagnosis.phrases import advise, join_list, join_sentences, quoted_name
from profiler_kit.diagnosis.rule import Rule, new_finding
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun

DOC = """
Fires if the first pass of a configuration, from the initial weights and on the measured inputs, gives NaN or infinity. The
outputs, the loss and the gradients are checked separately.

- `high`: the loss or a gradient is not finite under the default configuration, or an output is NaN.
- `medium`: the same under another configuration only.
- `info`: only outputs contain infinity, such as masked scores.

Times and memory are still those of the model. A kernel takes as long for NaN as for other numbers. What depends on values may
differ: branches, beam search, the error against float64, sparse gradients. Later steps are not checked.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for the baseline if it is affected, otherwise for the first affected run."""
    runs = [run for run in measured_runs(report) if run.nan_in or run.infinity_in]
    if runs:
        baseline = report.baseline()
        yield _finding(report, baseline if baseline in runs else runs[0], runs)


def _finding(report: Report, run: ConfigRun, runs: list[ConfigRun]) -> Finding:
    is_default = run is report.baseline()
    is_mask = not run.nan_in and run.infinity_in == ("outputs",)
    contents = [
        f"{join_list(list(parts))} {'contains' if parts == ('loss',) else 'contain'} {value}"
        for parts, value in ((run.nan_in, "NaN"), (run.infinity_in, "infinity"))
        if parts
    ]
    return new_finding(
        severity="info" if is_mask else "high" if is_default else "medium",
        title=f"Not finite in {quoted_name(run)}: {join_list(contents)}",
        explanation=join_sentences(
            "This is the first pass, from the initial weights and on the measured inputs.",
            f"The same holds in {join_list([quoted_name(r) for r in runs if r is not run], most=3)}."
            if runs[1:]
            else "",
            "" if is_default else "The default configuration is finite.",
            "Times and memory are those of the model; errors and values mean nothing.",
        ),
        advice=(
            "No action is needed if the model masks scores with infinity."
            if is_mask
            else advise(
                "Run one step under {code}, which names the operator whose gradient is NaN. Check the inputs: random ones may "
                "lie outside of the model's range, such as a logarithm of negative numbers.",
                "torch.autograd.detect_anomaly()",
            )
            if is_default
            else "Keep this configuration out of training, or scale the loss (torch.amp.GradScaler) with float16."
        ),
        evidence=[
            Evidence(name=f"{value} in", value=join_list(list(parts)), unit="text", where=each.config.name)
            for each in runs
            for parts, value in ((each.nan_in, "NaN"), (each.infinity_in, "infinity"))
            if parts
        ],
    )


RULE = Rule("not_finite", DOC, check, topic="runs")
