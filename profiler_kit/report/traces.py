"""Inspected traces as a document: the verdict and findings first, then the figures behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from profiler_kit.records.document import Block, Document, Paragraph, Section, Table
from profiler_kit.records.inspect_options import TraceView
from profiler_kit.records.lanes import StepTimeline
from profiler_kit.records.report import TraceReport
from profiler_kit.records.serde import dumps
from profiler_kit.records.traces import TraceSummary
from profiler_kit.report import sentences, trace_sentences, trace_tables
from profiler_kit.report.charts import traces as charts
from profiler_kit.report.columns.column import Column, page_table
from profiler_kit.report.columns.traces import (
    TRACE_COLUMNS,
    TRACE_DEVICE_COLUMNS,
    TRACE_FAMILY_COLUMNS,
    TRACE_HOST_COLUMNS,
    TRACE_IDLE_COLUMNS,
    TRACE_KERNEL_COLUMNS,
    TRACE_OPERATOR_COLUMNS,
    TRACE_PHASE_COLUMNS,
    TRACE_PLACE_COLUMNS,
    TRACE_SHAPE_COLUMNS,
    TRACE_STEP_COLUMNS,
    TRACE_STREAM_COLUMNS,
    TRACE_SYNC_COLUMNS,
    TRACE_TREE_COLUMNS,
    TraceItem,
)
from profiler_kit.report.rows import check_limits
from profiler_kit.report.trace_ranks import ranks_section
from profiler_kit.report.trace_tree import module_tree, names_modules
from profiler_kit.report.verdict import verdict_sections
from profiler_kit.units import plural

Item = TypeVar("Item")

TOP: Final = 10
SUMMARY_TREE_LINES: Final = 14  # fits a screen with the other sections; --by module shows more
VIEW_TREE_LINES: Final = 60
SUMMARY_ROWS: Final = 5

# The timeline stands before the first of these sections.
_AFTER_TIMELINE: Final = ("Idle time", "Modules", "Kernels by kind", "Operators")

BY_SHAPE: Final = "Operators by shape"

View = Callable[[TraceSummary, int | None, int | None], Table]


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
        drawings = [
            chart
            for index, timeline in sorted(timelines.items())
            for chart in charts.timeline_chart(timeline, _timeline_name(report, index))
        ]
        sections.insert(place, Section(title="Timeline", blocks=tuple(drawings)))
    return Document(
        title=report.traces[0].file if len(report.traces) == 1 else f"{len(report.traces)} traces",
        sections=tuple(sections),
        json=lambda: dumps(report),
        full=lambda: trace_tables.trace_data_tables(report, by),
    )


def _timeline_name(report: TraceReport, index: int) -> str:
    """The name of a trace in the title of its timeline; empty for a single trace."""
    return report.name(report.traces[index]) if len(report.traces) > 1 else ""


def _summary(report: TraceReport, top: int | None, depth: int | None) -> Iterator[Section]:
    yield from verdict_sections(report.verdict, _notes(report))
    yield sentences.findings(report.findings)
    if len(report.traces) == 1:
        trace = report.traces[0]
        yield Section(title="Trace", blocks=tuple(_header(trace)))
        yield from _trace_sections(trace, top, depth)
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
        for section in _trace_sections(trace, top, depth, phases=False):
            yield Section(title=f"{section.title} of {name}", blocks=section.blocks, detail=True)


def _brief_trace(trace: TraceSummary) -> Iterator[Block]:
    """Header and phases of one of several traces; sentences are details."""
    head, *notes = _header(trace)
    yield head
    for block in (*_phase_blocks(trace), *notes):
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


def _trace_sections(
    trace: TraceSummary, top: int | None, depth: int | None, *, phases: bool = True
) -> Iterator[Section]:
    """All sections of one trace except its header."""
    brief = SUMMARY_ROWS if top == TOP else top  # few rows by default, so that a summary fits a screen
    blocks = _phase_blocks(trace)
    if blocks and phases:
        yield Section(title="Phases", blocks=tuple(blocks))
    if len(trace.accounts) > 1:
        yield Section(title="Devices", blocks=(_table(trace, "trace_devices", TRACE_DEVICE_COLUMNS, trace.accounts),))
    edges = trace_tables.edge_lines(trace)
    if trace.idle_ns or edges:
        is_short = trace.idle_ns < trace_tables.MIN_IDLE_SHARE * trace.span_ns and not edges
        yield Section(title="Idle time", blocks=(_idle(trace, top, depth),), detail=is_short)
    if trace.activities:
        is_short = trace.idle_ns < trace_tables.LARGE_IDLE_SHARE * trace.span_ns
        yield Section(title="Host while the device is idle", blocks=(_host(trace, brief, depth),), detail=is_short)
    if trace.sites:
        yield Section(title="Places", blocks=(_places(trace, brief, depth),))
    modules = names_modules(trace.modules)
    if modules:
        yield Section(
            title="Modules",
            blocks=(
                *charts.module_chart(trace),
                _modules(trace, brief, depth, max_lines=SUMMARY_TREE_LINES),
            ),
        )
    if trace.kernels and trace.clock == "device":
        yield Section(title="Kernels by kind", blocks=(_families(trace, brief),))
    if trace.operators:
        rows = top if modules or trace.clock == "host" else brief
        yield Section(title="Operators", blocks=(_operators(trace, rows, depth),), detail=modules)
    if trace.shapes:
        yield Section(title=BY_SHAPE, blocks=(_shapes(trace, brief),), detail=True)
    if trace.kernels and trace.clock == "device":
        yield Section(title="Kernels", blocks=(_kernels(trace, top, depth),), detail=True)
    if trace.syncs:
        yield Section(title="Host waits", blocks=(_syncs(trace, top, depth),), detail=True)
    if len(trace.streams) > 1:
        yield Section(title="Streams", blocks=(_streams(trace, top, depth),), detail=True)
    if trace.steps:
        yield Section(title="Steps", blocks=(*charts.step_chart(trace), _steps(trace, top, depth)), detail=True)


def _phase_blocks(trace: TraceSummary) -> list[Block]:
    """The phases on both clocks, with sentences about misleading host times, waits and missing attribution."""
    lines, _ = trace_tables.phase_lines(trace)
    if not lines:
        return []
    is_long_queue = trace.queue is not None and (trace.queue.full or trace.queue.growing)
    parts: list[tuple[str | None, bool]] = [
        (sentence, i > 0) for i, sentence in enumerate(trace_sentences.clocks(trace))
    ]
    parts += [
        (trace_sentences.waits(trace), False),
        (trace_sentences.queue(trace.queue), not is_long_queue),
        (trace_sentences.attribution_gaps(trace), False),
    ]
    paragraphs = (Paragraph(text=sentence, detail=detail) for sentence, detail in parts if sentence is not None)
    return [*charts.time_chart(trace), _phases(trace, None, None), *paragraphs]


def _view(report: TraceReport, by: TraceView, top: int | None, depth: int | None) -> Iterator[Section]:
    """The table `by` of each trace."""
    yield from verdict_sections(report.verdict, _notes(report), remedies=False)
    if by == "rank":
        if report.ranks is not None:
            yield ranks_section(report.ranks, top=None)
        yield Section(title="Traces", blocks=(_traces_table(report),))
        return
    for trace in report.traces:
        title, view = VIEWS[by]
        table = view(trace, top, depth)
        heading = f"{title} of {report.name(trace)}" if len(report.traces) > 1 else title
        block: Block = table if table.rows else Paragraph(text=f"{report.name(trace)} has no data for this table.")
        yield Section(title=heading, blocks=(block,))
        if by == "operator" and trace.shapes:
            heading = f"{BY_SHAPE} of {report.name(trace)}" if len(report.traces) > 1 else BY_SHAPE
            yield Section(title=heading, blocks=(_shapes(trace, top),))


def _caption(trace: TraceSummary) -> str:
    count = plural(len(trace.working_steps), "step")
    if trace.outside_ns:
        return f"whole trace: {count}, and work outside"
    return f"whole trace, {count}" if len(trace.working_steps) > 1 else "whole trace"


def _traces_table(report: TraceReport) -> Table:
    rows = [TraceItem(trace, None, report.name(trace)) for trace in report.traces]
    return page_table("traces", "whole traces", TRACE_COLUMNS, rows)


def _table(
    trace: TraceSummary,
    name: str,
    columns: Sequence[Column[TraceItem[Item]]],
    items: Iterable[Item],
    *,
    caption: str | None = None,
    total: Item | None = None,
    after_total: Iterable[Item] = (),
) -> Table:
    """A table of the `items` of `trace`, with a row for `total`, and rows that are not part of it."""
    rows = [TraceItem(trace, item) for item in items]
    totals = [TraceItem(trace, item) for item in (*(() if total is None else (total,)), *after_total)]
    return page_table(name, _caption(trace) if caption is None else caption, columns, rows, totals=totals)


def _phases(trace: TraceSummary, top: int | None, depth: int | None) -> Table:
    lines, total = trace_tables.phase_lines(trace)
    caption = f"{plural(len(trace.working_steps), 'step')}, and one row for work outside" if trace.outside_ns else None
    return _table(trace, "trace_phases", TRACE_PHASE_COLUMNS, lines, caption=caption, total=total)


def _idle(trace: TraceSummary, top: int | None, depth: int | None) -> Table:
    lines, total = trace_tables.idle_lines(trace.idle)
    caption = "of the device" if trace.clock == "device" else "of the host, between operators"
    return _table(
        trace,
        "trace_causes",
        TRACE_IDLE_COLUMNS,
        lines,
        caption=caption,
        total=total,
        after_total=trace_tables.edge_lines(trace),
    )


def _host(trace: TraceSummary, top: int | None, depth: int | None) -> Table:
    return _table(trace, "trace_host", TRACE_HOST_COLUMNS, trace.activities[:top])


def _places(trace: TraceSummary, top: int | None, depth: int | None) -> Table:
    sites = sorted(trace.sites, key=lambda site: -site.saving.median)
    return _table(trace, "trace_places", TRACE_PLACE_COLUMNS, sites[:top], caption="a step without the work of a place")


def _modules(trace: TraceSummary, top: int | None, depth: int | None, max_lines: int = VIEW_TREE_LINES) -> Table:
    tree = module_tree(trace.modules, top=top, depth=depth, max_lines=max_lines)
    levels = f"; {tree.levels} of {tree.depth} levels" if tree.levels < tree.depth else ""
    return _table(trace, "trace_tree", TRACE_TREE_COLUMNS, tree.lines, caption=f"including children{levels}")


def _families(trace: TraceSummary, top: int | None) -> Table:
    return _table(trace, "trace_families", TRACE_FAMILY_COLUMNS, trace_tables.family_lines(trace, top))


def _operators(trace: TraceSummary, top: int | None, depth: int | None) -> Table:
    return _table(trace, "trace_operators", TRACE_OPERATOR_COLUMNS, trace_tables.operators_by_time(trace, top))


def _shapes(trace: TraceSummary, top: int | None) -> Table:
    return _table(
        trace,
        "trace_shapes",
        TRACE_SHAPE_COLUMNS,
        trace.shapes[:top],
        caption="backward joined to its forward",
    )


def _kernels(trace: TraceSummary, top: int | None, depth: int | None) -> Table:
    return _table(trace, "trace_kernels", TRACE_KERNEL_COLUMNS, trace_tables.kernels_by_time(trace, top))


def _syncs(trace: TraceSummary, top: int | None, depth: int | None) -> Table:
    longest = sorted(trace.syncs, key=lambda wait: -wait.wait_ns)[:top]
    return _table(trace, "trace_syncs", TRACE_SYNC_COLUMNS, longest)


def _streams(trace: TraceSummary, top: int | None, depth: int | None) -> Table:
    return _table(trace, "trace_streams", TRACE_STREAM_COLUMNS, trace.streams)


def _steps(trace: TraceSummary, top: int | None, depth: int | None) -> Table:
    return _table(trace, "trace_steps", TRACE_STEP_COLUMNS, trace.steps, caption="")


VIEWS: Final[dict[TraceView, tuple[str, View]]] = {
    "phase": ("Phases", _phases),
    "module": ("Modules", _modules),
    "operator": ("Operators", _operators),
    "kernel": ("Kernels", _kernels),
    "idle": ("Idle time", _idle),
    "host": ("Host while the device is idle", _host),
    "place": ("Places", _places),
    "stream": ("Streams", _streams),
    "step": ("Steps", _steps),
    "sync": ("Host waits", _syncs),
}
