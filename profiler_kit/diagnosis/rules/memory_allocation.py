"""A device that is idle while the host allocates or frees its memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.idle_time import MIN_HOST_SHARE, IdleStep, worst_idle
from profiler_kit.diagnosis.phrases import join_sentences, limit_percent, plural
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.units import percent, text

HIGH_SHARE: Final = 0.25

DOC = f"""
Fires if the device is idle for at least {limit_percent(MIN_HOST_SHARE)} of the step while the host calls `cudaMalloc`, `cudaFree`
or a function that allocates pinned memory, or because `cudaFree` waited for the device.

- `high`: at least {limit_percent(HIGH_SHARE)} of the step.
- `medium`: below that.

PyTorch keeps freed memory in a cache, so a steady step allocates nothing from the driver. It does where the memory of the
device is nearly full (the allocator frees its cache and tries again), where shapes change, or where the loop calls
`torch.cuda.empty_cache()`. Calls of ten milliseconds and more are those that start the device (rule `cold_start`). The rule reads
reports and traces.
"""


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the baseline or the trace with the largest share."""
    if (worst := worst_idle(report, _share, lambda share: share)) is None:
        return
    step, share = worst.step, worst.match
    calls = [activity for activity in step.activities if "Malloc" in activity.name or "Free" in activity.name]
    names = sorted({activity.name for activity in calls})
    yield RULE.finding(
        severity="high" if share >= HIGH_SHARE else "medium",
        title=f"Memory allocation: the device is idle for {percent(share)} of the time while the host allocates or frees memory",
        explanation=join_sentences(
            f"{step.prefix}It is idle for {text(_ns(step), 'ns')} {step.per_step}.",
            f"The calls: {', '.join(names)} ({plural(sum(a.calls for a in calls), 'call')})." if names else "",
            "A steady step reuses memory and calls none of these.",
            worst.others_sentence(),
        ),
        advice="Remove torch.cuda.empty_cache() from the loop. Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. If "
        "memory is "
        "nearly full, use a smaller batch or activation checkpointing; if shapes change, pad them to a few sizes.",
        evidence=(
            Evidence(name="idle time in allocation, share", value=100.0 * share, unit="percent", where=step.where),
            Evidence(name="idle time in allocation", value=_ns(step), unit="ns", where=step.where),
        ),
        weight=share,
        claims=("idle:memory allocation", "idle:synchronization"),
    )


def _ns(step: IdleStep) -> int:
    after_free_ns = sum(wait.idle_ns for wait in step.waits if wait.call.endswith("Free"))
    return step.idle_ns("memory allocation") + min(after_free_ns, step.idle_ns("synchronization"))


def _share(step: IdleStep) -> float | None:
    share = step.share(_ns(step))
    return share if step.on_device and share >= MIN_HOST_SHARE else None


RULE = Rule("memory_allocation", DOC, check, "cause", check)
