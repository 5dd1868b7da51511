"""The time in which torch.compile compiles, of one trace, split into first compilations and recompilations."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from profiler_kit.diagnosis.step_work import StepWork, WorstStep, all_steps, worst_step
from profiler_kit.records.report import Report, TraceReport

# A twentieth of the time is worth a warm-up before the recording.
MIN_COMPILE_SHARE: Final = 0.05
# The second compilation of a frame makes a size dynamic. Further ones have another reason.
MIN_RECOMPILATIONS: Final = 2
# Source: torch/_dynamo/convert_frame.py: "Torch-Compiled Region: FRAME/COMPILATION".
_REGION: Final = re.compile(r"Torch-Compiled Region: (\d+)/(\d+)\Z")


class Compilation(NamedTuple):
    """Compilation of one trace: its time and share, the compiled frames, and how many of them are recompilations."""

    ns: int
    share: float
    frames: int
    recompilations: int


def worst_compilation(report: Report | TraceReport) -> WorstStep[Compilation] | None:
    """Return the trace with the largest share of compilation; None if all are below the limit and show no recompilations."""
    return worst_step(all_steps(report), _compilation, lambda compilation: compilation.share)


def _compilation(step: StepWork) -> Compilation | None:
    trace = step.trace
    if trace.span_ns <= 0:
        return None
    # On a device, only the part of the compilation counts in which it is idle.
    ns = step.idle_ns("compilation") if step.on_device else trace.compile_ns
    share = min(1.0, ns / trace.span_ns)
    numbers: dict[str, int] = {}
    for operator in trace.operators:
        if match := _REGION.search(operator.name):
            numbers[match.group(1)] = max(numbers.get(match.group(1), 0), int(match.group(2)))
    recompilations = sum(numbers.values())
    if share < MIN_COMPILE_SHARE and max(numbers.values(), default=0) < MIN_RECOMPILATIONS:
        return None
    return Compilation(ns, share, trace.compiled_frames, recompilations)
