"""Inspected traces as a document: findings first, then what they rest on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from profiler_kit.records.document import Block, Document, Paragraph, Section, Table
from profiler_kit.records.report import TraceReport
from profiler_kit.records.serde import dumps
from profiler_kit.records.trace_asks import TraceView
from profiler_kit.records.traces import TraceSummary
from profiler_kit.report import sentences, trace_tables, trace_words
from profiler_kit.report.columns.column import Column, page_table
from profiler_kit.report.columns.traces import (
    TRACE_COLUMNS,
    TRACE_FAMILY_COLUMNS,
    TRACE_IDLE_COLUMNS,
    TRACE_KERNEL_COLUMNS,
    TRACE_OPERATOR_COLUMNS,
    TRACE_PHASE_COLUMNS,
    TRACE_SHAPE_COLUMNS,
    TRACE_STEP_COLUMNS,
    TRACE_STREAM_COLUMNS,
    TRACE_SYNC_COLUMNS,
    TRACE_TREE_COLUMNS,
    Of,
)
from profiler_kit.report.rows import check_limits
from profiler_kit.report.trace_tree import module_tree, names_modules
from profiler_kit.report.traces_ranks import ranks_section

Item = TypeVar("Item")

TOP: Final = 10
# With the header, some findings, phases and idle causes a screen; --by module shows more.
SUMMARY_TREE: Final = 14
VIEW_TREE: Final = 60
SUMMARY_ROWS: Final = 5

BY_SHAPE: Final = "Operators by shape"

View = Callable[[TraceSummary, int | None, int | None], Table]


def traces_document(
    report: TraceReport, *, top: int | None = TOP, depth: int | None = None, by: TraceView | None = None
) -> Document:
    """`report` as sections of text and tables, and whole tables for programs.

    `by`: one table alone, which is also what CSV holds; None for a summary of everything. `top`: rows of the tables of
    modules (below one module), operators, kernels and waits, None for all; `depth`: levels of the tree of modules, None for as
    many as fit.

    Raises UsageError for a negative `top` or `depth`.
    """
    check_limits(top, depth)
    sections = _view(report, by, top, depth) if by is not None else _summary(report, top, depth)
    return Document(
        title=report.traces[0].file if len(report.traces) == 1 else f"{len(report.traces)} traces",
        sections=tuple(sections),
        json=dumps(report),
        full=trace_tables.trace_data_tables(report, by),
    )


def _summary(report: TraceReport, top: int | None, depth: int | None) -> Iterator[Section]:
    if len(report.traces) == 1:
        trace = report.traces[0]
        yield Section(title="Trace", blocks=(*_header(trace), *_notes(report)))
        yield sentences.findings(report.findings)
        yield from _trace(trace, top, depth)
        return
    # the ranks' own table has the first and the last of many
    many = report.ranks is not None and top is not None and len(report.traces) > top
    yield Section(title="Traces", blocks=(_beside_each_other(report),), detail=many)
    if report.notes:
        yield Section(title="Notes", blocks=tuple(_notes(report)))
    yield sentences.findings(report.findings)
    if report.ranks is not None:
        yield ranks_section(report.ranks, top=top)
    for trace in report.traces:
        name = report.name(trace)
        yield Section(title=name, blocks=tuple(_beside(trace)), detail=len(report.traces) > 2)
        for section in _trace(trace, top, depth, phases=False):
            yield Section(title=f"{section.title} of {name}", blocks=section.blocks, detail=True)


def _beside(trace: TraceSummary) -> Iterator[Block]:
    """A trace among others: its header and phases, sentences for those who ask for detail."""
    head, *notes = _header(trace)
    yield head
    for block in (*_phase_blocks(trace), *notes):
        yield replace(block, detail=True) if isinstance(block, Paragraph) else block


def _notes(report: TraceReport) -> list[Paragraph]:
    return [Paragraph(text=note, role="warning") for note in report.notes]


def _header(trace: TraceSummary) -> list[Block]:
    said = [trace_words.place(trace), trace_words.headline(trace), trace_words.steps(trace), trace_words.overlap(trace)]
    blocks: list[Block] = [Paragraph(text=" ".join(one for one in said if one is not None))]
    return blocks + [Paragraph(text=note, role="note") for note in trace.notes]


def _trace(trace: TraceSummary, top: int | None, depth: int | None, *, phases: bool = True) -> Iterator[Section]:
    """All about one trace but its header."""
    brief = SUMMARY_ROWS if top == TOP else top  # as many as fit a screen, unless asked for
    blocks = _phase_blocks(trace)
    if blocks and phases:
        yield Section(title="Phases", blocks=tuple(blocks))
    if trace.idle_ns and trace.clock == "device":
        little = trace.idle_ns < trace_tables.LITTLE_IDLE * trace.span_ns
        yield Section(title="Idle time", blocks=(_idle(trace, top, depth),), detail=little)
    modules = names_modules(trace.modules)
    if modules:
        yield Section(title="Modules", blocks=(_modules(trace, brief, depth, most=SUMMARY_TREE),))
    if trace.kernels and trace.clock == "device":
        yield Section(title="Kernels by what they do", blocks=(_families(trace, brief),))
    if trace.operators:
        shown = top if modules or trace.clock == "host" else brief
        yield Section(title="Operators", blocks=(_operators(trace, shown, depth),), detail=modules)
    if trace.shapes:
        yield Section(title=BY_SHAPE, blocks=(_shapes(trace, brief),), detail=True)
    if trace.kernels and trace.clock == "device":
        yield Section(title="Kernels", blocks=(_kernels(trace, top, depth),), detail=True)
    if trace.syncs:
        yield Section(title="Waits of the host", blocks=(_syncs(trace, top, depth),), detail=True)
    if len(trace.streams) > 1:
        yield Section(title="Streams", blocks=(_streams(trace, top, depth),), detail=True)
    if trace.steps:
        yield Section(title="Steps", blocks=(_steps(trace, top, depth),), detail=True)


def _phase_blocks(trace: TraceSummary) -> list[Block]:
    """The phases under both clocks, and what the clocks disagree about."""
    lines, _ = trace_tables.phase_lines(trace)
    if not lines:
        return []
    deep = trace.queue is not None and (trace.queue.full or trace.queue.growing)
    said: list[tuple[str | None, bool]] = [(one, i > 0) for i, one in enumerate(trace_words.clocks(trace))]
    said += [
        (trace_words.waits(trace), False),
        (trace_words.queue(trace.queue), not deep),
        (trace_words.unknown(trace), False),
    ]
    paragraphs = (Paragraph(text=one, detail=detail) for one, detail in said if one is not None)
    return [_phases(trace, None, None), *paragraphs]


def _view(report: TraceReport, by: TraceView, top: int | None, depth: int | None) -> Iterator[Section]:
    """One table of each trace, below each other."""
    yield Section(title="Trace", blocks=(Paragraph(text=_about(report)), *_notes(report)))
    if by == "rank":
        if report.ranks is not None:
            yield ranks_section(report.ranks, top=None)
        yield Section(title="Traces", blocks=(_beside_each_other(report),))
        return
    for trace in report.traces:
        title, view = VIEWS[by]
        table = view(trace, top, depth)
        named = f"{title} of {report.name(trace)}" if len(report.traces) > 1 else title
        block: Block = table if table.rows else Paragraph(text=f"{report.name(trace)} has nothing of this.")
        yield Section(title=named, blocks=(block,))
        if by == "operator" and trace.shapes:
            title = f"{BY_SHAPE}, of {report.name(trace)}" if len(report.traces) > 1 else BY_SHAPE
            yield Section(title=title, blocks=(_shapes(trace, top),))


def _about(report: TraceReport) -> str:
    if len(report.traces) == 1:
        return trace_words.headline(report.traces[0])
    named = ", ".join(report.name(trace) for trace in report.traces[:4])
    return f"{named} and {len(report.traces) - 4} more." if len(report.traces) > 4 else f"{named}."


def _caption(trace: TraceSummary) -> str:
    count = len(trace.steps)
    return f"whole trace, {count} steps" if count > 1 else "whole trace"


def _beside_each_other(report: TraceReport) -> Table:
    rows = [Of(trace, None, report.name(trace)) for trace in report.traces]
    return page_table("traces", "whole traces", TRACE_COLUMNS, rows)


def _table(
    trace: TraceSummary,
    name: str,
    of: Sequence[Column[Of[Item]]],
    items: Iterable[Item],
    *,
    caption: str | None = None,
    total: Item | None = None,
) -> Table:
    """`items` of `trace` under the columns `of`, and their sum."""
    rows, totals = [Of(trace, item) for item in items], [] if total is None else [Of(trace, total)]
    return page_table(name, _caption(trace) if caption is None else caption, of, rows, totals=totals)


def _phases(trace: TraceSummary, top: int | None, depth: int | None) -> Table:
    lines, whole = trace_tables.phase_lines(trace)
    return _table(trace, "trace_phases", TRACE_PHASE_COLUMNS, lines, total=whole)


def _idle(trace: TraceSummary, top: int | None, depth: int | None) -> Table:
    lines, whole = trace_tables.idle_lines(trace.idle)
    caption = "of the device" if trace.clock == "device" else "of the host, between operators"
    return _table(trace, "trace_causes", TRACE_IDLE_COLUMNS, lines, caption=caption, total=whole)


def _modules(trace: TraceSummary, top: int | None, depth: int | None, most: int = VIEW_TREE) -> Table:
    tree = module_tree(trace.modules, top=top, depth=depth, most=most)
    more = f"; {tree.levels} of {tree.deepest} levels" if tree.levels < tree.deepest else ""
    return _table(trace, "trace_tree", TRACE_TREE_COLUMNS, tree.lines, caption=f"each with all below it{more}")


def _families(trace: TraceSummary, top: int | None) -> Table:
    return _table(trace, "trace_families", TRACE_FAMILY_COLUMNS, trace_tables.family_lines(trace, top))


def _operators(trace: TraceSummary, top: int | None, depth: int | None) -> Table:
    return _table(trace, "trace_operators", TRACE_OPERATOR_COLUMNS, trace_tables.operators_by_time(trace, top))


def _shapes(trace: TraceSummary, top: int | None) -> Table:
    return _table(trace, "trace_shapes", TRACE_SHAPE_COLUMNS, trace.shapes[:top], caption="backward joined to forward")


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
    "stream": ("Streams", _streams),
    "step": ("Steps", _steps),
    "sync": ("Waits of the host", _syncs),
}
