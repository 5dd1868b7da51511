"""Time in which torch.compile compiles instead of running the model."""

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
Fires for a trace in which torch.compile compiles for at least {limit_percent(MIN_COMPILE_SHARE)} of the time (on a device: of the
time in which it is idle meanwhile).

- `high`: from {limit_percent(HIGH_SHARE)}.
- `medium`: below that.

Compilation happens in the first steps. If frames are compiled again and again, rule `recompilation` fires instead.
"""


def _compile_time(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    compilation = compilation_of(step)
    if compilation is None or compilation.recompilations >= MIN_RECOMPILATIONS:
        return None
    return StepPart(
        share=compilation.share,
        share_name="compilation, share of the time",
        severity=severity_of(compilation.share, high=HIGH_SHARE),
        title=f"torch.compile compiles for {percent(compilation.share)} of the time",
        sentences=(
            f"Compilation takes {text(compilation.ns, 'ns')} of {text(step.span_ns, 'ns')}.",
            f"It compiles {plural(step.trace.compiled_frames, 'frame')}." if step.trace.compiled_frames else "",
            "Steps after the compilation do not have this cost.",
        ),
        advice="Record after the compilation: run a few steps first, or {code}. To compile less often, keep the cache between "
        "processes (TORCHINDUCTOR_CACHE_DIR) or compile only the repeated block.",
        code="torch.profiler.schedule(wait=1, warmup=3, active=3)",
        measures=(("compilation", compilation.ns, "ns"), ("compiled frames", step.trace.compiled_frames, "count")),
        claims=compilation.claims,
    )


RULE = step_rule("compile_time", DOC, _compile_time, "place", steps=all_steps)
