"""One finding as a document: the finding in full, and the rows of the report behind it, selected by its claims and paths."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from profiler_kit.errors import UsageError
from profiler_kit.records.claims import PEAK, Claim, Kind
from profiler_kit.records.counts import is_inside
from profiler_kit.records.document import Document, FindingList, Paragraph, Section, Table
from profiler_kit.records.report import Finding, Report, TraceReport
from profiler_kit.records.serde import to_json
from profiler_kit.records.sums import sum_fields
from profiler_kit.records.traces import TraceKernel, TraceOperator, TraceSummary
from profiler_kit.report import tables, trace_tables
from profiler_kit.report.columns.column import Column, page_table
from profiler_kit.report.columns.convolutions import CONVOLUTION_COLUMNS
from profiler_kit.report.columns.layers import LAYER_COLUMNS
from profiler_kit.report.columns.phases import PHASE_COLUMNS
from profiler_kit.report.columns.runs import RUN_COLUMNS
from profiler_kit.report.columns.traces import (
    TRACE_IDLE_COLUMNS,
    TRACE_KERNEL_COLUMNS,
    TRACE_MODULE_COLUMNS,
    TRACE_OPERATOR_COLUMNS,
    TRACE_PHASE_COLUMNS,
    TRACE_SYNC_COLUMNS,
    TraceItem,
)
from profiler_kit.report.convolution_rows import convolution_rows
from profiler_kit.report.rows import layer_rows
from profiler_kit.report.trace_ranks import ranks_section
from profiler_kit.report.trace_sections import Shown, trace_table

ROWS: Final = 10
MAX_TRACES: Final = 3

Columns = Sequence[Column[TraceItem[Any]]]


@dataclass(frozen=True, slots=True)
class _Selection:
    """The parts of the step that a finding is about, from its claims and paths."""

    claims: tuple[Claim, ...]
    modules: frozenset[str]

    @classmethod
    def of(cls, finding: Finding) -> _Selection:
        """The parts that `finding` claims."""
        selection = cls(finding.claims, frozenset(finding.paths))
        return replace(selection, modules=selection.modules | selection.names("module"))

    @property
    def has_idle(self) -> bool:
        return any(claim.pool in ("idle", "host") for claim in self.claims)

    @property
    def has_busy(self) -> bool:
        return any(claim.pool == "busy" for claim in self.claims)

    def names(self, kind: Kind) -> frozenset[str]:
        """The names of the claimed parts of this kind."""
        return frozenset(claim.name for claim in self.claims if claim.kind == kind)

    def has(self, kind: Kind, name: str) -> bool:
        """Whether the cause, phase or kernel called `name` belongs to the selection."""
        return any(claim.covers(kind, name) for claim in self.claims)

    def has_module(self, path: str) -> bool:
        """Whether the module at `path`, or one that contains it, is named."""
        return any(is_inside(path, module) for module in self.modules)


def finding_document(report: Report | TraceReport, number: int) -> Document:
    """Finding `number` of `report`, counted from 1, with the rows behind it.

    Raises: UsageError if the report has no finding of that number.
    """
    if not 1 <= number <= len(report.findings):
        raise _no_such_finding(report, number)
    finding = report.findings[number - 1]
    selection = _Selection.of(finding)
    rows = (
        _target_tables(report, finding, selection)
        if isinstance(report, Report)
        else _traces(report, finding, selection)
    )
    sections = [section for section in rows if section.blocks]
    if not sections:
        note = Paragraph(text="The finding names no rows of the report: its figures are the evidence above.")
        sections = [Section(title="Rows", blocks=(note,))]
    block = FindingList(findings=(finding,), first=number, full=True)
    full = tuple(block for section in sections for block in section.blocks if isinstance(block, Table))
    return Document(
        title=f"Finding {number} of {len(report.findings)}",
        sections=(Section(title="Finding", blocks=(block,)), *sections),
        json=json.dumps(to_json(finding), indent=1, ensure_ascii=False) + "\n",
        full=full,
    )


def _no_such_finding(report: Report | TraceReport, number: int) -> UsageError:
    count = len(report.findings)
    if not count:
        return UsageError(f"no finding {number}: the report has no findings", hint="omit --finding")
    numbers = "one finding" if count == 1 else f"findings 1 to {count}"
    return UsageError(f"no finding {number}: the report has {numbers}", hint=f"use --finding {count}")


def _section(title: str, table: Table) -> Iterator[Section]:
    if table.rows:
        yield Section(title=title, blocks=(table,))


def _target_tables(report: Report, finding: Finding, selection: _Selection) -> Iterator[Section]:
    """The configurations, layers, phases, kernels, idle causes, waits and memory behind a finding of a target report."""
    configs = {evidence.where for evidence in finding.evidence} | {finding.config, *finding.tries}
    runs = [row for row in tables.run_rows(report) if row.run.config.name in configs]
    if finding.config is not None and runs:
        baseline = report.baseline()
        runs = [row for row in tables.run_rows(report) if row in runs or row.run is baseline]
    yield from _section(
        "Configurations",
        page_table("runs", "", RUN_COLUMNS, runs, report, aside=False, labels={"baseline": "baseline"}),
    )
    run = report.baseline()
    layers = [row for row in layer_rows(report, run).rows if selection.has_module(row.path) and not row.is_empty]
    yield from _section("Layers", page_table("layers", "per step, excluding children", LAYER_COLUMNS, layers, report))
    if run is None:
        return
    caption = f"{run.config.name}, per step"
    phases = [row for row in tables.phase_rows(run)[0] if selection.has("phase", row.label)]
    yield from _section("Phases", page_table("phases", caption, PHASE_COLUMNS, phases, report))
    parts = [
        row for row in convolution_rows(report, run) if row.timing is not None and selection.has_module(row.timing.path)
    ]
    yield from _section("Convolutions", page_table("convolutions", caption, CONVOLUTION_COLUMNS, parts, report))
    if (shown := Shown.of_run(run)) is not None:
        yield from _traced(shown, selection)
    if PEAK in selection.claims and (memory := tables.memory_table(report, report.runs)) is not None:
        yield from _section("Peak memory", memory)


def _traces(report: TraceReport, finding: Finding, selection: _Selection) -> Iterator[Section]:
    """The rows of the traces that the finding names, or of the first traces."""
    where = [evidence.where for evidence in finding.evidence]
    named = [trace for trace in report.traces if any(report.name(trace) in name for name in where)]
    if report.ranks is not None:
        yield replace(ranks_section(report.ranks, top=ROWS), detail=False)
    for trace in (named or report.traces)[:MAX_TRACES]:
        of = f" of {report.name(trace)}" if len(report.traces) > 1 else ""
        shown = Shown.of_trace(trace)
        for section in (*_work(shown, selection), *_traced(shown, selection)):
            yield Section(title=f"{section.title}{of}", blocks=section.blocks)


def _work(shown: Shown, selection: _Selection) -> Iterator[Section]:
    """The phases and modules behind a finding of a trace. A target report has its own tables of them."""
    trace = shown.trace
    phases = [line for line in trace_tables.phase_lines(trace)[0] if selection.has("phase", line.label)]
    yield from _section("Phases", trace_table(shown, "trace_phases", TRACE_PHASE_COLUMNS, phases))
    in_phase = selection.names("phase") if not selection.modules else frozenset[str]()
    modules = [item for item in trace.modules if selection.has_module(item.path) or item.phase in in_phase]
    modules.sort(key=lambda item: -item.kernel_ns)
    yield from _section("Modules", trace_table(shown, "trace_modules", TRACE_MODULE_COLUMNS, modules[:ROWS]))


def _traced(shown: Shown, selection: _Selection) -> Iterator[Section]:
    """The kernels, operators, idle causes and waits behind a finding, of a trace or of the mean traced step of a run."""
    trace = shown.trace

    def section(title: str, name: str, columns: Columns, items: Iterable[Any]) -> Iterator[Section]:
        return _section(title, trace_table(shown, name, columns, items))

    work, has_parts = (
        _kernels(trace, selection),
        bool(selection.modules or selection.names("phase") or selection.names("kernel")),
    )
    if trace.clock == "device":
        yield from section("Kernels", "trace_kernels", TRACE_KERNEL_COLUMNS, work)
    if not has_parts and (selection.has_busy or (selection.has_idle and trace.clock == "host")):
        work = trace_tables.operators_by_time(trace, None)[:ROWS]
    if trace.clock == "host" or not has_parts:
        yield from section("Operators", "trace_operators", TRACE_OPERATOR_COLUMNS, work)
    idle = [line for line in trace_tables.idle_lines(trace.idle)[0] if selection.has("cause", line.cause)]
    yield from section("Idle time", "trace_causes", TRACE_IDLE_COLUMNS, idle)
    if selection.has_idle:
        waits = sorted(trace.syncs, key=lambda wait: -wait.wait_ns)[:ROWS]
        yield from section("Host waits", "trace_syncs", TRACE_SYNC_COLUMNS, waits)


def _kernels(trace: TraceSummary, selection: _Selection) -> Sequence[TraceKernel | TraceOperator]:
    """The selected kernels (on the host's clock: operators), and those of the selected modules and phases, longest first."""
    on_device = trace.clock == "device"
    whole: Sequence[TraceKernel | TraceOperator] = trace.kernels if on_device else trace.operators
    work = {kernel.name: kernel for kernel in whole if selection.has("kernel", kernel.name)}
    of_modules: defaultdict[str, list[TraceKernel]] = defaultdict(list)
    for module in trace.modules:
        if selection.has_module(module.path) or selection.has("phase", module.phase):
            for kernel in module.kernels:
                of_modules[kernel.name].append(kernel)
    for name, kernels in of_modules.items():
        kernel = sum_fields(kernels, "calls", "kernel_ns")
        family, calls, ns = kernel.family, kernel.calls, kernel.kernel_ns
        operator = TraceOperator(name=name, family=family, calls=calls, kernel_ns=ns, host_self_ns=ns)
        work.setdefault(name, kernel if on_device else operator)
    return sorted(work.values(), key=lambda kernel: (-kernel.kernel_ns, kernel.name))[:ROWS]
