"""Inspected traces as a document: findings first, then what they rest on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from profiler_kit.errors import UsageError
from profiler_kit.records.document import Block, Document, FindingList, Paragraph, Section, Table
from profiler_kit.records.report import TraceReport
from profiler_kit.records.serde import dumps
from profiler_kit.records.trace_asks import TraceView
from profiler_kit.records.traces import TraceSummary
from profiler_kit.report import columns, trace_tables, trace_words
from profiler_kit.report.columns import Of
from profiler_kit.report.plain import plain_table
from profiler_kit.report.trace_tree import module_tree, names_modules
from profiler_kit.report.traces_ranks import ranks_section

TOP: Final = 10
# With the header, some findings, phases and idle causes a screen; --by module shows more.
SUMMARY_TREE: Final = 14
VIEW_TREE: Final = 60
SUMMARY_ROWS: Final = 5

VIEW_TITLES: Final[dict[TraceView, str]] = {
    "phase": "Phases",
    "module": "Modules",
    "operator": "Operators",
    "kernel": "Kernels",
    "idle": "Idle time",
    "stream": "Streams",
    "step": "Steps",
    "sync": "Waits of the host",
    "rank": "Ranks",
}

BY_SHAPE: Final = "Operators by shape"

View = Callable[[TraceSummary, str | None, int | None, int | None], Table]


def traces_document(
    report: TraceReport, *, top: int | None = TOP, depth: int | None = None, by: TraceView | None = None
) -> Document:
    """`report` as sections of text and tables, and whole tables for programs.

    `by`: one table alone, which is also what CSV holds; None for a summary of everything. `top`: rows of the tables of
    modules (below one module), operators, kernels and waits, None for all; `depth`: levels of the tree of modules, None for as
    many as fit.

    Raises UsageError for a negative `top` or `depth`.
    """
    for name, number in (("top", top), ("depth", depth)):
        if number is not None and number < 0:
            raise UsageError(f"{name} is {number}", hint=f"give a {name} of 0 or more")
    sections = _view(report, by, top, depth) if by is not None else _summary(report, top, depth)
    return Document(
        title=_title(report),
        sections=tuple(sections),
        json=dumps(report),
        full=trace_tables.trace_data_tables(report, by),
    )


def _title(report: TraceReport) -> str:
    if len(report.traces) == 1:
        return report.traces[0].file
    return f"{len(report.traces)} traces"


def _summary(report: TraceReport, top: int | None, depth: int | None) -> Iterator[Section]:
    if len(report.traces) == 1:
        trace = report.traces[0]
        yield Section(title="Trace", blocks=(*_header(trace), *_notes(report)))
        yield _findings(report)
        yield from _trace(trace, top, depth)
        return
    rows = [Of(trace, None, report.name(trace)) for trace in report.traces]
    table = plain_table("traces", "whole traces", columns.TRACE_COLUMNS, rows)
    many = (
        report.ranks is not None and top is not None and len(rows) > top
    )  # the ranks' own table has the first and the last
    yield Section(title="Traces", blocks=(table,), detail=many)
    if report.notes:
        yield Section(title="Notes", blocks=tuple(_notes(report)))
    yield _findings(report)
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


def _findings(report: TraceReport) -> Section:
    found: Block = FindingList(findings=report.findings) if report.findings else Paragraph(text="None.")
    return Section(title="Findings", blocks=(found,))


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
        yield Section(title="Idle time", blocks=(_idle(trace, None, top, depth),), detail=little)
    modules = names_modules(trace.modules)
    if modules:
        yield Section(title="Modules", blocks=(_modules(trace, None, brief, depth, most=SUMMARY_TREE),))
    if trace.kernels and trace.clock == "device":
        yield Section(title="Kernels by what they do", blocks=(_families(trace, brief),))
    if trace.operators:
        shown = top if modules or trace.clock == "host" else brief
        yield Section(title="Operators", blocks=(_operators(trace, None, shown, depth),), detail=modules)
    if trace.shapes:
        yield Section(title=BY_SHAPE, blocks=(_shapes(trace, None, brief),), detail=True)
    if trace.kernels and trace.clock == "device":
        yield Section(title="Kernels", blocks=(_kernels(trace, None, top, depth),), detail=True)
    if trace.syncs:
        yield Section(title="Waits of the host", blocks=(_syncs(trace, None, top, depth),), detail=True)
    if len(trace.streams) > 1:
        yield Section(title="Streams", blocks=(_streams(trace, None, top, depth),), detail=True)
    if trace.steps:
        yield Section(title="Steps", blocks=(_steps(trace, None, top, depth),), detail=True)


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
    sentences = (Paragraph(text=one, detail=detail) for one, detail in said if one is not None)
    return [_phases(trace, None, None, None), *sentences]


def _view(report: TraceReport, by: TraceView, top: int | None, depth: int | None) -> Iterator[Section]:
    """One table of each trace, below each other."""
    yield Section(title="Trace", blocks=(Paragraph(text=_about(report)), *_notes(report)))
    if by == "rank":
        if report.ranks is not None:
            yield ranks_section(report.ranks, top=None)
        rows = [Of(trace, None, report.name(trace)) for trace in report.traces]
        yield Section(title="Traces", blocks=(plain_table("traces", "whole traces", columns.TRACE_COLUMNS, rows),))
        return
    for trace in report.traces:
        table = VIEWS[by](trace, None, top, depth)
        named = f"{VIEW_TITLES[by]} of {report.name(trace)}" if len(report.traces) > 1 else VIEW_TITLES[by]
        block: Block = table if table.rows else Paragraph(text=f"{report.name(trace)} has nothing of this.")
        yield Section(title=named, blocks=(block,))
        if by == "operator" and trace.shapes:
            title = f"{BY_SHAPE}, of {report.name(trace)}" if len(report.traces) > 1 else BY_SHAPE
            yield Section(title=title, blocks=(_shapes(trace, None, top),))


def _about(report: TraceReport) -> str:
    if len(report.traces) == 1:
        return trace_words.headline(report.traces[0])
    named = ", ".join(report.name(trace) for trace in report.traces[:4])
    return f"{named} and {len(report.traces) - 4} more." if len(report.traces) > 4 else f"{named}."


def _caption(trace: TraceSummary) -> str:
    count = len(trace.steps)
    return f"whole trace, {count} steps" if count > 1 else "whole trace"


def _phases(trace: TraceSummary, name: str | None, top: int | None, depth: int | None) -> Table:
    lines, whole = trace_tables.phase_lines(trace)
    rows = [Of(trace, line, name) for line in lines]
    return plain_table(
        "trace_phases", _caption(trace), columns.TRACE_PHASE_COLUMNS, rows, totals=[Of(trace, whole, name)]
    )


def _idle(trace: TraceSummary, name: str | None, top: int | None, depth: int | None) -> Table:
    lines, whole = trace_tables.idle_lines(trace.idle)
    caption = "of the device" if trace.clock == "device" else "of the host, between operators"
    rows = [Of(trace, line, name) for line in lines]
    return plain_table("trace_causes", caption, columns.TRACE_IDLE_COLUMNS, rows, totals=[Of(trace, whole, name)])


def _modules(trace: TraceSummary, name: str | None, top: int | None, depth: int | None, most: int = VIEW_TREE) -> Table:
    tree = module_tree(trace.modules, top=top, depth=depth, most=most)
    more = f"; {tree.levels} of {tree.deepest} levels" if tree.levels < tree.deepest else ""
    rows = [Of(trace, line, name) for line in tree.lines]
    return plain_table("trace_tree", f"each with all below it{more}", columns.TRACE_TREE_COLUMNS, rows)


def _families(trace: TraceSummary, top: int | None) -> Table:
    rows = [Of(trace, line) for line in trace_tables.family_lines(trace, top)]
    return plain_table("trace_families", _caption(trace), columns.TRACE_FAMILY_COLUMNS, rows)


def _operators(trace: TraceSummary, name: str | None, top: int | None, depth: int | None) -> Table:
    rows = [Of(trace, one, name) for one in trace_tables.operators_by_time(trace, top)]
    return plain_table("trace_operators", _caption(trace), columns.TRACE_OPERATOR_COLUMNS, rows)


def _shapes(trace: TraceSummary, name: str | None, top: int | None) -> Table:
    rows = [Of(trace, one, name) for one in trace.shapes[:top]]
    return plain_table("trace_shapes", "backward joined to forward", columns.TRACE_SHAPE_COLUMNS, rows)


def _kernels(trace: TraceSummary, name: str | None, top: int | None, depth: int | None) -> Table:
    rows = [Of(trace, kernel, name) for kernel in trace_tables.kernels_by_time(trace, top)]
    return plain_table("trace_kernels", _caption(trace), columns.TRACE_KERNEL_COLUMNS, rows)


def _syncs(trace: TraceSummary, name: str | None, top: int | None, depth: int | None) -> Table:
    longest = sorted(trace.syncs, key=lambda wait: -wait.wait_ns)[:top]
    return plain_table(
        "trace_syncs", _caption(trace), columns.TRACE_SYNC_COLUMNS, [Of(trace, wait, name) for wait in longest]
    )


def _streams(trace: TraceSummary, name: str | None, top: int | None, depth: int | None) -> Table:
    rows = [Of(trace, stream, name) for stream in trace.streams]
    return plain_table("trace_streams", _caption(trace), columns.TRACE_STREAM_COLUMNS, rows)


def _steps(trace: TraceSummary, name: str | None, top: int | None, depth: int | None) -> Table:
    return plain_table("trace_steps", "", columns.TRACE_STEP_COLUMNS, [Of(trace, step, name) for step in trace.steps])


VIEWS: Final[dict[TraceView, View]] = {
    "phase": _phases,
    "module": _modules,
    "operator": _operators,
    "kernel": _kernels,
    "idle": _idle,
    "stream": _streams,
    "step": _steps,
    "sync": _syncs,
}
