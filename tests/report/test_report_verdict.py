"""The first screen: verdict, what to do, findings; the same in Markdown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sample_reports import v0_h100, v1_h100

from profiler_kit.pipeline.reports import with_verdict
from profiler_kit.records.document import Document, FindingList, RemedyList, Section
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.serde import dumps, loads_report
from profiler_kit.records.verdict import RankedRemedy
from profiler_kit.render import RenderOptions, renderer_by_name
from profiler_kit.report import report_document
from profiler_kit.report.verdict import remedy_sentence

MEASURED = RankedRemedy(
    action="Set it", code="torch.backends.cudnn.benchmark = True", findings=(1, 2), status="measured", outcome="better",
    config="benchmark", gain_percent=38.0, gain_low_percent=37.0, gain_high_percent=39.0, memory="same peak",
    numerics="same error",
)  # fmt: skip
ESTIMATED = RankedRemedy(
    action="Change the layer", code="", findings=(3,), status="estimated", gain_percent=20.0, paths=("a", "b", "c")
)


def finding(title: str) -> Finding:
    return Finding(
        rule="rule", severity="high", title=title, explanation="Why.", advice=f"Advice {title}.", evidence=()
    )


def page(name: str, *remedies: RankedRemedy, detail: bool = False) -> str:
    sections = (
        Section(title="Verdict", blocks=()),
        Section(title="What to do", blocks=(RemedyList(remedies=remedies),)),
        Section(title="Findings", blocks=(FindingList(findings=tuple(map(finding, "ABC"))),)),
    )
    return renderer_by_name(name).render(
        Document(title="t", sections=sections, json="{}"), RenderOptions(detail=detail)
    )


PLAIN = replace(MEASURED, memory="", numerics="")
SLOWER = replace(PLAIN, outcome="worse", gain_percent=-5.0, gain_low_percent=-6.0, gain_high_percent=-4.0)


@pytest.mark.parametrize(
    ("remedy", "sentence"),
    [
        (MEASURED, "38.0 % less time (37.0 to 39.0 %); same peak; same error; measured."),
        (replace(PLAIN, status="tried", per_example=True), "38.0 % less time per example (37.0 to 39.0 %); tried."),
        (ESTIMATED, "in a, b, ...; at most 20.0 % of the time; not tried."),
        (replace(ESTIMATED, about="peak", paths=()), "at most 20.0 % of the peak memory; not tried."),
        (replace(ESTIMATED, gain_percent=None, paths=(), status="not tried"), "gain unknown; not tried."),
        (replace(PLAIN, outcome="same"), "no significant difference; measured."),
        (replace(PLAIN, outcome="failed", status="tried"), "failed; tried."),
        (SLOWER, "5.0 % more time (4.0 to 6.0 %); measured."),
    ],
)
def test_a_remedy_has_gain_effects_and_status(remedy: RankedRemedy, sentence: str) -> None:
    assert remedy_sentence(remedy) == sentence


def test_the_terminal_lists_the_line_to_paste_and_the_findings() -> None:
    text = page("terminal", MEASURED, ESTIMATED)
    assert "1. Set it: torch.backends.cudnn.benchmark = True\n   38.0 % less time" in text
    assert "measured. [1] [2]\n2. Change the layer\n" in text
    assert "1. [high] A" in text


def test_advice_of_the_list_is_not_repeated_below_except_in_detail() -> None:
    short = page("terminal", MEASURED)
    assert "Advice A" not in short
    assert "Advice C" in short
    assert "Advice A" in page("terminal", MEASURED, detail=True)


def test_more_remedies_than_a_screen_shows_are_counted() -> None:
    assert "2 more (--detail)" in page("terminal", *[MEASURED] * 5)
    assert "more (--detail)" not in page("terminal", *[MEASURED] * 5, detail=True)


def test_markdown_has_the_same_list() -> None:
    text = page("markdown", MEASURED, ESTIMATED)
    assert "1. **Set it**: `torch.backends.cudnn.benchmark = True`\n   38.0 % less time" in text
    assert "(findings 1, 2)\n2. **Change the layer**\n" in text
    assert "1. **high: A** (`rule`)" in text


@pytest.mark.parametrize("report", [v0_h100(), v1_h100()], ids=["v0", "v1"])
def test_the_first_screen_answers(report: Report) -> None:
    """Cost, bound, cause and remedy in the first lines; what to do and the first finding within 24 lines of 100 columns."""
    lines = renderer_by_name("terminal").render(report_document(with_verdict(report)), RenderOptions()).splitlines()
    assert lines[1].startswith("A training step takes ")
    assert lines[2].startswith("Bound by ")
    opening = " ".join(lines[:7])
    assert "Main " in opening
    assert "Best measured: torch.backends.cudnn.benchmark = True saves" in opening
    screen = lines[:24]
    assert screen.index("What to do") < screen.index("Findings")
    assert any(line.startswith("1. [high]") for line in screen)


def test_the_verdict_is_saved_with_the_report() -> None:
    report = with_verdict(v0_h100())
    assert report.verdict is not None
    assert loads_report(dumps(report), "r.json") == report
    assert with_verdict(report) is report
