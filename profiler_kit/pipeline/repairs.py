"""Adds to the timeline of a trace what the repair of its main finding would change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from profiler_kit.records.lanes import StepTimeline
from profiler_kit.records.report import Finding

if TYPE_CHECKING:
    from profiler_kit.simulation.step_model import StepModel

MIN_SAVING: Final = 0.02  # of the step: less cannot be seen


def with_repair(timeline: StepTimeline, findings: Sequence[Finding], model: StepModel | None) -> StepTimeline:
    """Add the steps of `model` before and after the first finding that saves a part of a step is repaired.

    A finding about several traces has the saving of the one that it affects most: the timelines of the others stay as they are.
    """
    saving = ((number, finding) for number, finding in enumerate(findings, 1) if finding.saving is not None)
    number, first = next(((n, finding) for n, finding in saving if _saved(finding) >= MIN_SAVING), (0, None))
    if first is None or model is None:
        return timeline
    from profiler_kit.diagnosis.step_savings import change_of
    from profiler_kit.simulation.repaired_step import repaired_step

    repair = repaired_step(model, change_of(first), number)
    is_its_trace = math.isclose(1.0 - repair.after_ns / repair.before_ns, _saved(first), abs_tol=1e-6)
    return replace(timeline, repair=repair) if is_its_trace else timeline


def _saved(finding: Finding) -> float:
    return finding.saving.median if finding.saving is not None else 0.0
