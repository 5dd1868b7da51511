"""The time in which torch.compile compiles, of one trace, split into first compilations and recompilations."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from profiler_kit.diagnosis.step_work import StepWork
from profiler_kit.records.claims import BUSY, Claim, idle_claims

# A twentieth of the time is worth a warm-up before the recording.
MIN_COMPILE_SHARE: Final = 0.05
# The second compilation of a frame makes a size dynamic. Further ones have another reason.
MIN_RECOMPILATIONS: Final = 2
# Source: torch/_dynamo/convert_frame.py: "Torch-Compiled Region: FRAME/COMPILATION".
_REGION: Final = re.compile(r"Torch-Compiled Region: (\d+)/(\d+)\Z")


class Compilation(NamedTuple):
    """Compilation of one trace: its time and share, the recompilations of its frames, and the claims of a finding about it."""

    ns: int
    share: float
    recompilations: int
    claims: tuple[Claim, ...]


def compilation_of(step: StepWork) -> Compilation | None:
    """Return the compilation of a trace; None if it is below the limit and shows no recompilations."""
    if step.span_ns <= 0:
        return None
    # On a device, only the part of the compilation counts in which it is idle.
    ns = step.idle_ns("compilation") if step.on_device else step.trace.compile_ns
    numbers: dict[str, int] = {}
    for operator in step.trace.operators:
        if match := _REGION.search(operator.name):
            numbers[match.group(1)] = max(numbers.get(match.group(1), 0), int(match.group(2)))
    if step.share(ns) < MIN_COMPILE_SHARE and max(numbers.values(), default=0) < MIN_RECOMPILATIONS:
        return None
    claims = idle_claims("compilation") if step.on_device else (*idle_claims("compilation"), BUSY)
    return Compilation(ns, step.share(ns), sum(numbers.values()), claims)
