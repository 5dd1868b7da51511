"""How each convolution was done, in the shown run and as configurations differ: a few rows for a screen, all as a detail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.records.document import Block, Paragraph, Section
from profiler_kit.records.paths import shown_path
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.report.columns.column import page_table
from profiler_kit.report.columns.convolutions import CHANGE_COLUMNS, CONVOLUTION_COLUMNS
from profiler_kit.report.convolution_rows import ConvolutionRow, change_rows, convolution_rows, fastest_ways, together
from profiler_kit.report.rows import TOTAL, topped
from profiler_kit.units import text

SUMMARY_PARTS: Final = 3  # on a screen; one to three of a network's parts take nearly all the time
SUMMARY_CHANGES: Final = 3
DETAIL_ROWS: Final = 60  # ResNet-50 has 159 parts; programs get all of them


def convolution_sections(report: Report, run: ConfigRun | None, top: int | None) -> Iterator[Section]:
    """The parts of `run`'s convolutions, and what other configurations change; nothing where none were recorded.

    `top` None: all rows, in the details.
    """
    rows = convolution_rows(report, run) if run is not None else []
    changes = change_rows(report)
    most = None if top is None else DETAIL_ROWS
    blocks: list[Block] = []
    if rows:
        shown = topped(rows, SUMMARY_PARTS, together)
        blocks.append(_parts_table("convolutions", _caption(report, run), shown, rows, report))
    faster = fastest_ways(report)[:SUMMARY_CHANGES]
    if faster:
        caption = "done faster by other configurations, the largest savings first"
        blocks.append(page_table("convolution_changes", caption, CHANGE_COLUMNS, faster, report))
    if blocks:
        yield Section(title="Convolutions", blocks=tuple(blocks))
    if len(rows) > SUMMARY_PARTS + 1:
        table = _parts_table("all_convolutions", _caption(report, run), topped(rows, most, together), rows, report)
        yield Section(title="All convolutions", blocks=(table,), detail=True)
    if changes:
        caption = f"{most} of {len(changes):,}, the largest differences first" if most and len(changes) > most else ""
        table = page_table("all_changes", caption, CHANGE_COLUMNS, changes[:most], report)
        yield Section(title="What changes between configurations", blocks=(table,), detail=True)
    said = _kernels(run) if run is not None else ()
    if said:
        yield Section(title="Kernels of the convolutions", blocks=said, detail=True)


def _parts_table(
    name: str, caption: str, shown: list[ConvolutionRow], rows: list[ConvolutionRow], report: Report
) -> Block:
    total = together(TOTAL, rows)
    return page_table(name, caption, CONVOLUTION_COLUMNS, shown, report, totals=[total])


def _caption(report: Report, run: ConfigRun | None) -> str:
    assert run is not None
    line = report.roofline_of(run) or report.roofline_of(report.baseline())
    peaks = f"; peaks {'measured' if line.roof.source == 'measured' else 'by datasheet'}" if line is not None else ""
    return f"{run.config.name}, per step, each part in turn{peaks}"


def _kernels(run: ConfigRun) -> tuple[Paragraph, ...]:
    """The names of the kernels behind the words, which are too long for a column."""
    longest = sorted(run.convolutions, key=lambda timing: -timing.kernel_ns)[:SUMMARY_PARTS]
    return tuple(
        Paragraph(text=f"{shown_path(one.path)} {one.part}, {text(one.kernel_ns, 'ns')}: {one.kernel}")
        for one in longest
    )
