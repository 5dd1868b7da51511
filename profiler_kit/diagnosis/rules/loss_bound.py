"""A loss that takes a large part of the device time, not only of the host time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.phrases import join_sentences, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import StepWork, Work, step_works, total_ns, work_claims, worst_step
from profiler_kit.records.counts import LOSS_PATH
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loss:
    """The time of the loss and its share of the step. `kernels`: those whose names show it."""

    ns: int
    share: float
    kernels: tuple[Work, ...]


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding: for the baseline, or for the trace with the largest share of the loss."""
    if (worst := worst_step(step_works(report), _loss, lambda match: match.share)) is None:
        return
    work, match = worst.step, worst.match
    yield RULE.finding(
        severity="high" if match.share >= LARGE_SHARE else "medium",
        title=f"The loss takes {percent(match.share)} of the {work.facts.whole}",
        explanation=join_sentences(
            f"{work.prefix}The loss takes {text(match.ns, 'ns')} of {work.clock_name} {work.per_step}, with the part of "
            "its backward pass whose names show it.",
            "It reads and writes the outputs of the model several times, usually for a softmax over many classes.",
            worst.others_sentence(),
        ),
        advice="Compile the loss, so that it reads the outputs once: {code}. With many classes, compute it in chunks of the "
        "batch, or use fewer classes per example (sampled or adaptive softmax).",
        code="loss_fn = torch.compile(loss_fn)",
        evidence=(
            Evidence(name="share of the step", value=100.0 * match.share, unit="percent", where=work.name),
            Evidence(name="time of the loss", value=match.ns, unit="ns", where=work.name),
        ),
        weight=match.share,
        claims=("busy:phase:loss", f"busy:module:{LOSS_PATH}", *work_claims(work, match.kernels)),
    )


def _loss(work: StepWork) -> _Loss | None:
    kernels = work.select(lambda item: _LOSS_WORK.search(item.name.lower()) is not None)
    # The phase ends before backward, and the names do not show all of the loss: the larger one is a lower bound.
    ns = max(work.phase_ns.get("loss", 0), work.module_ns.get(LOSS_PATH, 0), total_ns(kernels))
    share = work.share(ns)
    return _Loss(ns=ns, share=share, kernels=kernels) if share >= MIN_SHARE else None


# Computing the softmax once instead of twice, or in a smaller type.
KEEPS: Final = 0.5

RULE = Rule("loss_bound", DOC, check, "cause", "both", keeps=KEEPS)
