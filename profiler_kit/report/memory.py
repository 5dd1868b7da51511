"""The predicted memory of a step in words, and the tables behind it: who keeps what, the timeline, uncertain scratch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from profiler_kit.records.counts import DeviceMemory, Phase, WhatIf
from profiler_kit.records.document import Paragraph, Section
from profiler_kit.records.report import Report
from profiler_kit.report.columns.column import page_table
from profiler_kit.report.columns.memory import KEPT_COLUMNS, SCRATCH_COLUMNS, TIMELINE_COLUMNS, WHAT_IF_COLUMNS
from profiler_kit.units import text

# Below this share of the peak, an interval is not worth a sentence.
LEAST_WIDTH: Final = 0.01
_NUMBERED: Final = re.compile(r"(?P<before>.*?)(?P<number>\d+)(?P<after>[^\d]*)")


def sentences(report: Report) -> Iterator[Paragraph]:
    """What a device of the simulated kind would show, where the peak is, how sure that is, and what is left out."""
    memory = report.static.memory if report.static is not None else None
    if memory is None:
        return
    if memory.device is not None:
        yield Paragraph(text=_on_device(memory.device))
        unsure = _unsure(memory.device)
        if unsure is not None:
            yield Paragraph(text=unsure)
    for note in memory.notes:
        yield Paragraph(text=note, role="note")


def _on_device(device: DeviceMemory) -> str:
    what = f"{device.profile} ({device.card})" if device.card else device.profile
    outside = text(device.context_bytes, "bytes")
    context = f", and {outside} outside of it for the context" if device.context_bytes else ""
    where = _place(device.peak_phase, device.peak_path, device.peak_op)
    return (
        f"On {what} the step allocates {text(device.allocated_bytes, 'bytes')} at its peak, {where}; "
        f"the allocator reserves {text(device.reserved_bytes, 'bytes')}{context}."
    )


def _place(phase: Phase, path: str, op: str) -> str:
    if not op:
        return "before it begins"
    whose = f" of {path}" if path else ""
    return f"in {op} in {phase}{whose}"


def _unsure(device: DeviceMemory) -> str | None:
    width = device.allocated_high_bytes - device.allocated_low_bytes
    if width < LEAST_WIDTH * device.allocated_bytes or not device.uncertain:
        return None
    most = device.uncertain[0]
    return (
        f"It may be {text(device.allocated_low_bytes, 'bytes')} to {text(device.allocated_high_bytes, 'bytes')}: what the "
        f"library takes in {_place(most.phase, most.path, most.op).removeprefix('in ')} is known only to be "
        f"{text(most.low_bytes, 'bytes')} to {text(most.high_bytes, 'bytes')}."
    )


def what_ifs(report: Report) -> Iterator[Section]:
    """The memory with something changed; nothing where nothing was asked."""
    memory = report.static.memory if report.static is not None else None
    if memory is not None and memory.what_ifs:
        table = page_table("what_ifs", "simulated one by one", WHAT_IF_COLUMNS, memory.what_ifs, report)
        notes = (*_modules_meant(memory.what_ifs), *memory.what_if_notes)
        yield Section(title="What if", blocks=(table, *(Paragraph(text=note) for note in notes)))


def _modules_meant(answers: Sequence[WhatIf]) -> Iterator[str]:
    """The modules of every row that has no room to name them."""
    for answer in answers:
        if answer.checkpoint and not all(path in answer.change for path in answer.checkpoint):
            flops = text(answer.recompute_flops, "flops")
            again = f" ({flops}FLOPs again)" if answer.recompute_flops is not None else ""
            yield f"{answer.change}{again}: {in_ranges(answer.checkpoint)}."


def in_ranges(paths: Sequence[str]) -> str:
    """`paths` with neighbours that differ in a number alone as one: ``layers.0 to layers.11, head``."""
    runs: list[list[str]] = []
    for path in paths:
        if runs and _follows(runs[-1][-1], path):
            runs[-1].append(path)
        else:
            runs.append([path])
    return ", ".join(name for run in runs for name in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else run))


def _follows(path: str, other: str) -> bool:
    """Whether `other` is `path` with its last number one higher."""
    one, another = _NUMBERED.fullmatch(path), _NUMBERED.fullmatch(other)
    if one is None or another is None or (one["before"], one["after"]) != (another["before"], another["after"]):
        return False
    return int(another["number"]) == int(one["number"]) + 1


def details(report: Report) -> Iterator[Section]:
    """Who makes and keeps what backward needs, the timeline of the step, and scratch that is not known exactly."""
    memory = report.static.memory if report.static is not None else None
    if memory is None:
        return
    if memory.modules:
        kept = sorted(memory.modules, key=lambda module: -max(module.created_bytes, module.held_bytes))
        table = page_table("kept", "by module", KEPT_COLUMNS, kept, report)
        yield Section(title="Kept for backward", blocks=(table,), detail=True)
    points = memory.device.timeline if memory.device is not None else memory.timeline
    if points:
        table = page_table("timeline", "most bytes of tensors held", TIMELINE_COLUMNS, points, report)
        yield Section(title="Memory over the step", blocks=(table,), detail=True)
    if memory.device is not None and memory.device.uncertain:
        table = page_table("scratch", "", SCRATCH_COLUMNS, memory.device.uncertain, report)
        yield Section(title="Scratch that may move the peak", blocks=(table,), detail=True)
