"""A function that torch.compile compiles again and again."""

from __future__ import annotations

from typing import Final

from profiler_kit.diagnosis.compilation import MIN_COMPILE_SHARE, MIN_RECOMPILATIONS, compilation_of
from profiler_kit.diagnosis.phrases import limit_percent, plural
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork, all_steps
from profiler_kit.records.report import Report, TraceReport
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


def _recompilation(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    compilation = compilation_of(step)
    if compilation is None or (times := compilation.recompilations) < MIN_RECOMPILATIONS:
        return None
    return StepPart(
        share=compilation.share,
        share_name="compilation, share of the time",
        severity=severity_of(compilation.share, high=HIGH_SHARE, medium=MIN_COMPILE_SHARE),
        title=f"torch.compile compiles again and again: {plural(times, 'recompilation')}, and compilation takes "
        f"{percent(compilation.share)} of the time",
        sentences=(
            f"Compilation takes {text(compilation.ns, 'ns')} of {text(step.span_ns, 'ns')}.",
            "Each new version of a frame means that a guard failed: another shape, another dtype, a changed number.",
        ),
        advice="See which guard fails: `{code}` in the environment. For changing shapes, use "
        "torch.compile(model, dynamic=True), torch._dynamo.mark_dynamic(x, 0), or pad batches to a few sizes.",
        code="TORCH_LOGS=recompiles",
        measures=(("recompilations", times, "count"), ("compilation", compilation.ns, "ns")),
        claims=compilation.claims,
    )


RULE = step_rule("recompilation", DOC, _recompilation, steps=all_steps)
