"""The figures of a `ConfigRun` from its trace: the summary of the traced steps.

Only marked steps count. The trace also holds work outside of them (the profiler's own warm-up), which is left out. The span of
a step that the tool runs goes from the start of its mark on the host to the end of the last work launched in it. What follows is
the tool's own work: it waits for the device, and hands the step to the profiler. A step of a recorded loop lasts at least to the
end of its mark: what follows its last work is the loop's own, such as logging.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Final

import numpy as np

from profiler_kit.attribution.device_time import DeviceTime, device_timeline, gaps_within
from profiler_kit.attribution.host_only import host_timeline
from profiler_kit.attribution.host_time import Waits, host_waits, launch_queue
from profiler_kit.attribution.result import PHASE_NUMBERS, Attribution, Evidence
from profiler_kit.attribution.summary import summarize_device, summarize_host
from profiler_kit.errors import TraceError
from profiler_kit.records import marks
from profiler_kit.records.runs import Clock, ConfigRun
from profiler_kit.records.traces import TraceSummary
from profiler_kit.traces.intervals import Intervals, join, union
from profiler_kit.traces.table import NONE, Ids, Ints, Mask
from profiler_kit.units import text


def work_of_steps(attribution: Attribution) -> Attribution:
    """Return `attribution` with the device work launched in marked steps, and later work without a known launch.

    Marks tell exactly what belongs to a phase, so work without a launch has none, however much it resembles other work.
    """
    device = attribution.device
    without_launch = (
        (device.launch == NONE) & (device.step == NONE) & (device.start_ns >= attribution.steps[0].start_ns)
    )
    device = device.selected((device.step != NONE) | without_launch)
    linked = device.step != NONE
    return replace(
        attribution,
        device=replace(
            device,
            phase=np.where(linked | device.collective, device.phase, NONE).astype(np.int8),
            within=np.where(linked, device.within, NONE).astype(np.int8),
            module=np.where(linked | device.collective, device.module, NONE).astype(np.int32),
            evidence=np.where(linked | device.collective, device.evidence, Evidence.NONE).astype(np.int8),
        ),
    )


def summarize_device_steps(attribution: Attribution, *, whole_marks: bool) -> TraceSummary:
    """Return the summary of the marked steps. `attribution` has their device work alone, see `work_of_steps`.

    `whole_marks`: the marks hold nothing of the tool.
    """
    device, timeline, waits = attribution.device, device_timeline(attribution.device), host_waits(attribution)
    windows = _windows(attribution, device.step, device.start_ns, device.end_ns, whole_marks)
    unlinked = device.step == NONE
    windows = join(windows, union(device.start_ns[unlinked], device.end_ns[unlinked]))
    gaps = gaps_within(attribution, windows, np.arange(len(device.rows), dtype=np.int32), waits)
    is_program_wait = ~is_tool_wait(attribution, waits.position)
    time = DeviceTime(
        replace(timeline, windows=windows),
        Waits(**{field.name: getattr(waits, field.name)[is_program_wait] for field in fields(Waits)}),
        launch_queue(attribution),
        gaps,
    )
    return summarize_device(attribution, time, attribution.host.step != NONE)


def summarize_host_steps(attribution: Attribution, *, whole_marks: bool) -> TraceSummary:
    """Return the summary of the operators in the marked steps, on the threads with phase marks or autograd nodes.

    `whole_marks`: the marks hold nothing of the tool.
    """
    host = attribution.host
    on_step_thread = np.isin(host.thread, host.thread[(host.phase != NONE) & (host.phase != PHASE_NUMBERS["other"])])
    counted = np.asarray((host.step != NONE) & on_step_thread, np.bool_)
    timeline = host_timeline(attribution, counted)
    step = host.step[timeline.work.position[timeline.entry]]
    windows = _windows(attribution, step, timeline.start, timeline.end, whole_marks)
    return summarize_host(attribution, timeline, windows, counted)


def is_tool_wait(attribution: Attribution, position: Ids) -> Mask:
    """Return which of the host's waits at `position` are the tool's own.

    The wait at a step's end has only the step's mark around it. Others are outside of steps.
    """
    table, host = attribution.table, attribution.host
    parent = host.parent[position]
    names = [table.names[i].startswith(marks.STEP) for i in table.name[host.rows[parent]].tolist()]
    is_program_wait: Mask = (host.step[position] != NONE) & (parent != NONE) & ~np.array(names, np.bool_)
    return ~is_program_wait


# ---- the span of the steps


def _windows(attribution: Attribution, step: Ids, start: Ints, end: Ints, whole_marks: bool) -> Intervals:
    """Return the time from each step's mark to the end of its last work, and of its mark with `whole_marks`.

    `step`: the step of each work item, or NONE.
    """
    in_step = step != NONE
    starts = np.array([mark.start_ns for mark in attribution.steps], np.int64)
    none = np.iinfo(np.int64).min
    ends = np.array([mark.end_ns if whole_marks else none for mark in attribution.steps], np.int64)
    np.minimum.at(starts, step[in_step], start[in_step])  # the clocks of host and device differ by a few us
    np.maximum.at(ends, step[in_step], end[in_step])
    return union(starts, ends)


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
    without_phase = [(module.events, module.kernel_ns) for module in traced.modules if not module.launched_in]
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
