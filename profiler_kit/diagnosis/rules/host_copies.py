"""Too many copies between host and device, or copies that take too long."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.facts import Facts, facts_of
from profiler_kit.diagnosis.phrases import Advice, advise, limit_percent, plural
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork, idle_steps
from profiler_kit.diagnosis.work_groups import is_host_copy
from profiler_kit.records.claims import idle_claims, kernel_claims
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.traces import TraceKernel, TraceSummary
from profiler_kit.units import percent, text

# A batch is a handful of tensors. More copies than this per step are single numbers.
MAX_COPIES_PER_STEP: Final = 50
# A twentieth of the span is worth pinning memory for.
MAX_SHARE: Final = 0.05
# A quarter of the time is a large gain for the change of one line.
LARGE_SHARE: Final = 0.25
_PAGEABLE: Final = re.compile("pageable", re.IGNORECASE)

DOC = f"""
Fires on a trace with more than {MAX_COPIES_PER_STEP} copies between host and device per step, or in which such copies, and the
host's waits for copies to the idle device, take more than {limit_percent(MAX_SHARE)} of the span.

- `high`: the copies take at least {limit_percent(LARGE_SHARE)} of the span.
- `medium`: more than {limit_percent(MAX_SHARE)}.
- `low`: there are only many of them.

Copies that overlap with computation cost no time. A trace summary does not say which do, so all overlap of computation counts as
that of copies, and the share is a lower bound.

Each copy costs the host about 10 us. A copy from or to pageable memory goes through a buffer, and the host waits for it.
Without marked steps, the number of copies per step is unknown and only their time counts.
"""


@dataclass(frozen=True, slots=True)
class _Copies:
    """The copies between host and device in one trace.

    `names`: of the copies. `idle_ns`: idle time in which the host waits for a copy to the device. `share`: the part of the span
    that both take.
    """

    names: tuple[str, ...]
    calls: int
    copy_ns: int
    idle_ns: int
    pageable_ns: int
    per_step: float
    share: float


def _host_copies(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    copies, facts = _host_device_copies(step.trace), facts_of(step.trace)
    if copies is None:
        return None
    return StepPart(
        share=copies.share,
        share_name="share of the span",
        severity=severity_of(copies.share, high=LARGE_SHARE, medium=MAX_SHARE),
        title=f"{plural(copies.calls, 'copy', 'copies')} between host and device take {percent(copies.share)} of the time",
        sentences=(
            f"{_count(copies, facts)}: {text(copies.copy_ns, 'ns')} that no computation hides.",
            f"Copies from or to pageable memory take {text(copies.pageable_ns, 'ns')} of it, and the host waits for them."
            if copies.pageable_ns
            else "",
            f"The device is idle for {text(copies.idle_ns, 'ns')} more while the host waits for copies to it."
            if copies.idle_ns
            else "",
        ),
        advice=_advice(copies, facts),
        measures=(
            ("copies between host and device", copies.calls, "count"),
            ("time of the copies", copies.copy_ns, "ns"),
            ("time of pageable copies", copies.pageable_ns, "ns"),
        ),
        claims=(*kernel_claims(copies.names), *idle_claims("synchronization")),
    )


def _host_device_copies(trace: TraceSummary) -> _Copies | None:
    kernels = [kernel for kernel in trace.kernels if is_host_copy(kernel.name)]
    if not kernels or trace.clock != "device":
        return None
    calls, copy_ns = sum(kernel.calls for kernel in kernels), _exposed_ns(trace, kernels)
    pageable_ns = min(copy_ns, sum(kernel.kernel_ns for kernel in kernels if _PAGEABLE.search(kernel.name)))
    waiting_ns = sum(i.ns for i in trace.idle if i.cause == "synchronization" and i.phase == "transfer")
    copies = _Copies(
        names=tuple(kernel.name for kernel in kernels),
        calls=calls,
        copy_ns=copy_ns,
        idle_ns=waiting_ns,
        pageable_ns=pageable_ns,
        per_step=calls / max(1, len(trace.working_steps)),
        share=min(1.0, (copy_ns + waiting_ns) / trace.span_ns),
    )
    # without marked steps the number of steps, and so of copies per step, is unknown
    are_many = copies.per_step > MAX_COPIES_PER_STEP and bool(trace.steps)
    return copies if are_many or copies.share > MAX_SHARE else None


def _exposed_ns(trace: TraceSummary, copies: Sequence[TraceKernel]) -> int:
    """Return the time of `copies` without the overlap of computation and copies; at least."""
    collectives = trace.communication
    sum_ns = trace.sum_ns - (collectives.sum_ns if collectives is not None else 0)
    union_ns = trace.busy_ns - (collectives.exposed_ns if collectives is not None else 0)
    overlap_ns = max(0, sum_ns - union_ns)
    exposed_ns = max(0, sum(kernel.sum_ns for kernel in copies) - overlap_ns)
    return min(exposed_ns, sum(kernel.kernel_ns for kernel in copies))


def _count(copies: _Copies, facts: Facts) -> str:
    number = text(copies.per_step, "count")
    return f"{number} {'copy' if number == '1' else 'copies'} per step" if facts.has_steps else "Copies"


def _advice(copies: _Copies, facts: Facts) -> Advice:
    pin = "DataLoader(..., pin_memory=True)" if facts.has_loader else "batch.pin_memory()"
    are_many = copies.per_step > MAX_COPIES_PER_STEP
    if not are_many and not copies.pageable_ns and not copies.idle_ns:
        return Advice(
            "Copy less: use smaller types (uint8 images, converted on the device), or create batches on the device."
        )
    parts = []
    if are_many:
        together = "Copy many numbers together, as one tensor, or create them on the device: {code}."
        parts.append(advise(together, "torch.zeros(n, device=device)"))
    if copies.pageable_ns:
        pinned = "Pin the memory of batches and copy without waiting: {code} and batch.to(device, non_blocking=True)."
        parts.append(advise(pinned, pin))
    elif copies.idle_ns:
        parts.append(advise("Copy without waiting: {code}.", "batch.to(device, non_blocking=True)"))
    return parts[0].then(*(advice.text for advice in parts[1:]))


RULE = step_rule("host_copies", DOC, _host_copies, steps=idle_steps)
