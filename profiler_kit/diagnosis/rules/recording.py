"""Traces that lack a part of what happened."""

from __future__ import annotations

from typing import Final

from profiler_kit.diagnosis.phrases import Advice, advise, limit_percent
from profiler_kit.diagnosis.recorded import (
    MIN_UNRECORDED_SHARE,
    lost_text,
    record_code,
    unrecorded_text,
)
from profiler_kit.diagnosis.step_rule import Shares, StepPart, step_rule
from profiler_kit.diagnosis.step_work import StepWork, all_steps
from profiler_kit.records.claims import idle_claims
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.traces import IDLE_CAUSES, MAX_UNRECORDED_SHARE, TraceSummary, idle_by_cause
from profiler_kit.units import percent

# From here on, the missing work can change what bounds the step.
LARGE_MISSING_SHARE: Final = 0.1


def _device_not_recorded(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    trace, share, record = step.trace, _missing_share(step.trace), step.trace.device_record
    if share is None or record is None or trace.hardware_counters:
        return None
    is_partial = not trace.is_unrecorded
    launches = trace.unrecorded_share >= MIN_UNRECORDED_SHARE or trace.is_unrecorded
    unknown_share = idle_by_cause(trace.idle).get("unknown", 0) / max(1, trace.span_ns)
    explains_idle = is_partial and unknown_share >= LARGE_MISSING_SHARE
    reason = unrecorded_text(trace) if launches else lost_text(trace)
    return StepPart(
        share=share,
        share_name="",
        least="high" if not is_partial else "info",
        most="medium" if is_partial else "high",
        title=f"The device was {'recorded in part' if is_partial or trace.clock == 'device' else 'not recorded'}: {reason}",
        sentences=(
            "The trace says nothing about the device: neither whether it is busy, nor its waits."
            if not is_partial
            else "The time of missing work looks idle.",
            "The host's times are those of launching the work." if not is_partial else "",
            f"{lost_text(trace)}." if record.lost_events and launches else "",
        ),
        advice=_device_advice(trace),
        measures=(
            ("launches", record.launches, "count"),
            ("launches without a kernel", record.unrecorded_launches, "count"),
            ("device events", trace.device_events, "count"),
            ("device events that could not be read", record.lost_events, "count"),
        ),
        weight=unknown_share if explains_idle else share,
        claims=idle_claims("unknown") if explains_idle else (),
    )


def _missing_share(trace: TraceSummary) -> float | None:
    """Return the share of the device's work that is missing; None for too little."""
    record = trace.device_record
    if record is None:
        return None
    if trace.is_unrecorded:
        return 1.0
    lost_share = record.lost_events / max(1, record.lost_events + trace.device_events)
    unrecorded_share = trace.unrecorded_share if trace.unrecorded_share >= MIN_UNRECORDED_SHARE else 0.0
    return max(lost_share, unrecorded_share) or None


def _device_advice(trace: TraceSummary) -> Advice:
    """Return how to record the device: without the launches the activity was off, with them CUPTI delivered no kernels."""
    record = trace.device_record
    assert record is not None
    if record.lost_events and not record.unrecorded_launches > record.lost_events:
        return advise(
            "Inspect the file as torch.profiler exported it: {code}. A program that rewrote it may have written values that JSON "
            "does not allow.",
            'prof.export_chrome_trace("trace.json.gz")',
        )
    code = record_code(trace)
    if not code:
        return Advice(
            "torch.profiler records no kernels of this device: use the profiler of its backend (torch.mps.profiler)."
        )
    if not record.launches:
        return advise("Record the device too: {code}.", code)
    return advise(
        "Record the device after a warm-up: {code}, with prof.step() at the end of each step. If kernels are still "
        "missing, no other profiler may use the device, and the process needs the permission: CUPTI reports "
        "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES where only administrators may profile "
        "(NVreg_RestrictProfilingToAdminUsers=0 in the driver's options allows it to all).",
        f"{code[:-1]}, schedule=torch.profiler.schedule(wait=1, warmup=2, active=3))",
    )


DEVICE_NOT_RECORDED = step_rule(
    "device_not_recorded",
    _device_not_recorded,
    Shares(0.0, medium=LARGE_MISSING_SHARE, of="the launches or device events that are missing"),
    f"""
Fires for a trace of a program that uses a device, if the trace lacks the work of the device: the calls that launch kernels have
no kernels, or no device work was recorded and the program calls operators of a device's library (`aten::cudnn_convolution`,
`nccl:all_reduce`), allocates memory on a device, or runs its backward pass on autograd's thread of a device. It also fires for
device events of the file that could not be read.

It is `high` if at least {limit_percent(MAX_UNRECORDED_SHARE)} of the launches have no kernels, or if there is no device work.
Nothing can be said about the device then. The times of the host are those of launching, so no other rule reads such a trace.
Fewer than {limit_percent(MIN_UNRECORDED_SHARE)} of the launches may lack their kernel.

A program whose operators look the same on a CPU, recorded without the device, is not recognized.
""",
    topic="runs",
    steps=all_steps,
    states_share=False,
    reads="traces",
)

# Fewer missing events are the numbers of a single block.
MIN_MISSING_EVENTS: Final = 500


def _filtered_trace(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    trace = step.trace
    idle = trace.idle_ns / trace.span_ns if trace.span_ns else 0.0
    if trace.missing_events < MIN_MISSING_EVENTS:
        return None
    return StepPart(
        share=trace.missing_share,
        share_name="missing host events, share",
        title=f"Filtered trace: at least {percent(trace.missing_share)} of its host events were removed",
        sentences=(
            f"The numbers of its operators and ranges have gaps: at least {trace.missing_events:,} events are missing.",
            f"The time of removed events looks idle, so the causes of the idle time, {percent(idle)} of the time, are "
            "uncertain.",
        ),
        advice="Inspect the file that torch.profiler exported, before sampling or filtering: {code}. To get a smaller file, "
        "record fewer steps: torch.profiler.schedule(wait=1, warmup=2, active=2).",
        code='prof.export_chrome_trace("trace.json.gz")',
        measures=(("missing host events", trace.missing_events, "count"),),
        weight=idle,
        claims=idle_claims(*IDLE_CAUSES),
    )


FILTERED_TRACE = step_rule(
    "filtered_trace",
    _filtered_trace,
    Shares(0.9, of="the host events"),  # whole traces lack none, or, where threads end, up to two fifths
    """
Fires for a trace that lacks most of its host events. The profiler numbers operators and ranges as they begin, so gaps in the
numbers show that events were removed from the file, by sampling or by a filter. The time of removed events looks idle, so the
finding precedes all others about idle time.
""",
    topic="reading",
    steps=all_steps,
    states_share=False,
    reads="traces",
)
