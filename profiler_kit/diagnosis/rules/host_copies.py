"""Copies between host and device: too many, or from memory that the device can't read by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.rule import Rule, never
from profiler_kit.diagnosis.traced import gravest, on_device, step_count
from profiler_kit.diagnosis.words import plural, sentences, threshold
from profiler_kit.records.report import Evidence, Finding, TraceReport
from profiler_kit.records.traces import TraceSummary
from profiler_kit.units import percent, text

# A batch is a handful of tensors. More copies than this a step are numbers sent one by one.
MANY: Final = 50
# A twentieth of the span is worth pinning memory for.
SHARE: Final = 0.05
_BETWEEN: Final = re.compile(r"\AMemcpy (HtoD|DtoH)|\ACopy(HostToDevice|DeviceToHost)", re.IGNORECASE)
_PAGEABLE: Final = re.compile("pageable", re.IGNORECASE)

DOC = f"""
In a trace, more than {MANY} copies a step go between host and device, or such copies take more than {threshold(SHARE)} of the
span (`medium`, else `low`). Each costs the host some 10 us; one from pageable memory goes through a buffer, and the host
waits for it.
"""


@dataclass(frozen=True, slots=True)
class _Copies:
    calls: int
    spent_ns: int
    pageable_ns: int
    per_step: float
    share: float


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Fires once, for the trace whose copies take the largest share."""
    if (seen := gravest(report, _look, lambda copies: copies.share + copies.per_step / 1e6)) is None:
        return
    found = seen.found
    many = found.per_step > MANY
    yield RULE.finding(
        severity="medium" if found.share > SHARE else "low",
        title=f"{plural(found.calls, 'copy', 'copies')} between host and device take {percent(found.share)} of the time",
        explanation=sentences(
            f"{seen.place}That is {text(found.per_step, 'count')} a step, {text(found.spent_ns, 'ns')} in all.",
            f"{text(found.pageable_ns, 'ns')} of it is from or to pageable memory, for which the host waits."
            if found.pageable_ns
            else "",
            seen.others(),
        ),
        advice=_advice(many, bool(found.pageable_ns)),
        evidence=(
            Evidence(name="copies between host and device", value=found.calls, unit="count", where=seen.where),
            Evidence(name="of the span", value=100.0 * found.share, unit="percent", where=seen.where),
            Evidence(name="their time", value=found.spent_ns, unit="ns", where=seen.where),
            Evidence(name="of it pageable", value=found.pageable_ns, unit="ns", where=seen.where),
        ),
        weight=found.share,
    )


def _look(trace: TraceSummary) -> _Copies | None:
    copies = [kernel for kernel in trace.kernels if _BETWEEN.search(kernel.name)]
    if not copies or not on_device(trace):
        return None
    calls, spent = sum(copy.calls for copy in copies), sum(copy.kernel_ns for copy in copies)
    pageable = sum(copy.kernel_ns for copy in copies if _PAGEABLE.search(copy.name))
    found = _Copies(calls, spent, pageable, per_step=calls / step_count(trace), share=spent / trace.span_ns)
    # without marked steps nobody knows how many steps the copies are of
    many = found.per_step > MANY and bool(trace.steps)
    return found if many or found.share > SHARE else None


def _advice(many: bool, pageable: bool) -> str:
    if not many and not pageable:
        return "Send less: smaller types (uint8 images, converted on the device), or batches made on the device."
    return sentences(
        "Send numbers together, as one tensor, or make them on the device (device=... where a tensor is created)."
        if many
        else "",
        "Pin what is sent: DataLoader(pin_memory=True) and .to(device, non_blocking=True)." if pageable else "",
    )


RULE = Rule("host_copies", DOC, never, "cause", check_trace)
