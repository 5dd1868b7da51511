"""A function that torch.compile compiles again and again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.compilation import MIN_COMPILE_SHARE, MIN_RECOMPILATIONS, worst_compilation
from profiler_kit.diagnosis.phrases import join_sentences, limit_percent, plural
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.units import percent, text

HIGH_SHARE: Final = 0.25

DOC = f"""
Fires for a trace in which torch.compile compiles for at least {limit_percent(MIN_COMPILE_SHARE)} of the time, and the numbers of
the compiled regions show at least {MIN_RECOMPILATIONS} recompilations: `Torch-Compiled Region: 0/3` is the fourth version of
frame 0.

- `high`: from {limit_percent(HIGH_SHARE)} of the time.
- `medium`: below that.
- `low`: the recorded steps hardly compile, but run a version of a frame with a number of at least {MIN_RECOMPILATIONS}.

torch.compile compiles again if a guard fails: another shape, another dtype, a changed number or attribute. The second version
of a frame usually makes a size dynamic; further versions have another reason. After eight versions, the frame runs without
compilation.
"""


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace that compiles longest."""
    worst = worst_compilation(report)
    if worst is None or worst.match.recompilations < MIN_RECOMPILATIONS:
        return
    trace, compilation = worst.step.trace, worst.match
    yield RULE.finding(
        severity="high"
        if compilation.share >= HIGH_SHARE
        else "medium"
        if compilation.share >= MIN_COMPILE_SHARE
        else "low",
        title=f"torch.compile compiles again and again: {plural(compilation.recompilations, 'recompilation')}"
        + (
            f", and compilation takes {percent(compilation.share)} of the time"
            if compilation.share
            else " up to these steps"
        ),
        explanation=join_sentences(
            f"{worst.step.prefix}Compilation takes {text(compilation.ns, 'ns')} of {text(trace.span_ns, 'ns')}.",
            "Each new version of a frame means that a guard failed: another shape, another dtype, a changed number.",
            worst.others_sentence(),
        ),
        advice="See which guard fails: `{code}` in the environment. For changing shapes, use "
        "torch.compile(model, dynamic=True), torch._dynamo.mark_dynamic(x, 0), or pad batches to a few sizes.",
        code="TORCH_LOGS=recompiles",
        evidence=(
            Evidence(name="recompilations", value=compilation.recompilations, unit="count", where=worst.step.name),
            Evidence(
                name="compilation, share of the time",
                value=100.0 * compilation.share,
                unit="percent",
                where=worst.step.name,
            ),
            Evidence(name="compilation", value=compilation.ns, unit="ns", where=worst.step.name),
        ),
        weight=compilation.share,
        claims=("idle:compilation",) if trace.clock == "device" else ("idle:compilation", "busy"),
    )


RULE = Rule("recompilation", DOC, check, "cause", "both")
