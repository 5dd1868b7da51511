"""A trace that `measure` recorded -> who spent the device's time: per step, by phase and module path."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from profiler_kit.attribute.assign import Assignment
from profiler_kit.attribute.correlate import correlate
from profiler_kit.attribute.events import Trace, read_trace
from profiler_kit.attribute.lanes import lane_spans
from profiler_kit.attribute.totals import Charge, Outside, Work, charge, kernel_work, operator_work, per_step
from profiler_kit.errors import TraceError
from profiler_kit.records import marks
from profiler_kit.records.runs import Attribution
from profiler_kit.units import text

Clock = Literal["kernel", "operator"]

__all__ = ["Clock", "attribute"]

NEGLIGIBLE_SHARE: Final = 0.005  # of the time: what no shown digit would tell


def attribute(trace: Path, *, clock: Clock | None = None) -> Attribution:
    """Who spent the time of the traced steps in the file `trace`, per step.

    `clock`: ``kernel`` adds up device work by launch, ``operator`` the self time of operators on the host; by default the
    first where the trace has device events, else the second.

    Counts: each busy instant of a device once, also where kernels of several streams overlap. Work launched outside the
    marked steps is left out, kernels without a known launch are unattributed; the notes say how much of either.

    Raises: TraceError for a file that is no complete trace, has none of our marks, or no device events for that clock.
    """
    read = read_trace(trace)
    links = correlate(read)
    if not links.steps:
        raise TraceError(
            f"none of the steps in it is marked ({marks.STEP}...)",
            where=read.file,
            hint="give a trace that analyze wrote, traces/<config>.json.gz in its report folder",
        )
    chosen: Clock = clock or ("kernel" if read.device else "operator")
    if chosen == "kernel" and not read.device:
        raise TraceError(
            "it holds no device work",
            where=read.file,
            hint="use the operator clock, or record on a device with CUDA activity",
        )
    assignment = Assignment(links)
    outside = Outside(0, 0)
    if chosen == "kernel":
        works, outside = kernel_work(read, links, assignment)
    else:
        works = operator_work(links, assignment)
    charges = charge(works)
    steps = len({frame.step for frame in links.steps})
    figures = per_step(works, charges, steps)
    return Attribution(
        clock=chosen,
        steps=steps,
        device_ns=figures.device_ns,
        layers=figures.layers,
        kernels=figures.kernels,
        unattributed_ns=figures.unattributed_ns,
        spans=lane_spans(charges, links, "device" if chosen == "kernel" else "operators"),
        notes=tuple(_notes(read, works, charges, outside)),
    )


def _notes(trace: Trace, works: list[Work], charges: list[Charge], outside: Outside) -> list[str]:
    """What a reader should know about how far the figures reach."""
    notes = []
    total = sum(c.end_ns - c.start_ns for c in charges)
    unlinked = [work for work in works if work.step is None]
    unowned = [work for work in works if work.step is not None and work.owner is None]
    for group, what in ((unlinked, "have no launch in the trace"), (unowned, "ran in a step but in no phase of it")):
        if group:
            kinds = {id(work) for work in group}
            ns = sum(c.end_ns - c.start_ns for c in charges if id(c.work) in kinds)
            share = f"{100 * ns / total:.2g} % of the time" if total else "no time"
            notes.append(f"{len(group)} of {len(works)} events {what} ({share}): unattributed")
    summed = sum(end - start for work in works for start, end in work.stretches)
    if summed - total > NEGLIGIBLE_SHARE * total:
        notes.append(f"{text(summed - total, 'ns')} of work ran beside other work and are counted once")
    if outside.events:
        notes.append(
            f"{outside.events} device events ({text(outside.sum_ns, 'ns')}) were launched outside the traced steps: left out"
        )
    if trace.malformed:
        notes.append(f"{trace.malformed} malformed events were left out")
    return notes
