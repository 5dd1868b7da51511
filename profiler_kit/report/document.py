"""A report as a document: its sections and their order. The verdict and findings come first, then the figures behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, cast

from profiler_kit.records.document import Block, Document, Paragraph, Section, Table
from profiler_kit.records.inspect_options import TraceView
from profiler_kit.records.lanes import StepTimeline
from profiler_kit.records.ranks import Ranks
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.serde import dumps
from profiler_kit.report import memory, sentences, tables, trace_sections
from profiler_kit.report.charts import reports as charts
from profiler_kit.report.charts.traces import call_chart, repair_charts, timeline_chart
from profiler_kit.report.columns.column import WorkUnit, page_table
from profiler_kit.report.columns.counts import UNCOUNTED_COLUMNS
from profiler_kit.report.columns.memory import WORKSPACE_COLUMNS
from profiler_kit.report.columns.phases import PHASE_COLUMNS
from profiler_kit.report.columns.ranks import RANK_RUN_COLUMNS
from profiler_kit.report.columns.runs import RUN_COLUMNS
from profiler_kit.report.convolutions import convolution_sections
from profiler_kit.report.ops import cross_check_sections
from profiler_kit.report.origin import origin, short_path
from profiler_kit.report.rows import Layers, check_limits, layer_rows, run_by_name
from profiler_kit.report.schedules import schedule_details, schedule_section
from profiler_kit.report.tables import View, WorkTable
from profiler_kit.report.trace_ranks import ranks_section
from profiler_kit.report.trace_sections import TOP, Shown
from profiler_kit.report.trace_tables import TABLE_OF_VIEW, run_table_name
from profiler_kit.report.verdict import verdict_sections
from profiler_kit.units import text

MIN_PROFILER_SHARE: Final = 0.2  # of a step: from here on, the profiler's own time changes which rank waits
LONGEST_BASELINE = 9  # letters of a configuration's name in the title of a column


def report_document(
    report: Report,
    *,
    top: int | None = TOP,
    depth: int | None = None,
    sort: str | None = None,
    run: str | None = None,
    unit: WorkUnit = "flop",
    by: WorkTable | TraceView | None = None,
    timeline: StepTimeline | None = None,
) -> Document:
    """`report` as sections of text and tables for pages, and complete tables for CSV.

    `top`: rows of the layer and kernel tables (in a tree: children per module); None for all.
    `depth`: deeper layers are added to their parent; None for all (in a tree: as many levels as fit a screen).
    `sort`: a column's key, or ``model`` for the model's order; None sorts by time, or by FLOPs without times, and keeps trees in
    the model's order.
    `run`: the configuration of the phases and layers; None for the baseline.
    `unit`: the unit of work on pages, FLOPs or MACs; complete tables have both.
    `by`: the table of work: ``tree`` (modules including children), ``layer`` (modules excluding children), ``op``, or
    ``what-if`` (no table of work; CSV holds the what-ifs). None selects ``layer`` if there are runs, else ``tree``. A view of
    traces shows the verdict and this table of the mean traced step alone.
    `timeline`: a step of the baseline over time, for renderers that draw.

    Raises: UsageError for an unknown `sort` or `run`, or a negative `top` or `depth`.
    """
    check_limits(top, depth)
    selected = run_by_name(report, run)
    view = tables.View(report=report, run=selected, top=top, depth=depth, sort=sort, unit=unit)
    by = by or ("layer" if report.runs else "tree")
    work = _WORK.get(by)
    sections = _page(view, work, timeline) if work is not None else _view(view, cast(TraceView, by))
    return Document(
        title=f"{report.target.name} ({short_path(report.target.spec)})",
        origin=origin(_device(selected), report.created, report.tool),
        sections=tuple(sections),
        json=dumps(report),
        full=_complete_tables(report, selected, by),
    )


def _device(run: ConfigRun | None) -> str:
    environment = run.environment if run is not None else None
    return "" if environment is None else environment.device_name or environment.device


def _page(view: View, work: Callable[[View], Iterator[Section]], timeline: StepTimeline | None) -> Iterator[Section]:
    """All sections, with the table `work`."""
    report, selected, top = view.report, view.run, view.top
    shown = Shown.of_run(selected) if selected is not None else None
    yield from _opening(report, selected, view.unit)
    yield from _cost(report, view.unit, detail=selected is not None)
    yield from _configurations(report)
    yield from _ranks(report, selected, top) if selected else ()
    yield from schedule_section(report)
    yield from _phases(report, selected) if selected else ()
    if timeline:
        yield Section(title="Timeline", blocks=(*timeline_chart(timeline), *call_chart(timeline)))
        if repairs := tuple(repair_charts(timeline)):
            yield Section(title="Before and after", blocks=repairs)
    if shown and selected:
        yield from trace_sections.idle_sections(shown, top, view.depth, lead=_busy(selected))
    yield from work(view)
    yield from convolution_sections(report, selected, top)
    yield from cross_check_sections(report, top)
    yield from _roofline(report, selected)
    yield from _memory(report, selected)
    yield from _more_figures(view)
    if shown and selected:
        yield from _traced_phases(shown)
        yield from trace_sections.work_sections(shown, top, view.depth)
    yield from schedule_details(report)
    yield from _details(report, selected)


def _opening(report: Report, run: ConfigRun | None, unit: WorkUnit) -> Iterator[Section]:
    """The verdict with warnings, what to do, the findings, and the target."""
    header = sentences.header(report, run, unit)
    yield from verdict_sections(report.verdict, (line for line in header if line.role == "warning"))
    yield sentences.findings(report.findings)
    yield Section(title="Target", blocks=tuple(line for line in header if line.role != "warning"))


def _complete_tables(report: Report, run: ConfigRun | None, by: WorkTable | TraceView) -> tuple[Table, ...]:
    """All complete tables; the main one, which CSV holds, comes first."""
    mains = {"op": "ops", "what-if": "what_ifs", "idle": "idle", "phase": "phases", "rank": "rank_runs"}
    main = mains.get(by) or (run_table_name(TABLE_OF_VIEW[by]) if by in TABLE_OF_VIEW else "layers")
    return tuple(sorted(tables.data_tables(report, run), key=lambda table: table.name != main))


def _cost(report: Report, unit: WorkUnit, *, detail: bool) -> Iterator[Section]:
    table = tables.cost_table(report, unit)
    if table is not None:
        yield Section(title="Cost of one step", blocks=(table,), detail=detail)


def _configurations(report: Report) -> Iterator[Section]:
    if not report.runs:
        return
    baseline = report.baseline()
    caption = "in the running loop" if report.target.is_loop else "each in a fresh process"
    if report.target.parallel is not None:
        caption = f"each in a fresh process per rank, {report.target.parallel.text}; figures of rank 0"
    blocks: list[Block] = [_runs_table("runs", caption, report, aside=False)]
    turns = sentences.turns(report, baseline) if baseline else None
    if turns is not None:
        blocks.append(Paragraph(text=turns))
    noise = sentences.noise(report, baseline) if baseline else None
    if noise is not None:
        blocks.append(Paragraph(text=noise, detail=True))
    if report.sweep is not None:
        blocks.append(Paragraph(text=sentences.sweep(report.sweep), detail=True))
    for run in report.runs:
        if run.failure is not None:
            kind = run.failure.kind.replace("_", " ")
            blocks.append(Paragraph(text=f"{run.config.name} failed ({kind}): {run.failure.line}", role="warning"))
    yield Section(title="Configurations", blocks=(*charts.configuration_chart(report), *blocks))


def _ranks(report: Report, run: ConfigRun, top: int | None) -> Iterator[Section]:
    """The ranks of a job: times and collectives of the traced steps, timed steps and memory by rank."""
    rows = tables.rank_run_rows(report, run)
    own = page_table("rank_runs", f"{run.config.name}, timed steps", RANK_RUN_COLUMNS, rows, report)
    if report.ranks is not None and report.ranks.ranks is not None:
        section = ranks_section(report.ranks.ranks, top=top)
        yield replace(section, blocks=(*section.blocks, *_profiled_steps(report.ranks.ranks, run), own))
    elif rows:
        yield Section(title="Ranks", blocks=(own,))


def _profiled_steps(ranks: Ranks, run: ConfigRun) -> Iterator[Paragraph]:
    """A note if the traced steps of the ranks are much longer than the timed ones."""
    traced_ns, timed_ns = ranks.step_ns, run.step_ns.median if run.step_ns is not None else None
    if traced_ns is not None and timed_ns is not None and traced_ns > (1 + MIN_PROFILER_SHARE) * timed_ns:
        yield Paragraph(
            text=f"The profiler lengthens the step from {text(timed_ns, 'ns')} to {text(traced_ns, 'ns')}, because it slows the "
            "host. Idle time, waits and late ranks above are larger than without it.",
            role="note",
        )


def _runs_table(name: str, caption: str, report: Report, *, aside: bool) -> Table:
    baseline = report.baseline()
    label = baseline.config.name if baseline is not None else ""
    labels = {"baseline": label if 0 < len(label) <= LONGEST_BASELINE else "baseline"}
    return page_table(name, caption, RUN_COLUMNS, tables.run_rows(report), report, aside=aside, labels=labels)


def _phases(report: Report, run: ConfigRun) -> Iterator[Section]:
    rows, total = tables.phase_rows(run)
    if not rows:
        return
    caption = f"{run.config.name}, per step{sentences.unsynchronized(run)}"
    table = page_table("phases", caption, PHASE_COLUMNS, rows, report, totals=[total])
    yield Section(
        title="Phases", blocks=(*charts.phase_chart(run), table, Paragraph(text=sentences.clocks(run), detail=True))
    )


def _layers(view: View) -> Iterator[Section]:
    layers = layer_rows(view.report, view.run)
    aside = False if layers.timed else None  # without times all columns fit
    table = tables.layer_table(view, layers, _caption(view, layers, "per step, excluding children"), aside=aside)
    if table.rows:
        yield Section(title="Layers", blocks=(*charts.module_chart(layers), table, *_attained(view)))


def _tree(view: View) -> Iterator[Section]:
    layers = layer_rows(view.report, view.run)
    table = tables.tree_table(view, layers, _caption(view, layers, "per step, including children"))
    if table.rows:
        yield Section(title="Modules", blocks=(*charts.module_chart(layers), table, *_attained(view)))


def _caption(view: View, layers: Layers, caption: str) -> str:
    return f"{view.run.config.name}, {caption}" if view.run and layers.timed else caption


def _attained(view: View) -> Iterator[Paragraph]:
    line = view.report.roofline_of(view.run) if view.run is not None else None
    attained = sentences.attained(line, view.run) if line is not None and view.run is not None else None
    if attained is not None:
        yield Paragraph(text=attained)


def _ops(view: View) -> Iterator[Section]:
    if view.report.static is not None and view.report.static.ops:
        yield Section(title="Ops", blocks=(tables.op_table(view),))


_WORK: Final[dict[WorkTable | TraceView, Callable[[View], Iterator[Section]]]] = {
    "tree": _tree,
    "layer": _layers,
    "op": _ops,
    "what-if": lambda view: iter(()),  # what-ifs have their own section
}


def _roofline(report: Report, run: ConfigRun | None) -> Iterator[Section]:
    """The roofline of the layers and its bounds by phase; further rooflines are details."""
    name = run.config.name if run is not None else None
    lines = [line for line in report.roofline if line.config == name and line.phases]
    for i, line in enumerate(lines):
        title = "Roofline" if i == 0 else f"Roofline ({line.roof.source})"
        blocks: list[Block] = [Paragraph(text=sentence) for sentence in sentences.roofline(line)]
        blocks += [Paragraph(text=note, role="note") for note in line.notes]
        table = tables.roofline_table(line, report)
        detail = i > 0 or run is not None
        drawing = charts.roofline_chart(report, lines) if i == 0 else ()
        yield Section(title=title, blocks=(*drawing, *blocks, table), detail=detail)


def _memory(report: Report, run: ConfigRun | None) -> Iterator[Section]:
    runs = [run] if run else []
    if (table := tables.memory_table(report, runs)) is not None:
        drawing = charts.peak_chart(tables.memory_rows(report, runs))
        blocks: tuple[Block, ...] = (*drawing, table, *memory.sentences(report))
        yield Section(title="Peak memory", blocks=blocks, detail=run is not None)
    peaks = tables.peaks_table(report)
    if peaks is not None:
        yield Section(title="Predicted and measured peaks", blocks=(peaks,), detail=True)
    yield from memory.what_ifs(report)
    yield from memory.parallel(report)
    yield from memory.details(report)


def _more_figures(view: View) -> Iterator[Section]:
    """The columns set aside for details; with them the tables above would be too wide."""
    report = view.report
    layers = layer_rows(report, view.run)
    if layers.timed and report.static is not None:
        table = tables.layer_table(view, layers, "per step, excluding children", aside=True)
        yield Section(title="Layer counts", blocks=(table,), detail=True)
    if any(r.failure is None for r in report.runs):
        table = _runs_table("runs_more", "", report, aside=True)
        yield Section(title="First steps and sample counts", blocks=(table,), detail=True)


def _traced_phases(shown: Shown) -> Iterator[Section]:
    """Host and device time by phase in the traced steps."""
    if any(timing.host_ns is not None for timing in shown.trace.phases):
        table, *_ = trace_sections.view_sections(shown, "phase", None, None)
        yield replace(table, title="Host and device time by phase", detail=True)


def _busy(run: ConfigRun) -> Iterator[Paragraph]:
    sentence = sentences.idle(run)
    if sentence is not None:
        yield Paragraph(text=sentence)


def _view(view: View, by: TraceView) -> Iterator[Section]:
    """The verdict, and the table `by` of the traced steps as `inspect` has it."""
    run = view.run
    yield from verdict_sections(view.report.verdict, (), remedies=False)
    if by == "rank":
        yield from _ranks(view.report, run, None) if run is not None else ()
    elif run is not None and (shown := Shown.of_run(run)) is not None:
        yield from trace_sections.view_sections(shown, by, view.top, view.depth)
    else:
        line = "The report has no traced steps, so it has no data for this table."
        yield Section(title=trace_sections.VIEWS[by][0], blocks=(Paragraph(text=line),))


def _details(report: Report, run: ConfigRun | None) -> Iterator[Section]:
    runs = [r for r in report.runs if r.memory is not None]
    if len(runs) > 1:
        table = tables.memory_table(report, runs)
        yield Section(title="Memory by configuration", blocks=(table,) if table else (), detail=True)
    if run is not None and run.memory is not None and run.memory.ops:
        ops = page_table("workspaces", run.config.name, WORKSPACE_COLUMNS, run.memory.ops, report)
        yield Section(title="Largest workspaces", blocks=(ops,), detail=True)
    if report.static is not None and report.static.uncounted:
        uncounted = page_table("uncounted", "", UNCOUNTED_COLUMNS, report.static.uncounted, report)
        yield Section(title="Ops without a formula", blocks=(uncounted,), detail=True)
    logs = list(_logs(report))
    if logs:
        yield Section(title="Logs of failed runs", blocks=tuple(logs), detail=True)
    if run is not None and run.environment is not None:
        yield Section(title="Environment", blocks=tuple(_environment(run)), detail=True)


def _logs(report: Report) -> Iterator[Paragraph]:
    for run in report.runs:
        if run.failure is not None and run.failure.log_tail.strip():
            yield Paragraph(text=f"{run.config.name}:")
            yield Paragraph(text=run.failure.log_tail.rstrip(), role="log")


def _environment(run: ConfigRun) -> Iterator[Paragraph]:
    environment = run.environment
    if environment is None:
        return
    yield Paragraph(text=f"{sentences.place(environment)}, {environment.platform}. {sentences.steps(run)}")
    yield from sentences.flags(environment)
