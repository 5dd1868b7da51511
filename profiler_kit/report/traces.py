"""Inspected traces as a document: findings first, then what they rest on."""

from __future__ import annotations

from profiler_kit.records.document import Block, Document, FindingList, Paragraph, Section
from profiler_kit.records.serde import dumps
from profiler_kit.records.traces import TraceReport, TraceView


def traces_document(
    report: TraceReport, *, top: int | None = 10, depth: int | None = None, by: TraceView | None = None
) -> Document:
    """`report` as sections of text and tables, and whole tables for programs."""
    blocks: tuple[Block, ...] = (
        (FindingList(findings=report.findings),) if report.findings else (Paragraph(text="None."),)
    )
    return Document(
        title=", ".join(trace.file for trace in report.traces),
        sections=(Section(title="Findings", blocks=blocks),),
        json=dumps(report),
    )
