"""A trace of a program that uses a device, without the work of the device or with a part of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.phrases import Advice, advise, join_sentences, limit_percent
from profiler_kit.diagnosis.recorded import MIN_UNRECORDED_SHARE, lost_text, record_code, unrecorded_text
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.diagnosis.step_work import all_steps, worst_step
from profiler_kit.records.claims import idle_claims
from profiler_kit.records.report import Finding, TraceReport
from profiler_kit.records.traces import MAX_UNRECORDED_SHARE, TraceSummary, idle_by_cause

# From here on, the missing work can change what bounds the step.
LARGE_MISSING_SHARE: Final = 0.1

DOC = f"""
Fires for a trace of a program that uses a device, if the trace lacks the work of the device: the calls that launch kernels have
no kernels, or no device work was recorded and the program calls operators of a device's library (`aten::cudnn_convolution`,
`nccl:all_reduce`), allocates memory on a device, or runs its backward pass on autograd's thread of a device. It also fires for
device events of the file that could not be read.

- `high`: at least {limit_percent(MAX_UNRECORDED_SHARE)} of the launches have no kernels, or there is no device work. Nothing can
  be said about the device. The times of the host are those of launching, so no other rule reads such a trace.
- `medium`: at least {limit_percent(LARGE_MISSING_SHARE)} of the launches have no kernels, or of the device events could not be
  read.
- `low`: at least {limit_percent(MIN_UNRECORDED_SHARE)} of the launches have no kernels, or fewer device events could not be read.

A program whose operators look the same on a CPU, recorded without the device, is not recognized.
"""


def check(report: TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace that lacks most."""
    if any(trace.hardware_counters for trace in report.traces):
        return
    if (worst := worst_step(all_steps(report), lambda step: _missing_share(step.trace), lambda share: share)) is None:
        return
    trace, share = worst.step.trace, worst.match
    record = trace.device_record
    assert record is not None
    is_partial = not trace.is_unrecorded
    launches = trace.unrecorded_share >= MIN_UNRECORDED_SHARE or trace.is_unrecorded
    unknown_share = idle_by_cause(trace.idle).get("unknown", 0) / max(1, trace.span_ns)
    explains_idle = is_partial and unknown_share >= LARGE_MISSING_SHARE
    reason = unrecorded_text(trace) if launches else lost_text(trace)
    yield new_finding(
        severity="high" if not is_partial else "medium" if share >= LARGE_MISSING_SHARE else "low",
        title=f"The device was {'recorded in part' if is_partial or trace.clock == 'device' else 'not recorded'}: {reason}",
        explanation=join_sentences(
            f"{worst.step.prefix}The trace says nothing about the device: neither whether it is busy, nor its waits."
            if not is_partial
            else f"{worst.step.prefix}The time of missing work looks idle.",
            "The host's times are those of launching the work." if not is_partial else "",
            f"{lost_text(trace)}." if record.lost_events and launches else "",
            worst.others_sentence(),
        ),
        advice=_advice(trace),
        evidence=evidence_of(
            worst.step.name,
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


def _advice(trace: TraceSummary) -> Advice:
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


RULE = Rule("device_not_recorded", DOC, check, "runs", "traces", states_share=False)
