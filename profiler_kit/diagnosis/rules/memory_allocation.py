"""A device that is idle while the host allocates or frees its memory."""

from __future__ import annotations

import re
from typing import Final

from profiler_kit.diagnosis.idle_time import MIN_HOST_SHARE, is_operator
from profiler_kit.diagnosis.phrases import limit_percent, plural
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork, idle_steps
from profiler_kit.records.claims import idle_claims
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.traces import SyncWait
from profiler_kit.units import percent, text

HIGH_SHARE: Final = 0.25
ALLOCATION: Final = re.compile(r"(cuda|hip)(Malloc|Free|Host)")
RETRIES: Final = 'torch.cuda.memory_stats()["num_alloc_retries"]'
SETTING: Final = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"

DOC = f"""
Fires if the device is idle for at least {limit_percent(MIN_HOST_SHARE)} of the step while the host calls `cudaMalloc`, `cudaFree`
or a function that allocates pinned memory, or because `cudaFree` waited for the device.

- `high`: at least {limit_percent(HIGH_SHARE)} of the step.
- `medium`: below that.

PyTorch keeps freed memory in a cache, so a steady step allocates nothing from the driver. The calls tell why a step does:

- `cudaFree` inside an operator: memory is full, and the allocator frees its cache and tries again (a retry, counted by
  `torch.cuda.memory_stats()["num_alloc_retries"]`). Convolutions do not count: cuDNN's benchmark frees its workspaces.
- `cudaFree` elsewhere: the loop calls `torch.cuda.empty_cache()`, or a retry.
- `cudaMalloc` without `cudaFree`: sizes change, or the first steps were recorded.
- Pinned memory alone: the loop pins new buffers.

Calls of ten milliseconds and more are those that start the device (rule `cold_start`). The rule reads reports and traces.
"""


def _allocation(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    frees = _frees(step)
    after_free_ns = sum(wait.idle_ns for wait in frees)
    ns = step.idle_ns("memory allocation") + min(after_free_ns, step.idle_ns("synchronization"))
    share = step.share(ns)
    if not step.on_device or share < MIN_HOST_SHARE:
        return None
    calls = [activity for activity in step.trace.activities if ALLOCATION.match(activity.name)]
    names = sorted({*(activity.name for activity in calls), *(wait.call for wait in frees)})
    count = sum(activity.calls for activity in calls) or sum(wait.calls for wait in frees)
    reason, advice = _reason_and_advice(step, names)
    return StepPart(
        share=share,
        share_name="idle time in allocation, share",
        severity=severity_of(share, high=HIGH_SHARE),
        title=f"Memory allocation: the device is idle for {percent(share)} of the time while the host allocates or frees memory",
        sentences=(
            f"It is idle for {text(ns, 'ns')} {step.per_step}.",
            f"The calls: {', '.join(names)} ({plural(count, 'call')})." if names else "",
            "A steady step reuses memory and calls none of these.",
            reason,
        ),
        advice=advice,
        measures=(("idle time in allocation", ns, "ns"),),
        claims=idle_claims("memory allocation", "synchronization"),
    )


def _reason_and_advice(step: StepWork, names: list[str]) -> tuple[str, str]:
    """Return the reason for calls of these names, and advice."""
    checkpointing = " or activation checkpointing" if step.facts.trains else ""
    retries = [wait.name for wait in _frees(step) if is_operator(wait.name) and "conv" not in wait.name.lower()]
    if retries:
        return (
            f"Memory is nearly full: inside {retries[0]} the allocator frees its cache and tries again.",
            f"Use a smaller batch{checkpointing}. Against fragmentation, set {SETTING}. {RETRIES} counts "
            "these retries.",
        )
    if any(name.endswith("Free") for name in names):
        return (
            "Memory goes back to the driver in the step: the loop calls torch.cuda.empty_cache(), or memory is full and the "
            "allocator frees its cache and tries again.",
            f"Remove torch.cuda.empty_cache() from the loop. If {RETRIES} grows, memory is full: use a smaller batch"
            f"{checkpointing}, and set {SETTING} against fragmentation.",
        )
    if names and all("Host" in name for name in names):
        return (
            "The memory is pinned host memory.",
            "Pin buffers once, before the loop, and copy each batch into them"
            + (
                "; or use DataLoader(pin_memory=True), which pins in a thread of its own."
                if step.facts.has_loader
                else "."
            ),
        )
    return (
        "No memory is freed, so sizes change or the first steps were recorded." if names else "",
        f"Record after a few warm-up steps. If the calls remain, pad inputs to a few sizes and set {SETTING}.",
    )


def _frees(step: StepWork) -> list[SyncWait]:
    return [wait for wait in step.trace.syncs if wait.call.endswith("Free")]


RULE = step_rule("memory_allocation", DOC, _allocation, steps=idle_steps)
