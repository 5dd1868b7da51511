"""The step after one repair, after two, and so on, to the work of the device alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profiler_kit.records.report import Finding
from profiler_kit.records.verdict import StepAfter

# A repair that saves less of the step does not deserve a line in the sequence.
MIN_SAVING: Final = 0.05
MAX_REPAIRS: Final = 4


def step_sequence(findings: Sequence[Finding], step_ns: int) -> tuple[StepAfter, ...]:
    """Return what a step of `step_ns` takes after each repair, in the order of `findings`, which are ranked.

    Only findings with a replayed saving count. A finding that saves nothing now but would after another repair is part of it.
    """
    steps: list[StepAfter] = []
    left = 1.0
    for number, finding in enumerate(findings, start=1):
        if finding.saving is None or (finding.share or 0.0) < MIN_SAVING or len(steps) == MAX_REPAIRS:
            continue
        left = max(0.0, left - (finding.share or 0.0))
        steps.append(StepAfter(finding=number, step_ns=round(left * step_ns)))
    return tuple(steps)
