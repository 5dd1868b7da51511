"""Runs with changing shapes as sections: time per cycle, cost of a new shape, and steps by shape."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from profiler_kit.records.document import Block, Paragraph, Section
from profiler_kit.records.experiments import ShapeSchedule
from profiler_kit.records.report import Report
from profiler_kit.records.schedules import ShapeTime, shape_text, shape_times
from profiler_kit.report.columns.column import page_table
from profiler_kit.report.columns.schedules import SCHEDULE_COLUMNS, SHAPE_COLUMNS
from profiler_kit.units import plural

CAPTION = "one process each; the device is synchronized before and after every step"


def schedule_section(report: Report) -> Iterator[Section]:
    """The schedules, their shapes, and failures; empty without schedules."""
    if not report.schedules:
        return
    blocks: list[Block] = []
    measured = [schedule for schedule in report.schedules if schedule.steps]
    if measured:
        blocks.append(page_table("schedules", CAPTION, SCHEDULE_COLUMNS, measured, report))
    for source in dict.fromkeys(schedule.source for schedule in measured):
        longest = max((s for s in measured if s.source == source), key=lambda schedule: len(schedule.steps))
        blocks.append(Paragraph(text=_shapes(longest)))
    for schedule in report.schedules:
        if schedule.failure is not None:
            where = f"after {len(schedule.steps)} steps" if len(schedule.steps) != 1 else "after 1 step"
            reason = " ".join(schedule.failure.split())
            blocks.append(Paragraph(text=f"{schedule.config} stopped {where}: {reason}", role="warning"))
    for note in dict.fromkeys(note for schedule in report.schedules for note in schedule.notes):
        blocks.append(Paragraph(text=note, role="note"))
    yield Section(title="Changing shapes", blocks=tuple(blocks))


def schedule_details(report: Report) -> Iterator[Section]:
    """First and later steps of each shape, under each configuration."""
    times = [time for schedule in report.schedules for time in shape_times(schedule)]
    if times:
        order = list(dict.fromkeys(time.shape for time in times))
        times.sort(key=lambda time: order.index(time.shape))
        table = page_table("shapes", "in order of appearance", SHAPE_COLUMNS, times, report)
        yield Section(title="Steps by shape", blocks=(table,), detail=True)


def _shapes(schedule: ShapeSchedule) -> str:
    """Number, source and range of the shapes, number of cycles, and the smaller last batch."""
    times = shape_times(schedule)
    full_batches = [time for time in times if not time.last_batch]
    source = {"generated": "generated around the target's own shape", "given": "from --shapes"}.get(
        schedule.source, f"recorded in {schedule.source}"
    )
    sentences = [f"{plural(len(full_batches), 'shape')}, {source}{_range(full_batches)}."]
    cycles = max(step.cycle for step in schedule.steps)
    if cycles > 1:
        sentences.append(f"{cycles} cycles; every shape is new in the first.")
    last_batches = [time for time in times if time.last_batch]
    if len(last_batches) == 1:
        sentences.append(f"Each cycle has one smaller batch, {shape_text(last_batches[0].shape)}.")
    elif last_batches:
        sentences.append("Each cycle has smaller batches too.")
    return " ".join(sentences)


def _range(times: list[ShapeTime]) -> str:
    if len(times) < 2:
        return f": {shape_text(times[0].shape)}" if times else ""
    by_size = sorted(times, key=lambda time: prod(time.shape))
    return f", from {shape_text(by_size[0].shape)} to {shape_text(by_size[-1].shape)}"
