"""A report as a document: what is shown, in which order. Findings come first, everything else is what they rest on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from profiler_kit.records.document import Block, Document, Paragraph, Section, Table
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.serde import dumps
from profiler_kit.report import memory, sentences, tables, trace_words
from profiler_kit.report.columns.column import WorkUnit, page_table
from profiler_kit.report.columns.counts import UNCOUNTED_COLUMNS
from profiler_kit.report.columns.memory import WORKSPACE_COLUMNS
from profiler_kit.report.columns.phases import KERNEL_COLUMNS, PHASE_COLUMNS
from profiler_kit.report.columns.runs import RUN_COLUMNS
from profiler_kit.report.columns.waits import IDLE_COLUMNS, WAIT_COLUMNS
from profiler_kit.report.convolutions import convolution_sections
from profiler_kit.report.cross_check import cross_check_sections
from profiler_kit.report.rows import Layers, check_limits, chosen_run, layer_rows
from profiler_kit.report.schedules import schedule_details, schedule_section
from profiler_kit.report.tables import By, View
from profiler_kit.report.trace_tables import LITTLE_IDLE

TOP_LAYERS = 10
CONFIGURATIONS = "each in a fresh process; f/l/b/o: forward, loss, backward, optimizer"


def report_document(
    report: Report,
    *,
    top: int | None = TOP_LAYERS,
    depth: int | None = None,
    sort: str | None = None,
    run: str | None = None,
    unit: WorkUnit = "flop",
    by: By | None = None,
) -> Document:
    """`report` as sections of text and tables, and whole tables for programs.

    `by`: work by module, as a ``tree`` with totals at every level or as ``layer``s of own figures, or by ``op`` (None: layers
    where something ran, else the tree); ``what-if``: no table of work, and in CSV the answers about memory. `top`: rows of
    the layer and kernel tables (in a tree: children of one module), None for all; `depth`: layers below it are added into
    their parent (None: all; in a tree as many levels as fit a screen);
    `sort`: a column's key, or ``model`` for the model's own order (None: by time, or FLOPs if there is no time; trees in the
    model's order); `run`: the configuration whose phases and layers are shown (None: the baseline); `unit`: whether tables for
    people show work as FLOPs, or as MACs alone (tables for programs hold both).

    Raises UsageError for an unknown `sort` or `run`, or a negative `top` or `depth`.
    """
    check_limits(top, depth)
    shown = chosen_run(report, run)
    view = tables.View(report=report, run=shown, top=top, depth=depth, sort=sort, unit=unit)
    by = by or ("layer" if report.runs else "tree")
    sections = [
        Section(title="Target", blocks=sentences.header(report, shown, unit)),
        sentences.findings(report.findings),
        *_cost(report, unit, detail=shown is not None),
        *_configurations(report),
        *schedule_section(report),
        *(_phases(report, shown) if shown else ()),
        *(_idle(report, shown) if shown else ()),
        *_WORK[by](view),
        *convolution_sections(report, shown, top),
        *cross_check_sections(report, top),
        *_roofline(report, shown),
        *_memory(report, shown),
        *_more_figures(view),
        *(_kernels(report, shown, top) if shown else ()),
        *(_waits(report, shown, top) if shown else ()),
        *schedule_details(report),
        *_details(report, shown),
    ]
    return Document(
        title=f"{report.target.name} ({report.target.spec})",
        sections=tuple(sections),
        json=dumps(report),
        full=_whole_tables(report, shown, by),
    )


def _whole_tables(report: Report, run: ConfigRun | None, by: By) -> tuple[Table, ...]:
    """All tables, first the one that the page is about: it is what a CSV file holds."""
    main = {"op": "ops", "what-if": "what_ifs"}.get(by, "layers")
    return tuple(sorted(tables.data_tables(report, run), key=lambda table: table.name != main))


def _cost(report: Report, unit: WorkUnit, *, detail: bool) -> Iterator[Section]:
    table = tables.cost_table(report, unit)
    if table is not None:
        yield Section(title="Cost of one step", blocks=(table,), detail=detail)


def _configurations(report: Report) -> Iterator[Section]:
    if not report.runs:
        return
    blocks: list[Block] = [
        page_table("runs", CONFIGURATIONS, RUN_COLUMNS, tables.run_rows(report), report, aside=False)
    ]
    baseline = report.baseline()
    noise = sentences.noise(report, baseline) if baseline else None
    if noise is not None:
        blocks.append(Paragraph(text=noise, detail=True))
    if report.sweep is not None:
        blocks.append(Paragraph(text=sentences.sweep(report.sweep), detail=True))
    for run in report.runs:
        if run.failure is not None:
            message = " ".join(run.failure.message.split())
            kind = run.failure.kind.replace("_", " ")
            blocks.append(Paragraph(text=f"{run.config.name} failed ({kind}): {message}", role="warning"))
    yield Section(title="Configurations", blocks=tuple(blocks))


def _phases(report: Report, run: ConfigRun) -> Iterator[Section]:
    rows, total = tables.phase_rows(run)
    if not rows:
        return
    caption = f"{run.config.name}, per step{sentences.unsynchronised(run)}"
    table = page_table("phases", caption, PHASE_COLUMNS, rows, report, totals=[total], aside=False)
    yield Section(title="Phases", blocks=(table, Paragraph(text=sentences.clocks(run), detail=True)))


def _layers(view: View) -> Iterator[Section]:
    layers = layer_rows(view.report, view.run)
    aside = False if layers.timed else None  # without times there is room for all
    table = tables.layer_table(view, layers, _caption(view, layers, "per step, own figures"), aside=aside)
    if table.rows:
        yield Section(title="Layers", blocks=(table, *_attained(view)))


def _tree(view: View) -> Iterator[Section]:
    layers = layer_rows(view.report, view.run)
    table = tables.tree_table(view, layers, _caption(view, layers, "per step, each module with all below it"))
    if table.rows:
        yield Section(title="Modules", blocks=(table, *_attained(view)))


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


_WORK: Final[dict[By, Callable[[View], Iterator[Section]]]] = {
    "tree": _tree,
    "layer": _layers,
    "op": _ops,
    "what-if": lambda view: iter(()),  # the answers have a section of their own
}


def _roofline(report: Report, run: ConfigRun | None) -> Iterator[Section]:
    """The roof that layers are held against, and the phases' floors under it; further roofs in the details."""
    name = run.config.name if run is not None else None
    lines = [line for line in report.roofline if line.config == name and line.phases]
    for i, line in enumerate(lines):
        title = "Roofline" if i == 0 else f"Roofline by {line.roof.source}"
        blocks: list[Block] = [Paragraph(text=sentence) for sentence in sentences.roofline(line)]
        blocks += [Paragraph(text=note, role="note") for note in line.notes]
        table = tables.roof_table(line, report)
        detail = i > 0 or run is not None
        yield Section(title=title, blocks=(*blocks, table), detail=detail)


def _memory(report: Report, run: ConfigRun | None) -> Iterator[Section]:
    table = tables.memory_table(report, [run] if run else [])
    if table is not None:
        yield Section(title="Memory at the peak", blocks=(table, *memory.sentences(report)), detail=run is not None)
    peaks = tables.peaks_table(report)
    if peaks is not None:
        yield Section(title="Predicted and measured peaks", blocks=(peaks,), detail=True)
    yield from memory.what_ifs(report)
    yield from memory.details(report)


def _more_figures(view: View) -> Iterator[Section]:
    """The columns set aside: they would make the tables above too wide for a page."""
    report = view.report
    layers = layer_rows(report, view.run)
    if layers.timed and report.static is not None:
        table = tables.layer_table(view, layers, "per step, own figures", aside=True)
        yield Section(title="Layer counts", blocks=(table,), detail=True)
    if any(r.failure is None for r in report.runs):
        rows = tables.run_rows(report)
        table = page_table("runs_more", "", RUN_COLUMNS, rows, report, aside=True)
        yield Section(title="First steps and samples", blocks=(table,), detail=True)


def _kernels(report: Report, run: ConfigRun, top: int | None) -> Iterator[Section]:
    if not run.kernels:
        return
    rows = tables.kernel_rows(run, top)
    table = page_table("kernels", f"{run.config.name}, per step", KERNEL_COLUMNS, rows, report)
    yield Section(title="Operators" if run.clock == "operator" else "Kernels", blocks=(table,), detail=True)


def _idle(report: Report, run: ConfigRun) -> Iterator[Section]:
    """What the traced steps waited for; on the page itself where the device waits for much of a step."""
    rows, total = tables.idle_rows(run)
    if rows:
        caption = f"{run.config.name}, per step"
        table = page_table("idle", caption, IDLE_COLUMNS, rows, report, totals=[total])
        sentence = sentences.idle(run)
        about = (Paragraph(text=sentence),) if sentence is not None else ()
        little = total.item.ns < LITTLE_IDLE * (run.span_ns or 0)
        detail = run.clock != "kernel" or run.span_ns is None or little
        yield Section(title="Idle time", blocks=(*about, table), detail=detail)


def _waits(report: Report, run: ConfigRun, top: int | None) -> Iterator[Section]:
    """The host's clock beside the device's in the traced steps, and where the host waited."""
    phases, total = tables.phase_rows(run)
    if any(row.timing.host_ns is not None for row in phases):
        caption = f"{run.config.name}, per traced step"
        table = page_table("traced_phases", caption, PHASE_COLUMNS, phases, report, totals=[total], aside=True)
        yield Section(title="Host and device by phase", blocks=(table,), detail=True)
    rows = tables.wait_rows(run, top)
    launches = trace_words.queue(run.queue)
    if rows or launches is not None:
        caption = f"{run.config.name}, per traced step"
        blocks: list[Block] = []
        if rows:
            blocks.append(page_table("waits", caption, WAIT_COLUMNS, rows, report))
        if launches is not None:
            blocks.append(Paragraph(text=launches))
        yield Section(title="Waits of the host", blocks=tuple(blocks), detail=True)


def _details(report: Report, run: ConfigRun | None) -> Iterator[Section]:
    others = [r for r in report.runs if r.memory is not None]
    if len(others) > 1:
        table = tables.memory_table(report, others)
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
    yield from sentences.flags(environment, "had")
