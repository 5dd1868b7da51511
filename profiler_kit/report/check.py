"""Results of the gate as documents for a pull request, the verdict first."""

from __future__ import annotations

from dataclasses import replace

from profiler_kit.records.check import CheckResult, CheckResults, StepTimeCheck
from profiler_kit.records.document import Block, Document, Paragraph, Section
from profiler_kit.records.serde import dumps
from profiler_kit.records.target import inputs_text
from profiler_kit.report.columns.budgets import BUDGET_COLUMNS
from profiler_kit.report.columns.column import data_table, page_table
from profiler_kit.report.comparison import (
    TOP_LAYERS,
    checkpoint_blocks,
    complete_tables,
    group_blocks,
    layer_blocks,
)
from profiler_kit.report.origin import origin_of_sides
from profiler_kit.report.trace_comparison import note_sections
from profiler_kit.units import text


def check_document(result: CheckResult) -> Document:
    """A result of the gate for a pull-request comment: verdict, budgets, reasons, layers. Markdown below 65,536 characters."""
    compared = result.comparison
    return Document(
        title=f"{result.target}: {result.verdict}",
        sections=tuple(section for section in _sections(result) if section.blocks),
        json=dumps(result),
        origin=" · ".join(filter(None, (result.base, origin_of_sides(compared) if compared is not None else ""))),
        full=(
            data_table("budgets", BUDGET_COLUMNS, result.budgets),
            *(complete_tables(compared) if compared is not None else ()),
        ),
    )


def checks_document(results: CheckResults) -> Document:
    """The results of several targets: the verdict, then each target, those that failed first."""
    ordered = sorted(results.results, key=lambda result: result.exit_code == 0)
    summary = tuple(
        Paragraph(
            text=f"{result.name or result.target}: {result.verdict}.", role="warning" if result.exit_code else "text"
        )
        for result in ordered
    )
    sections = [Section(title="Targets", blocks=summary, is_result=True)]
    for result in ordered:
        name = result.name or result.target
        sections += [
            replace(section, title=f"{name}: {section.title}") for section in _sections(result) if section.blocks
        ]
    rows = [row for result in results.results for row in result.budgets]
    return Document(
        title=f"Check: {results.verdict}",
        sections=tuple(sections),
        json=dumps(results),
        full=(data_table("budgets", BUDGET_COLUMNS, rows),),
    )


def _sections(result: CheckResult) -> list[Section]:
    compared = result.comparison
    sections = [Section(title="Budgets", blocks=_budget_blocks(result), is_result=True)]
    if result.time is not None:
        sections.append(
            Section(title="Step time", blocks=(Paragraph(text=time_sentence(result.time)),), is_result=True)
        )
    if compared is not None:
        reasons = tuple(Paragraph(text=sentence) for sentence in compared.sentences)
        sections.append(Section(title="Why", blocks=reasons, is_result=True))
        sections.append(Section(title="Edits and affected layers", blocks=group_blocks(compared, TOP_LAYERS)))
        sections.append(Section(title="Checkpoints", blocks=checkpoint_blocks(compared)))
        sections.append(Section(title="Layers", blocks=layer_blocks(compared, None), detail=bool(compared.groups)))
    return [*sections, *note_sections((*result.notes, *(compared.notes if compared is not None else ())))]


def time_sentence(time: StepTimeCheck) -> str:
    """The measured step time in one sentence: ``+3.1 % (1.2 to 5.0 %), 8 interleaved processes a side on cpu: pass``."""
    if time.change is None or time.low is None or time.high is None:
        return f"Step time on {time.device}: {time.outcome}. {time.reason}"
    interval = f"{time.low * 100:+.1f} % to {time.high * 100:+.1f} %"
    visible = (
        f" A change of {time.smallest_visible * 100:.1f} % or more would have been seen."
        if time.smallest_visible is not None
        else ""
    )
    return (
        f"{time.outcome.upper()}: the step takes {text(time.head_ns, 'ns')} instead of {text(time.base_ns, 'ns')}, "
        f"{time.change * 100:+.1f} % ({interval}), in {time.processes} interleaved processes a side on {time.device}. "
        f"{time.allowed * 100:+.1f} % is allowed.{visible}"
    )


def _budget_blocks(result: CheckResult) -> tuple[Block, ...]:
    blocks: list[Block] = []
    compared = result.comparison
    if result.reason:
        blocks.append(Paragraph(text=f"{result.reason}.", role="warning"))
    if result.hint:
        blocks.append(Paragraph(text=f"What to do: {result.hint}.", role="note"))
    if result.renamed_from:
        blocks.append(Paragraph(text=f"Renamed from {result.renamed_from}."))
    explained = {reason.metric for reason in compared.reasons} if compared is not None else set()
    for row in result.budgets:
        if row.reason and result.status != "failed":
            blocks.append(Paragraph(text=f"{row.title}: {row.reason} ({row.where}).", role="warning"))
            if row.why and row.metric not in explained:  # the section of the comparison has the others
                blocks.append(Paragraph(text=row.why))
    if result.budgets:
        caption = "Counted for one step; a decrease never breaks a budget"
        blocks.append(page_table("budgets", caption, BUDGET_COLUMNS, result.budgets))
    if compared is not None:
        side = compared.b
        blocks.append(Paragraph(text=f"{side.spec}: {inputs_text(side.inputs)}, {side.mode}. 1 MAC = 2 FLOPs."))
    if result.accept:
        reason = ", with the reason in place of REASON" if "--accept" in result.accept else ""
        blocks.append(Paragraph(text=f"How to accept{reason}:"))
        blocks.append(Paragraph(text=result.accept, role="command"))
    return tuple(blocks)
