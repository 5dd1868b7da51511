"""Runs over changing shapes, as sections: what a cycle takes, what a new shape costs, and each shape's steps."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from profiler_kit.records.document import Block, Paragraph, Section
from profiler_kit.records.laboratory import ShapeSchedule
from profiler_kit.records.report import Report
from profiler_kit.records.schedules import ShapeTime, shape_text, shape_times
from profiler_kit.report.columns.column import page_table
from profiler_kit.report.columns.schedules import SCHEDULE_COLUMNS, SHAPE_COLUMNS

CAPTION = "one process each; the device waited for before and after every step"


def schedule_section(report: Report) -> Iterator[Section]:
    """The schedules side by side, what they ran over, and why one broke off; nothing where none was run."""
    if not report.schedules:
        return
    blocks: list[Block] = []
    ran = [schedule for schedule in report.schedules if schedule.steps]
    if ran:
        blocks.append(page_table("schedules", CAPTION, SCHEDULE_COLUMNS, ran, report))
    for source in dict.fromkeys(schedule.source for schedule in ran):
        longest = max((s for s in ran if s.source == source), key=lambda schedule: len(schedule.steps))
        blocks.append(Paragraph(text=_ran_over(longest)))
    for schedule in report.schedules:
        if schedule.failure is not None:
            where = f"after {len(schedule.steps)} steps" if len(schedule.steps) != 1 else "after 1 step"
            reason = " ".join(schedule.failure.split())
            blocks.append(Paragraph(text=f"{schedule.config} broke off {where}: {reason}", role="warning"))
    for note in dict.fromkeys(note for schedule in report.schedules for note in schedule.notes):
        blocks.append(Paragraph(text=note, role="note"))
    yield Section(title="Changing shapes", blocks=tuple(blocks))


def schedule_details(report: Report) -> Iterator[Section]:
    """Each shape's first and later steps, the configurations below each other."""
    times = [time for schedule in report.schedules for time in shape_times(schedule)]
    if times:
        order = list(dict.fromkeys(time.shape for time in times))
        times.sort(key=lambda time: order.index(time.shape))
        table = page_table("shapes", "in the order they came", SHAPE_COLUMNS, times, report)
        yield Section(title="Steps by shape", blocks=(table,), detail=True)


def _ran_over(schedule: ShapeSchedule) -> str:
    """How many shapes, from where, between which; and the smaller last batch."""
    times = shape_times(schedule)
    whole = [time for time in times if not time.last_batch]
    source = {"generated": "made up around the target's own", "given": "as given"}.get(
        schedule.source, f"recorded in {schedule.source}"
    )
    count = "1 shape" if len(whole) == 1 else f"{len(whole):,} shapes"
    said = f"{count}, {source}{_between(whole)}"
    cycles = max(step.cycle for step in schedule.steps)
    if cycles > 1:
        said += f"; {cycles} cycles over them, the first of which meets each anew"
    last = [time for time in times if time.last_batch]
    if last:
        each = f"each cycle has a smaller batch, {shape_text(last[0].shape)}"
        said += f"; {each}" if len(last) == 1 else "; smaller batches too"
    return f"{said}."


def _between(times: list[ShapeTime]) -> str:
    if len(times) < 2:
        return f": {shape_text(times[0].shape)}" if times else ""
    by_size = sorted(times, key=lambda time: prod(time.shape))
    return f", from {shape_text(by_size[0].shape)} to {shape_text(by_size[-1].shape)}"
