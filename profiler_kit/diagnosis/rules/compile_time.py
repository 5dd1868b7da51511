"""Time in which torch.compile compiles instead of running the model."""

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
Fires for a trace in which torch.compile compiles for at least {limit_percent(MIN_COMPILE_SHARE)} of the time (on a device: of the
time in which it is idle meanwhile).

- `high`: from {limit_percent(HIGH_SHARE)}.
- `medium`: below that.

Compilation happens in the first steps. If frames are compiled again and again, rule `recompilation` fires instead.
"""


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace that compiles longest."""
    worst = worst_compilation(report)
    if worst is None or worst.match.recompilations >= MIN_RECOMPILATIONS:
        return
    trace, compilation = worst.step.trace, worst.match
    yield RULE.finding(
        severity="high" if compilation.share >= HIGH_SHARE else "medium",
        title=f"torch.compile compiles for {percent(compilation.share)} of the time",
        explanation=join_sentences(
            f"{worst.step.prefix}Compilation takes {text(compilation.ns, 'ns')} of {text(trace.span_ns, 'ns')}.",
            f"It compiles {plural(compilation.frames, 'frame')}." if compilation.frames else "",
            "Steps after the compilation do not have this cost.",
            worst.others_sentence(),
        ),
        advice="Record after the compilation: run a few steps first, or {code}. To compile less often, keep the cache between "
        "processes (TORCHINDUCTOR_CACHE_DIR) or compile only the repeated block.",
        code="torch.profiler.schedule(wait=1, warmup=3, active=3)",
        evidence=(
            Evidence(
                name="compilation, share of the time",
                value=100.0 * compilation.share,
                unit="percent",
                where=worst.step.name,
            ),
            Evidence(name="compilation", value=compilation.ns, unit="ns", where=worst.step.name),
            Evidence(name="compiled frames", value=compilation.frames, unit="count", where=worst.step.name),
        ),
        weight=compilation.share,
        claims=("idle:compilation",) if trace.clock == "device" else ("idle:compilation", "busy"),
    )


RULE = Rule(
    "compile_time",
    DOC,
    check,
    "place",
    "both",
)
