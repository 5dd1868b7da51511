"""The sections and tables of one trace: of an inspected file, or of the mean traced step of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, get_args

from profiler_kit.records.document import Block, Paragraph, Section, Table
from profiler_kit.records.inspect_options import TraceView
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import TraceSummary
from profiler_kit.report import trace_sentences, trace_tables
from profiler_kit.report.charts import traces as charts
from profiler_kit.report.columns.column import Column, page_table
from profiler_kit.report.columns.traces import (
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
from profiler_kit.report.trace_tables import run_table_name
from profiler_kit.report.trace_tree import module_tree, names_modules
from profiler_kit.units import plural

Item = TypeVar("Item")

TOP: Final = 10
SUMMARY_TREE_LINES: Final = 14  # fits a screen with the other sections; --by module shows more
VIEW_TREE_LINES: Final = 60
SUMMARY_ROWS: Final = 5

BY_SHAPE: Final = "Operators by shape"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A trace whose tables are shown.

    - `trace`: its figures; of a run, those of the mean traced step. `recorded`: the trace with its steps.
    - `caption`: of tables that need no other one.
    - `config`: the configuration of a run; "" for an inspected trace.
    """

    trace: TraceSummary
    recorded: TraceSummary
    caption: str
    config: str = ""

    @classmethod
    def of_trace(cls, trace: TraceSummary) -> Shown:
        """An inspected trace."""
        count = plural(len(trace.working_steps), "step")
        caption = f"whole trace, {count}" if len(trace.working_steps) > 1 else "whole trace"
        if trace.outside_ns:
            caption = f"whole trace: {count}, and work outside"
        return cls(trace=trace, recorded=trace, caption=caption)

    @classmethod
    def of_run(cls, run: ConfigRun) -> Shown | None:
        """The mean traced step of `run`; None without a trace."""
        if run.traced is None or run.mean_step is None:
            return None
        caption = f"{run.config.name}, per traced step"
        return cls(trace=run.mean_step, recorded=run.traced, caption=caption, config=run.config.name)


View = Callable[[Shown, int | None, int | None], Table]


def trace_sections(shown: Shown, top: int | None, depth: int | None, *, phases: bool = True) -> Iterator[Section]:
    """All sections of an inspected trace except its header."""
    trace, brief = shown.trace, _brief(top)
    blocks = phase_blocks(shown)
    if blocks and phases:
        yield Section(title="Phases", blocks=tuple(blocks))
    if len(trace.accounts) > 1:
        yield Section(
            title="Devices", blocks=(trace_table(shown, "trace_devices", TRACE_DEVICE_COLUMNS, trace.accounts),)
        )
    yield from idle_sections(shown, top, depth)
    if names_modules(trace.modules):
        tree = _modules(shown, brief, depth, max_lines=SUMMARY_TREE_LINES)
        yield Section(title="Modules", blocks=(*charts.module_chart(trace), tree))
    yield from work_sections(shown, top, depth)


def idle_sections(shown: Shown, top: int | None, depth: int | None, *, lead: Iterable[Block] = ()) -> Iterator[Section]:
    """Idle time by cause after the blocks of `lead`, what the host does meanwhile, and the places that cost most.

    What is a small part of the time is a detail. So is idle time of a run's operators: the profiler makes most of it.
    """
    trace, brief = shown.trace, _brief(top)
    edges = trace_tables.edge_lines(trace)
    if trace.idle_ns or edges:
        is_short = trace.idle_ns < trace_tables.MIN_IDLE_SHARE * trace.span_ns and not edges
        is_detail = is_short or (shown.config != "" and (trace.clock == "host" or not trace.span_ns))
        yield Section(title="Idle time", blocks=(*lead, _idle(shown, top, depth)), detail=is_detail)
    if trace.activities:
        is_short = trace.idle_ns < trace_tables.LARGE_IDLE_SHARE * trace.span_ns
        yield Section(title="Host during idle time", blocks=(_rows(shown, "host", brief),), detail=is_short)
    if trace.sites:
        yield Section(title="Places", blocks=(_rows(shown, "place", brief),))


def work_sections(shown: Shown, top: int | None, depth: int | None) -> Iterator[Section]:
    """Kernels and operators, the host's waits, streams and steps. For a run, which has layers, all of them are details."""
    trace, brief = shown.trace, _brief(top)
    is_run, has_kernels = shown.config != "", bool(trace.kernels) and trace.clock == "device"
    modules = names_modules(trace.modules)
    if has_kernels:
        yield Section(title="Kernels by kind", blocks=(_rows(shown, "family", brief),), detail=is_run)
    if trace.operators:
        rows = top if modules or trace.clock == "host" else brief
        yield Section(title="Operators", blocks=(_rows(shown, "operator", rows),), detail=modules or is_run)
    if trace.shapes:
        yield Section(title=BY_SHAPE, blocks=(_rows(shown, "shape", brief),), detail=True)
    if has_kernels:
        yield Section(title="Kernels", blocks=(_rows(shown, "kernel", top),), detail=True)
    queue = (
        trace_sentences.queue(trace.queue) if is_run else None
    )  # of an inspected trace, the phases have this sentence
    waits = (_rows(shown, "sync", top),) if trace.syncs else ()
    if waits or queue is not None:
        blocks = (*waits, *((Paragraph(text=queue),) if queue is not None else ()))
        yield Section(title="Host waits", blocks=blocks, detail=True)
    if len(trace.streams) > 1:
        yield Section(title="Streams", blocks=(_rows(shown, "stream", top),), detail=True)
    if shown.recorded.steps:
        drawing = () if is_run else charts.step_chart(trace)
        yield Section(title="Steps", blocks=(*drawing, _rows(shown, "step", top)), detail=True)


def _brief(top: int | None) -> int | None:
    """The rows of a table in a summary, which fits a screen by default."""
    return SUMMARY_ROWS if top == TOP else top


def phase_blocks(shown: Shown) -> list[Block]:
    """The phases on both clocks, with sentences about misleading host times, waits and missing attribution."""
    trace = shown.trace
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
    return [*charts.time_chart(trace), _phases(shown, None, None), *paragraphs]


def view_sections(
    shown: Shown, by: TraceView, top: int | None, depth: int | None, *, name: str = "", of_name: str = ""
) -> Iterator[Section]:
    """The table `by`. `name`: the trace's name. `of_name`: what follows the title, where there are several traces."""
    title, view = VIEWS[by]
    table = view(shown, top, depth)
    block: Block = table if table.rows else Paragraph(text=f"{name or shown.config} has no data for this table.")
    yield Section(title=f"{title}{of_name}", blocks=(block,))
    if by == "operator" and shown.trace.shapes:
        yield Section(title=f"{BY_SHAPE}{of_name}", blocks=(_rows(shown, "shape", top),))


def trace_table(
    shown: Shown,
    name: str,
    columns: Sequence[Column[TraceItem[Item]]],
    items: Iterable[Item],
    *,
    caption: str | None = None,
    total: Item | None = None,
    after_total: Iterable[Item] = (),
) -> Table:
    """A table of the `items` of a trace, with a row for `total`, and rows that are not part of it."""
    rows = [TraceItem(shown.trace, item) for item in items]
    totals = [TraceItem(shown.trace, item) for item in (*(() if total is None else (total,)), *after_total)]
    name = run_table_name(name) if shown.config else name
    return page_table(name, shown.caption if caption is None else caption, columns, rows, totals=totals)


def _phases(shown: Shown, top: int | None, depth: int | None) -> Table:
    lines, total = trace_tables.phase_lines(shown.trace)
    steps = plural(len(shown.trace.working_steps), "step")
    caption = f"{steps}, and one row for work outside" if shown.trace.outside_ns else None
    return trace_table(shown, "trace_phases", TRACE_PHASE_COLUMNS, lines, caption=caption, total=total)


def _idle(shown: Shown, top: int | None, depth: int | None) -> Table:
    lines, total = trace_tables.idle_lines(shown.trace.idle)
    caption = "of the device" if shown.trace.clock == "device" else "of the host, between operators"
    if shown.config:
        caption = shown.caption
    return trace_table(
        shown,
        "trace_causes",
        TRACE_IDLE_COLUMNS,
        lines,
        caption=caption,
        total=total,
        after_total=trace_tables.edge_lines(shown.trace),
    )


def _modules(shown: Shown, top: int | None, depth: int | None, max_lines: int = VIEW_TREE_LINES) -> Table:
    tree = module_tree(shown.trace.modules, top=top, depth=depth, max_lines=max_lines)
    levels = f"; {tree.levels} of {tree.depth} levels" if tree.levels < tree.depth else ""
    return trace_table(shown, "trace_tree", TRACE_TREE_COLUMNS, tree.lines, caption=f"including children{levels}")


def _rows(shown: Shown, view: TraceView | _Detail, top: int | None) -> Table:
    """The first `top` rows of a table that is a list."""
    _, name, columns, items, caption = _LISTS[view]
    return trace_table(shown, name, columns, items(shown, top), caption=caption)


def _list_view(view: TraceView) -> View:
    return lambda shown, top, depth: _rows(shown, view, top)


_Detail = Literal["family", "shape"]  # tables of a summary alone
_List = tuple[str, str, Sequence[Column[TraceItem[Any]]], Callable[[Shown, int | None], Iterable[Any]], str | None]
# Title, name, columns, rows, and the caption if it is not that of the trace.
_LISTS: Final[dict[TraceView | _Detail, _List]] = {
    "operator": (
        "Operators", "trace_operators", TRACE_OPERATOR_COLUMNS,
        lambda shown, top: trace_tables.operators_by_time(shown.trace, top), None,
    ),
    "shape": (
        BY_SHAPE, "trace_shapes", TRACE_SHAPE_COLUMNS,
        lambda shown, top: shown.trace.shapes[:top], "backward joined to its forward",
    ),
    "family": (
        "Kernels by kind", "trace_families", TRACE_FAMILY_COLUMNS,
        lambda shown, top: trace_tables.families_by_time(shown.trace, top), None,
    ),
    "kernel": (
        "Kernels", "trace_kernels", TRACE_KERNEL_COLUMNS,
        lambda shown, top: trace_tables.kernels_by_time(shown.trace, top) if shown.trace.clock == "device" else (), None,
    ),
    "host": (
        "Host during idle time", "trace_host", TRACE_HOST_COLUMNS,
        lambda shown, top: shown.trace.activities[:top], None,
    ),
    "place": (
        "Places", "trace_places", TRACE_PLACE_COLUMNS,
        lambda shown, top: sorted(shown.trace.sites, key=lambda site: -site.saving.median)[:top],
        "a step without the work of a place",
    ),
    "stream": ("Streams", "trace_streams", TRACE_STREAM_COLUMNS, lambda shown, top: shown.trace.streams, None),
    "step": ("Steps", "trace_steps", TRACE_STEP_COLUMNS, lambda shown, top: shown.recorded.steps, ""),
    "sync": (
        "Host waits", "trace_syncs", TRACE_SYNC_COLUMNS,
        lambda shown, top: sorted(shown.trace.syncs, key=lambda wait: -wait.wait_ns)[:top], None,
    ),
}  # fmt: skip
VIEWS: Final[dict[TraceView, tuple[str, View]]] = {
    "phase": ("Phases", _phases),
    "module": ("Modules", _modules),
    "idle": ("Idle time", _idle),
    **{view: (_LISTS[view][0], _list_view(view)) for view in get_args(TraceView) if view in _LISTS},
}
