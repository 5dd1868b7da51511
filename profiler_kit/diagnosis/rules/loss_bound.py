"""A loss that takes a large part of the device time, not only of the host time."""

from __future__ import annotations

import re
from typing import Final

from profiler_kit.diagnosis.phrases import limit_percent
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork, total_ns, work_claims
from profiler_kit.records.claims import module_claims, phase_claims
from profiler_kit.records.counts import LOSS_PATH
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.units import percent, text

# A loss reads the outputs a few times. From a fifth of the step on, the outputs are as expensive as the model.
MIN_SHARE: Final = 0.20
LARGE_SHARE: Final = 0.50
_LOSS_WORK: Final = re.compile(r"log_?softmax|nll_loss|cross_entropy|_loss(_|\Z|\d)")  # of names in lower case

DOC = f"""
Fires if the loss takes at least {limit_percent(MIN_SHARE)} of the step in device time (on a CPU: operator time), with its
backward pass where the names show it. `high` from {limit_percent(LARGE_SHARE)} on, `medium` below.

This is real work, usually a softmax over many classes. Rule `wrong_phase` covers a loss that only waits for the device. In a
trace the same limits hold.
"""


def _loss(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    kernels = work.select(lambda item: _LOSS_WORK.search(item.name.lower()) is not None)
    # The phase ends before backward, and the names do not show all of the loss: the larger one is a lower bound.
    ns = max(work.phase_ns.get("loss", 0), work.module_ns.get(LOSS_PATH, 0), total_ns(kernels))
    share = work.share(ns)
    if share < MIN_SHARE:
        return None
    return StepPart(
        share=share,
        severity=severity_of(share, high=LARGE_SHARE),
        title=f"The loss takes {percent(share)} of the {work.facts.whole}",
        sentences=(
            f"The loss takes {text(ns, 'ns')} of {work.clock_name} {work.per_step}, with the part of its backward pass whose "
            "names show it.",
            "It reads and writes the outputs of the model several times, usually for a softmax over many classes.",
        ),
        advice="Compile the loss, so that it reads the outputs once: {code}. With many classes, compute it in chunks of the "
        "batch, or use fewer classes per example (sampled or adaptive softmax).",
        code="loss_fn = torch.compile(loss_fn)",
        measures=(("time of the loss", ns, "ns"),),
        claims=(*phase_claims("loss"), *module_claims([LOSS_PATH]), *work_claims(work, kernels)),
    )


# Computing the softmax once instead of twice, or in a smaller type.
RULE = step_rule("loss_bound", DOC, _loss, keeps=0.5)
