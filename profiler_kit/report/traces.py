"""Inspected traces as a document: the verdict and findings first, then the figures behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Final

from profiler_kit.records.document import Block, Chart, Document, Paragraph, Section, Table
from profiler_kit.records.inspect_options import TraceView
from profiler_kit.records.lanes import StepTimeline
from profiler_kit.records.report import TraceReport
from profiler_kit.records.serde import dumps
from profiler_kit.records.traces import TraceSummary
from profiler_kit.report import sentences, trace_sections, trace_sentences, trace_tables
from profiler_kit.report.charts import traces as charts
from profiler_kit.report.columns.column import page_table
from profiler_kit.report.columns.traces import TRACE_COLUMNS, TraceItem
from profiler_kit.report.origin import origin, short_path
from profiler_kit.report.rows import check_limits
from profiler_kit.report.trace_ranks import ranks_section
from profiler_kit.report.trace_sections import TOP, Shown
from profiler_kit.report.verdict import verdict_sections

MAX_CLOSER: Final = 3  # timelines with all lanes make a page large
# The timeline stands before the first of these sections.
_AFTER_TIMELINE: Final = ("Idle time", "Modules", "Kernels by kind", "Operators")


def traces_document(
    report: TraceReport,
    *,
    top: int | None = TOP,
    depth: int | None = None,
    by: TraceView | None = None,
    timelines: Mapping[int, StepTimeline] | None = None,
) -> Document:
    """`report` as sections of text and tables for pages, and complete tables for CSV.

    `top`: rows of the tables of modules (per parent), operators, kernels and waits; None for all.
    `depth`: levels of the module tree; None for as many as fit a screen.
    `by`: show only this table, which is also the table of a CSV file; None for a summary.
    `timelines`: a step over time of some traces, by the index of the trace, for renderers that draw.

    Raises: UsageError for a negative `top` or `depth`.
    """
    check_limits(top, depth)
    sections = [*(_view(report, by, top, depth) if by is not None else _summary(report, top, depth))]
    if timelines:
        after = _AFTER_TIMELINE if len(report.traces) == 1 else (report.name(report.traces[0]),)
        place = next((i for i, section in enumerate(sections) if section.title in after), len(sections))
        shared = charts.clock_range(timelines.values())
        names = {_rank_name(report, index): timeline for index, timeline in sorted(timelines.items())}
        drawings = list(charts.ranks_chart(names)) if len(names) == len(timelines) else []
        drawings += [
            chart
            for index, timeline in _closer(report, timelines)
            for chart in _step_charts(timeline, _timeline_name(report, index), shared)
        ]
        sections.insert(place, Section(title="Timeline", blocks=tuple(drawings)))
        repairs = [
            chart
            for index, timeline in sorted(timelines.items())
            for chart in charts.repair_charts(timeline, _timeline_name(report, index))
        ]
        sections[place + 1 : place + 1] = [Section(title="Before and after", blocks=tuple(repairs))] if repairs else []
    return Document(
        title=_title(report),
        origin=origin(next(map(trace_sentences.devices, report.traces), ""), report.created, report.tool),
        sections=tuple(sections),
        json=lambda: dumps(report),
        full=lambda: trace_tables.trace_data_tables(report, by),
    )


def _title(report: TraceReport) -> str:
    """The file, or the folder and the number of several files."""
    if len(report.traces) == 1:
        return short_path(report.traces[0].file)
    folders = {PurePath(trace.file).parent.name for trace in report.traces}
    folder = f"{folders.pop()}: " if len(folders) == 1 and folders != {""} else ""
    return f"{folder}{len(report.traces)} traces"


def _step_charts(timeline: StepTimeline, name: str, shared: charts.ClockRange | None) -> Iterator[Chart]:
    yield from charts.timeline_chart(timeline, name, shared)
    yield from charts.call_chart(timeline, name)


def _closer(report: TraceReport, timelines: Mapping[int, StepTimeline]) -> list[tuple[int, StepTimeline]]:
    """The timelines with all their lanes: of many, that of the slowest rank alone, or of the first trace."""
    indices = sorted(timelines)
    if len(indices) > MAX_CLOSER:
        slowest = report.ranks.slowest.file if report.ranks is not None else ""
        indices = [i for i in indices if report.traces[i].file == slowest] or indices[:1]
    return [(i, timelines[i]) for i in indices]


def _rank_name(report: TraceReport, index: int) -> str:
    rank = report.traces[index].rank
    return report.name(report.traces[index]) if rank is None else f"rank {rank}"


def _timeline_name(report: TraceReport, index: int) -> str:
    """The name of a trace in the title of its timeline; empty for a single trace."""
    return report.name(report.traces[index]) if len(report.traces) > 1 else ""


def _summary(report: TraceReport, top: int | None, depth: int | None) -> Iterator[Section]:
    yield from verdict_sections(report.verdict, _notes(report))
    yield sentences.findings(report.findings)
    if len(report.traces) == 1:
        trace = report.traces[0]
        yield Section(title="Trace", blocks=tuple(_header(trace)))
        yield from trace_sections.trace_sections(Shown.of_trace(trace), top, depth)
        return
    # the table of ranks shows the extremes of many ranks
    is_detail = report.ranks is not None and top is not None and len(report.traces) > top
    yield Section(title="Traces", blocks=(_traces_table(report),), detail=is_detail)
    if report.ranks is not None:
        yield ranks_section(report.ranks, top=top)
    is_brief = report.ranks is not None or len(report.traces) > 2
    for trace in report.traces:
        name = report.name(trace)
        yield Section(title=name, blocks=tuple(_brief_trace(trace)), detail=is_brief)
        for section in trace_sections.trace_sections(Shown.of_trace(trace), top, depth, phases=False):
            yield Section(title=f"{section.title} of {name}", blocks=section.blocks, detail=True)


def _brief_trace(trace: TraceSummary) -> Iterator[Block]:
    """Header and phases of one of several traces; sentences are details."""
    head, *notes = _header(trace)
    yield head
    for block in (*trace_sections.phase_blocks(Shown.of_trace(trace)), *notes):
        yield replace(block, detail=True) if isinstance(block, Paragraph) else block


def _notes(report: TraceReport) -> list[Paragraph]:
    return [Paragraph(text=note, role="warning") for note in report.notes]


def _header(trace: TraceSummary) -> list[Block]:
    parts = (
        trace_sentences.place(trace),
        trace_sentences.steps(trace),
        trace_sentences.untraced(trace),
        trace_sentences.overlap(trace),
    )
    blocks: list[Block] = [Paragraph(text=" ".join(part for part in parts if part is not None))]
    return blocks + [Paragraph(text=note, role="note") for note in trace.notes]


def _view(report: TraceReport, by: TraceView, top: int | None, depth: int | None) -> Iterator[Section]:
    """The table `by` of each trace."""
    yield from verdict_sections(report.verdict, _notes(report), remedies=False)
    if by == "rank":
        if report.ranks is not None:
            yield ranks_section(report.ranks, top=None)
        yield Section(title="Traces", blocks=(_traces_table(report),))
        return
    for trace in report.traces:
        name = report.name(trace)
        of_name = f" of {name}" if len(report.traces) > 1 else ""
        yield from trace_sections.view_sections(Shown.of_trace(trace), by, top, depth, name=name, of_name=of_name)


def _traces_table(report: TraceReport) -> Table:
    rows = [TraceItem(trace, None, report.name(trace)) for trace in report.traces]
    return page_table("traces", "whole traces", TRACE_COLUMNS, rows)
