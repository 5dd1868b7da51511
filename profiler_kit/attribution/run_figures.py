"""The figures of a `ConfigRun` from its trace: the summary of the traced steps.

Only marked steps count. The trace also holds work outside of them (the profiler's own warm-up), which is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.run_waits import summarize_device_steps, summarize_host_steps, work_of_steps
from profiler_kit.errors import TraceError
from profiler_kit.records import marks
from profiler_kit.records.mean_step import Clock, run_phase
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import TraceSummary
from profiler_kit.units import text

NEGLIGIBLE_SHARE: Final = 0.005  # of the time: less than any displayed digit


def attribute_run(
    run: ConfigRun, attribution: Attribution, *, clock: Clock | None = None, whole_marks: bool = False
) -> ConfigRun:
    """Return `run` with the summary of its traced steps.

    `clock`: ``kernel`` sums device work, ``operator`` sums self times of operators on the host. The default is
    ``kernel`` if the trace has device events, else ``operator``. `whole_marks`: the marks of steps hold nothing of the tool.

    Counts: each busy instant of a device once, also where kernels of several streams overlap; for a collective only
    where no other work runs. The module of a collective is COMMUNICATION_PATH. Work launched outside the marked steps is
    left out. Kernels without a launch are unattributed. The notes state how much of each there is.

    Raises: TraceError for a trace without marks of profiler_kit, or without device events for the kernel clock.
    """
    require_steps(attribution)
    has_device = len(attribution.device.rows) > 0
    if clock == "kernel" and not has_device:
        raise TraceError(
            "the trace holds no device work",
            where=attribution.table.file,
            hint="use the operator clock, or record on a device with CUDA activity",
        )
    of_steps = work_of_steps(attribution) if has_device and clock != "operator" else None
    traced = (
        summarize_device_steps(of_steps, whole_marks=whole_marks)
        if of_steps is not None
        else summarize_host_steps(attribution, whole_marks=whole_marks)
    )
    notes = [*_unattributed_notes(traced)]
    if of_steps is not None:
        notes += _outside_notes(attribution, of_steps)
    if attribution.table.malformed:
        notes.append(f"{attribution.table.malformed} malformed events were skipped.")
    return replace(run, traced_steps=len(attribution.steps), traced=traced, notes=(*run.notes, *notes))


def _unattributed_notes(traced: TraceSummary) -> Iterator[str]:
    """Yield one sentence for each part of the work of the steps that no phase has, and one for concurrent work."""
    unlinked = traced.device_events - traced.linked
    without_phase = [(module.events, module.kernel_ns) for module in traced.modules if run_phase(module) is None]
    without_phase += [(kernel.calls, kernel.kernel_ns) for kernel in traced.unattributed]
    count = sum(module.events for module in traced.modules) + sum(kernel.calls for kernel in traced.unattributed)
    in_steps_ns = sum(ns for _, ns in without_phase) - traced.unlinked_ns
    for events, ns, predicate in (
        (unlinked, traced.unlinked_ns, "have no launch in the trace"),
        (sum(n for n, _ in without_phase) - unlinked, in_steps_ns, "ran in a step but in none of its phases"),
    ):
        if events:
            share = f"{100 * ns / traced.busy_ns:.2g} % of the time" if traced.busy_ns else "no time"
            yield f"{events} of {count} events {predicate} ({share}). They are unattributed."
    if traced.overlap_ns > NEGLIGIBLE_SHARE * traced.busy_ns:
        yield (
            f"{text(traced.overlap_ns, 'ns')} of work ran at the same time as other work. Each instant is counted once."
        )


def _outside_notes(attribution: Attribution, of_steps: Attribution) -> Iterator[str]:
    device = attribution.device
    outside = ~np.isin(device.rows, of_steps.device.rows)
    if outside.any():
        ns = int((device.end_ns - device.start_ns)[outside].sum())
        yield f"{int(outside.sum())} device events ({text(ns, 'ns')}) were launched outside the traced steps and are not counted."


def require_steps(attribution: Attribution) -> None:
    """Raise TraceError if the trace has no step marks of profiler_kit."""
    names = attribution.table.names
    if not any(
        names[i].startswith(marks.STEP) for i in np.unique(attribution.table.name[attribution.host.rows]).tolist()
    ):
        raise TraceError(
            f"the trace has no step marks of profiler_kit ({marks.STEP}...)",
            where=attribution.table.file,
            hint="give a trace that analyze wrote, traces/<config>.json.gz in its report folder",
        )
