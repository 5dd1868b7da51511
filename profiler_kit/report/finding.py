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
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.serde import to_json
from profiler_kit.records.sums import sum_fields
from profiler_kit.records.traces import KernelStat, TraceSummary
from profiler_kit.report import tables, trace_tables
from profiler_kit.report.columns.column import Column, page_table
from profiler_kit.report.columns.convolutions import CONVOLUTION_COLUMNS
from profiler_kit.report.columns.layers import LAYER_COLUMNS
from profiler_kit.report.columns.phases import IDLE_COLUMNS, KERNEL_COLUMNS, PHASE_COLUMNS, WAIT_COLUMNS, KernelRow
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

ROWS: Final = 10
MAX_TRACES: Final = 3


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
    yield from _section("Kernels", page_table("kernels", caption, KERNEL_COLUMNS, _run_kernels(run, selection), report))
    parts = [
        row for row in convolution_rows(report, run) if row.timing is not None and selection.has_module(row.timing.path)
    ]
    yield from _section("Convolutions", page_table("convolutions", caption, CONVOLUTION_COLUMNS, parts, report))
    idle = [row for row in tables.idle_rows(run)[0] if selection.has("cause", row.item.cause)]
    yield from _section("Idle time", page_table("idle", caption, IDLE_COLUMNS, idle, report))
    waits = tables.wait_rows(run, ROWS) if selection.has_idle else []
    yield from _section("Host waits", page_table("waits", caption, WAIT_COLUMNS, waits, report))
    if PEAK in selection.claims and (memory := tables.memory_table(report, report.runs)) is not None:
        yield from _section("Peak memory", memory)


def _run_kernels(run: ConfigRun, selection: _Selection) -> list[KernelRow]:
    """The kernels of the selected layers and phases, or the selected kernels, longest first."""
    selected: defaultdict[str, list[KernelStat]] = defaultdict(list)
    for layer in run.modules:
        is_selected = selection.has_module(layer.path) or selection.has("phase", layer.phase)
        for kernel in layer.kernels:
            if is_selected or selection.has("kernel", kernel.name):
                selected[kernel.name].append(kernel)
    merged = [sum_fields(kernels, "calls", "kernel_ns") for kernels in selected.values()]
    merged.sort(key=lambda kernel: (-kernel.kernel_ns, kernel.name))
    return [KernelRow(config=run.config.name, kernel=kernel, device_ns=run.device_ns) for kernel in merged[:ROWS]]


def _traces(report: TraceReport, finding: Finding, selection: _Selection) -> Iterator[Section]:
    """The rows of the traces that the finding names, or of the first traces."""
    where = [evidence.where for evidence in finding.evidence]
    named = [trace for trace in report.traces if any(report.name(trace) in name for name in where)]
    if report.ranks is not None:
        yield replace(ranks_section(report.ranks, top=ROWS), detail=False)
    for trace in (named or report.traces)[:MAX_TRACES]:
        of = f" of {report.name(trace)}" if len(report.traces) > 1 else ""
        for section in _trace_tables(trace, selection):
            yield Section(title=f"{section.title}{of}", blocks=section.blocks)


def _trace_tables(trace: TraceSummary, selection: _Selection) -> Iterator[Section]:
    def table(name: str, columns: Sequence[Column[TraceItem[Any]]], items: Iterable[Any]) -> Table:
        return page_table(name, "whole trace", columns, [TraceItem(trace, item) for item in items])

    phases = [line for line in trace_tables.phase_lines(trace)[0] if selection.has("phase", line.label)]
    yield from _section("Phases", table("trace_phases", TRACE_PHASE_COLUMNS, phases))
    idle = [line for line in trace_tables.idle_lines(trace.idle)[0] if selection.has("cause", line.cause)]
    yield from _section("Idle time", table("trace_causes", TRACE_IDLE_COLUMNS, idle))
    in_phase = selection.names("phase") if not selection.modules else frozenset[str]()
    modules = [item for item in trace.modules if selection.has_module(item.path) or item.phase in in_phase]
    modules.sort(key=lambda item: -item.kernel_ns)
    yield from _section("Modules", table("trace_modules", TRACE_MODULE_COLUMNS, modules[:ROWS]))
    kernels = [item for item in trace_tables.kernels_by_time(trace, None) if selection.has("kernel", item.name)][:ROWS]
    if trace.clock == "device":
        yield from _section("Kernels", table("trace_kernels", TRACE_KERNEL_COLUMNS, kernels))
    if selection.has_busy or (selection.has_idle and trace.clock == "host"):
        operators = trace_tables.operators_by_time(trace, None)[:ROWS]
        if not (selection.modules or selection.names("phase") or selection.names("kernel")):
            yield from _section("Operators", table("trace_operators", TRACE_OPERATOR_COLUMNS, operators))
    if selection.has_idle:
        waits = sorted(trace.syncs, key=lambda wait: -wait.wait_ns)[:ROWS]
        yield from _section("Host waits", table("trace_syncs", TRACE_SYNC_COLUMNS, waits))
