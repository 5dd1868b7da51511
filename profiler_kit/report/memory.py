"""The predicted memory of a step: sentences, what-ifs, saved tensors, timeline, uncertain workspaces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from profiler_kit.records.counts import DeviceMemory, Phase, WhatIf
from profiler_kit.records.document import Paragraph, Section
from profiler_kit.records.report import Report
from profiler_kit.report.charts.reports import memory_charts, saved_chart
from profiler_kit.report.columns.column import page_table
from profiler_kit.report.columns.memory import (
    COMMUNICATION_COLUMNS,
    PARALLEL_COLUMNS,
    SAVED_COLUMNS,
    SCRATCH_COLUMNS,
    TIMELINE_COLUMNS,
    WHAT_IF_COLUMNS,
    communication_rows,
)
from profiler_kit.report.tables import default_device_table
from profiler_kit.units import text

MIN_INTERVAL_SHARE: Final = 0.01  # of the peak: a narrower interval gets no sentence
_NUMBERED: Final = re.compile(r"(?P<before>.*?)(?P<number>\d+)(?P<after>[^\d]*)")


def sentences(report: Report) -> Iterator[Paragraph]:
    """The predicted peak on the selected device, its place and uncertainty, and notes."""
    memory = report.static.memory if report.static is not None else None
    if memory is None:
        return
    if memory.device is not None and memory.device.is_default:
        yield Paragraph(
            text="Tensors alone, without the workspace and the allocator of a device: --gpu NAME adds them."
        )
    elif memory.device is not None:
        yield from device_sentences(memory.device)
    for note in memory.notes:
        yield Paragraph(text=note, role="note")


def device_sentences(device: DeviceMemory) -> Iterator[Paragraph]:
    """The predicted peak on `device`, its place and uncertainty."""
    yield Paragraph(text=_device_peak(device))
    uncertainty = _uncertainty(device)
    if uncertainty is not None:
        yield Paragraph(text=uncertainty)


def _device_peak(device: DeviceMemory) -> str:
    name = f"{device.profile} ({device.card})" if device.card else device.profile
    context = f" The CUDA context adds {text(device.context_bytes, 'bytes')}." if device.context_bytes else ""
    where = _place(device.peak_phase, device.peak_path, device.peak_op)
    return (
        f"Predicted for {name}: {text(device.allocated_bytes, 'bytes')} allocated at the peak, {where}; "
        f"{text(device.reserved_bytes, 'bytes')} reserved by the allocator.{context}"
    )


def _place(phase: Phase, path: str, op: str) -> str:
    if not op:
        return "before the step"
    layer = f" of {path}" if path else ""
    return f"in {op} ({phase}{layer})"


def _uncertainty(device: DeviceMemory) -> str | None:
    width = device.allocated_high_bytes - device.allocated_low_bytes
    if width < MIN_INTERVAL_SHARE * device.allocated_bytes or not device.uncertain:
        return None
    largest = device.uncertain[0]
    return (
        f"Possible range: {text(device.allocated_low_bytes, 'bytes')} to {text(device.allocated_high_bytes, 'bytes')}, because "
        f"the workspace {_place(largest.phase, largest.path, largest.op)} is only known to be "
        f"{text(largest.low_bytes, 'bytes')} to {text(largest.high_bytes, 'bytes')}."
    )


def what_ifs(report: Report) -> Iterator[Section]:
    """The predicted memory with one change each; empty without what-ifs."""
    memory = report.static.memory if report.static is not None else None
    if memory is not None and memory.what_ifs:
        table = page_table("what_ifs", "each change simulated alone", WHAT_IF_COLUMNS, memory.what_ifs, report)
        notes = (*_checkpointed_modules(memory.what_ifs), *memory.what_if_notes)
        yield Section(title="What if", blocks=(table, *(Paragraph(text=note) for note in notes)))


def parallel(report: Report) -> Iterator[Section]:
    """The predicted peak and communication of one rank of several; empty where nobody asked."""
    memory = report.static.memory if report.static is not None else None
    if memory is None or not memory.parallel:
        return
    peaks = page_table("parallel", "one rank", PARALLEL_COLUMNS, memory.parallel, report)
    rows = communication_rows(memory.parallel)
    collectives = page_table("communication", "collectives of a step", COMMUNICATION_COLUMNS, rows, report)
    units = next((estimate.units for estimate in memory.parallel if estimate.plan.strategy == "fsdp2"), None)
    notes = []
    if units is not None:
        notes.append(f"fully_shard of {in_ranges(units)} and the root." if units else "fully_shard of the root alone.")
    yield Section(title="Several ranks", blocks=(peaks, collectives, *(Paragraph(text=note) for note in notes)))


def _checkpointed_modules(what_ifs: Sequence[WhatIf]) -> Iterator[str]:
    """The checkpointed modules of every row that does not name them."""
    for what_if in what_ifs:
        if what_if.checkpoint and not all(path in what_if.change for path in what_if.checkpoint):
            flops = text(what_if.recompute_flops, "flops")
            recompute = f" ({flops}FLOPs recomputed)" if what_if.recompute_flops is not None else ""
            yield f"{what_if.change}{recompute}: {in_ranges(what_if.checkpoint)}."


def in_ranges(paths: Sequence[str]) -> str:
    """`paths` as text, with consecutive numbers as ranges: ``layers.0 to layers.11, head``."""
    runs: list[list[str]] = []
    for path in paths:
        if runs and _follows(runs[-1][-1], path):
            runs[-1].append(path)
        else:
            runs.append([path])
    return ", ".join(name for run in runs for name in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else run))


def _follows(path: str, successor: str) -> bool:
    """Whether `successor` is `path` with its last number increased by one."""
    a, b = _NUMBERED.fullmatch(path), _NUMBERED.fullmatch(successor)
    if a is None or b is None or (a["before"], a["after"]) != (b["before"], b["after"]):
        return False
    return int(b["number"]) == int(a["number"]) + 1


def details(report: Report) -> Iterator[Section]:
    """Memory saved for backward by module, the timeline of the step, and uncertain workspaces."""
    memory = report.static.memory if report.static is not None else None
    if memory is None:
        return
    if memory.modules:
        modules = sorted(memory.modules, key=lambda module: -max(module.created_bytes, module.held_bytes))
        table = page_table("kept", "by module", SAVED_COLUMNS, modules, report)
        yield Section(title="Saved for backward", blocks=(*saved_chart(modules), table), detail=True)
    on_device = default_device_table(report)
    if on_device is not None and memory.device is not None:
        title = f"Peak memory on the default device, {memory.device.card or memory.device.profile}"
        yield Section(title=title, blocks=(on_device, *device_sentences(memory.device)), detail=True)
    points = memory.device.timeline if memory.device is not None else memory.timeline
    if points:
        table = page_table("timeline", "peak of live tensor bytes", TIMELINE_COLUMNS, points, report)
        device = memory.device
        parts = (device.by_category, device.by_module) if device is not None else ()
        yield Section(title="Memory over the step", blocks=(*memory_charts(points, *parts), table), detail=True)
    if memory.device is not None and memory.device.uncertain:
        table = page_table("scratch", "", SCRATCH_COLUMNS, memory.device.uncertain, report)
        yield Section(title="Uncertain workspaces", blocks=(table,), detail=True)
