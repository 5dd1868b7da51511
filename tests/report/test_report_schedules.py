"""Runs over changing shapes as sections and tables."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sample_reports import scheduled, v0_cuda

from profiler_kit.records.document import Document, Paragraph, Section, Table
from profiler_kit.records.report import Report
from profiler_kit.records.serde import dumps, loads_report
from profiler_kit.report import report_document

TITLE, DETAIL = "Changing shapes", "Steps by shape"


def section(document: Document, title: str) -> Section:
    return next(s for s in document.sections if s.title == title)


def table(document: Document, title: str) -> list[dict[str, object]]:
    (result,) = [block for block in section(document, title).blocks if isinstance(block, Table)]
    return [dict(zip((head.key for head in result.heads), row, strict=True)) for row in result.rows]


def said(report: Report, role: str = "text") -> list[str]:
    blocks = section(report_document(report), TITLE).blocks
    return [block.text for block in blocks if isinstance(block, Paragraph) and block.role == role]


def test_configurations_stand_side_by_side() -> None:
    default, benchmark = table(report_document(scheduled()), TITLE)
    assert (default["config"], default["shapes"], default["steps"]) == ("default", 3, 12)
    # 80 ms for a new 256x256, by area; the smaller batch takes as long as the step before it
    assert default["cycle_1_ns"] == 80_000_000 + 45_000_000 + 2 * 125_000_000
    assert default["new_ns"] == 80_000_000
    assert default["seen_ns"] == default["new_ns"] * 26 / 80  # type: ignore[operator]
    assert default["last_batch_ns"] == 125_000_000
    assert benchmark["cycle_1_ns"] is None  # it broke off
    assert benchmark["seen_ns"] is None


def test_what_was_run_and_why_it_broke_off_is_said() -> None:
    (sentence,) = said(scheduled())
    assert sentence.startswith("3 shapes, generated")
    assert "from 8x3x192x192 to 8x3x320x320. 3 cycles" in sentence
    assert sentence.endswith("4x3x320x320.")
    (warning,) = said(scheduled(), "warning")
    assert warning.startswith("benchmark stopped after 2 steps: 8x3x320x320: it does not fit")
    assert said(scheduled(), "note") == ["x changes, mask with it."]


def test_each_shape_has_a_row_per_configuration_below_each_other() -> None:
    rows = table(report_document(scheduled()), DETAIL)
    assert [(row["shape"], row["config"]) for row in rows[:3]] == [
        ("8x3x256x256", "default"), ("8x3x256x256", "benchmark"), ("8x3x192x192", "default"),
    ]  # fmt: skip
    assert rows[0]["factor"] == pytest.approx(80 / 26)


def test_tables_for_programs_hold_every_schedule_and_shape() -> None:
    report = scheduled()
    full = {t.name: t for t in report_document(report).full}
    assert len(full["schedules"].rows) == 2
    assert len(full["shapes"].rows) == 4 + 2
    heads = [head.key for head in full["schedules"].heads]
    totals = [row[heads.index("total_ns")] for row in full["schedules"].rows]
    assert totals == [sum(step.ns for step in schedule.steps) for schedule in report.schedules]


def test_nothing_is_shown_where_nothing_was_run() -> None:
    titles = [s.title for s in report_document(v0_cuda()).sections]
    assert TITLE not in titles
    assert DETAIL not in titles


def test_a_schedule_that_never_began_is_a_sentence() -> None:
    report = scheduled()
    broken = replace(report, schedules=(replace(report.schedules[1], steps=(), failure="no such\nfile"),))
    (block,) = section(report_document(broken), TITLE).blocks
    assert isinstance(block, Paragraph)
    assert block.text == "benchmark stopped after 0 steps: no such file"
    assert DETAIL not in [s.title for s in report_document(broken).sections]


def test_a_recorded_schedule_names_its_file_and_has_one_cycle() -> None:
    report = scheduled()
    first = tuple(step for step in report.schedules[0].steps if step.cycle == 1 and not step.last_batch)
    recorded = replace(report.schedules[0], source="seen.txt", steps=first)
    (sentence,) = said(replace(report, schedules=(recorded,)))
    assert sentence == "3 shapes, recorded in seen.txt, from 8x3x192x192 to 8x3x320x320."
    (row,) = table(report_document(replace(report, schedules=(recorded,))), TITLE)
    assert "cycle_2_ns" not in row


def test_schedules_come_back_from_json() -> None:
    report = scheduled()
    assert loads_report(dumps(report), "x").schedules == report.schedules
