"""The sections of convolutions: algorithm and time of each part, and changes between configurations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.records.document import Block, Paragraph, Section
from profiler_kit.records.paths import shown_path
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.report.columns.column import page_table
from profiler_kit.report.columns.convolutions import CHANGE_COLUMNS, CONVOLUTION_COLUMNS
from profiler_kit.report.convolution_rows import (
    ConvolutionRow,
    change_rows,
    convolution_rows,
    fastest_changes,
    merge_convolutions,
)
from profiler_kit.report.rows import TOTAL, limit_rows
from profiler_kit.units import text

SUMMARY_PARTS: Final = 3  # one to three parts usually take nearly all the time
SUMMARY_CHANGES: Final = 3
MAX_DETAIL_ROWS: Final = 60  # ResNet-50 has 159 parts; CSV has all of them


def convolution_sections(report: Report, run: ConfigRun | None, top: int | None) -> Iterator[Section]:
    """The parts of `run`'s convolutions, and their changes in other configurations; empty without recorded convolutions.

    `top`: None for all rows in the details.
    """
    rows = convolution_rows(report, run) if run is not None else []
    changes = change_rows(report)
    max_rows = None if top is None else MAX_DETAIL_ROWS
    blocks: list[Block] = []
    if rows:
        longest = limit_rows(rows, SUMMARY_PARTS, merge_convolutions)
        blocks.append(_parts_table("convolutions", _caption(report, run), longest, rows, report))
    faster = fastest_changes(report)[:SUMMARY_CHANGES]
    if faster:
        caption = "Faster in another configuration, largest saving first"
        blocks.append(page_table("convolution_changes", caption, CHANGE_COLUMNS, faster, report))
    if blocks:
        yield Section(title="Convolutions", blocks=tuple(blocks))
    if len(rows) > SUMMARY_PARTS + 1:
        limited = limit_rows(rows, max_rows, merge_convolutions)
        table = _parts_table("all_convolutions", _caption(report, run), limited, rows, report)
        yield Section(title="All convolutions", blocks=(table,), detail=True)
    if changes:
        is_limited = max_rows is not None and len(changes) > max_rows
        caption = f"{max_rows} of {len(changes):,}, largest difference first" if is_limited else ""
        table = page_table("all_changes", caption, CHANGE_COLUMNS, changes[:max_rows], report)
        yield Section(title="Convolution changes between configurations", blocks=(table,), detail=True)
    kernels = _kernels(run) if run is not None else ()
    if kernels:
        yield Section(title="Kernels of the convolutions", blocks=kernels, detail=True)


def _parts_table(
    name: str, caption: str, visible: list[ConvolutionRow], rows: list[ConvolutionRow], report: Report
) -> Block:
    total = merge_convolutions(TOTAL, rows)
    return page_table(name, caption, CONVOLUTION_COLUMNS, visible, report, totals=[total])


def _caption(report: Report, run: ConfigRun | None) -> str:
    assert run is not None
    line = report.roofline_of(run) or report.roofline_of(report.baseline())
    peaks = f"; {line.roof.source} peaks" if line is not None else ""
    return f"{run.config.name}, per step, each part measured separately{peaks}"


def _kernels(run: ConfigRun) -> tuple[Paragraph, ...]:
    """The longest kernels by their full names, which do not fit a column."""
    longest = sorted(run.convolutions, key=lambda timing: -timing.kernel_ns)[:SUMMARY_PARTS]
    return tuple(
        Paragraph(text=f"{shown_path(timing.path)} {timing.part}, {text(timing.kernel_ns, 'ns')}: {timing.kernel}")
        for timing in longest
    )
