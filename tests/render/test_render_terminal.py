"""The terminal: fits the width, cuts no number, obeys nobody's escape codes."""

from __future__ import annotations

import re
import string
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_reports import hostile, transformer, v0_cuda, v0_h100, v1_h100

from profiler_kit.pipeline.reports import with_verdict
from profiler_kit.records.document import Document, FindingList, Head, Paragraph, Section, Table, Value
from profiler_kit.records.report import Report
from profiler_kit.render import RenderOptions, renderer_by_name
from profiler_kit.render._fit import READABLE_NAME, display_width, fit, shorten
from profiler_kit.render._text import cell, first_sentence
from profiler_kit.render.terminal import SUMMARY_FINDINGS
from profiler_kit.report import report_document
from profiler_kit.units import Unit

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def render(
    document: Document, width: int = 100, *, color: bool = False, detail: bool = False, bars: bool = False
) -> str:
    options = RenderOptions(width=width, color=color, detail=detail, bars=bars)
    return renderer_by_name("terminal").render(document, options)


def only(table: Table) -> Document:
    return Document(
        title="t", sections=(Section(title="first", blocks=()), Section(title="s", blocks=(table,))), json="{}"
    )


def tables(document: Document) -> list[Table]:
    return [block for section in document.sections for block in section.blocks if isinstance(block, Table)]


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("detail", [False, True])
def test_no_line_is_wider_than_the_terminal(any_report: Report, width: int, detail: bool) -> None:
    text = render(report_document(any_report, top=None), width, detail=detail, bars=detail)
    assert [line for line in text.splitlines() if display_width(line) > width] == []


@pytest.mark.parametrize("width", [60, 100])
def test_no_number_is_cut(any_report: Report, width: int) -> None:
    """Every cell of a column that is shown stands there whole, whatever the width."""
    for table in tables(report_document(any_report)):
        pieces, left_out = fit(table, width)
        cells = [(title, column) for piece in pieces for title, column in zip(piece.titles, piece.columns, strict=True)]
        titles = {title for title, _ in cells}
        for i, head in enumerate(table.heads):
            if head.name or head.title not in titles:
                continue
            column = tuple(cell(row[i], head) for row in (*table.rows, *table.totals))
            assert (head.title, column) in cells or head.title in left_out


def test_the_drawn_table_holds_the_cells_that_were_fitted() -> None:
    document = report_document(v0_cuda())
    text = render(document, 100)
    blocks = [block for section in document.sections if not section.detail for block in section.blocks]
    page_tables = [block for block in blocks if isinstance(block, Table)]
    assert [table.name for table in page_tables] == ["runs", "phases", "layers"]
    for table in page_tables:
        for piece in fit(table, 100)[0]:
            for row in zip(*piece.columns, strict=True):
                assert any(all(part in line for part in row) for line in text.splitlines()), row


def test_important_columns_stay_longest() -> None:
    (layers,) = [table for table in tables(report_document(v0_cuda())) if table.name == "layers"]
    titles_by_width = [
        {title for piece in fit(layers, width)[0] for title in piece.titles} for width in (60, 80, 100, 140, 200)
    ]
    assert all(len(narrow) <= len(wide) for narrow, wide in pairwise(titles_by_width))
    assert {"layer", "time step", "time %"} <= titles_by_width[0]


@pytest.mark.parametrize("color", [False, True])
def test_color_is_only_paint(any_report: Report, color: bool) -> None:
    document = report_document(any_report)
    text = render(document, color=color)
    assert ("\x1b" in text) == color
    assert ANSI.sub("", text) == render(document)


SHARES = Table(
    name="t",
    caption="",
    heads=(
        Head(key="n", title="name", name=True),
        Head(key="m", title="moved", unit="bytes", rank=2),
        Head(key="p", title="time %", unit="percent", share=True),
        Head(key="v", title="value", unit="count"),
    ),
    rows=(("all", 1024, 100.0, 1), ("模型", 2048, 49.9, 2), ("few", 0, 0.1, 3), ("unknown", None, None, 4)),
    totals=(("total", 1024, 100.0, 10),),
)


def bar_rows(text: str) -> list[str]:
    """The rows of `SHARES` in `text`."""
    return text.splitlines()[-len(SHARES.rows) - len(SHARES.totals) :]


def test_bars_show_the_shares_of_rows() -> None:
    rows = bar_rows(render(only(SHARES), bars=True))
    assert [row.count("█") for row in rows] == [12, 6, 0, 0, 0]
    assert "100.0 ████████████      1" in rows[0]
    assert " 49.9 ██████            2" in rows[1]
    assert len({display_width(row) for row in rows}) == 1
    assert "█" not in render(only(SHARES))


def test_a_bar_shows_eighths_of_a_cell() -> None:
    table = replace(SHARES, rows=(("a", 0, 100 / 96, 1), ("b", 0, 500 / 96, 2), ("c", 0, 1600 / 96, 3)), totals=())
    rows = render(only(table), bars=True).splitlines()[-3:]
    assert [re.sub("[^▏▎▍▌▋▊▉█]", "", row) for row in rows] == ["▏", "▋", "██"]


@pytest.mark.parametrize(("share", "cells"), [(float("nan"), 0), (-3.0, 0), (float("inf"), 12), (250.0, 12), (True, 0)])
def test_shares_that_are_no_shares_draw_no_more_than_a_full_bar(share: float, cells: int) -> None:
    table = replace(SHARES, rows=(("a", 0, share, 1),), totals=())
    assert render(only(table), bars=True).count("█") == cells


def test_bars_take_the_space_of_unimportant_columns_only() -> None:
    long_name = replace(SHARES, rows=(("n" * 32, 1024, 50.0, 10**6),), totals=())
    text = render(only(long_name), 60, bars=True)
    assert "███" in text
    assert "moved" not in text
    assert "moved" in render(only(long_name), 60)
    important = replace(long_name, heads=tuple(replace(head, rank=0) for head in long_name.heads))
    assert "moved" in render(only(important), 60, bars=True)
    shares = tuple(replace(head, rank=3 if head.share else 0) for head in long_name.heads)
    assert "50.0" in render(only(replace(long_name, heads=shares)), 60, bars=True)


def test_bars_change_no_figure(any_report: Report) -> None:
    """At a width that hides no column, a page with bars is the page without them."""
    document = report_document(any_report)
    plain, with_bars = render(document, 2000), render(document, 2000, bars=True)
    assert [re.sub("[▏▎▍▌▋▊▉█]", "", line).split() for line in with_bars.splitlines()] == [
        line.split() for line in plain.splitlines()
    ]


def test_guide_lines_end_at_the_last_child() -> None:
    names = ("net", "├ a", "│ ├ b", "│ │ ├ c", "│ ├ d", "├ e", "│ ├ f", "other")
    table = Table(name="t", caption="", heads=(Head(key="n", title="n", name=True),), rows=tuple((n,) for n in names))
    assert render(only(table)).splitlines()[-len(names) :] == [
        "net", "├ a", "│ ├ b", "│ │ └ c", "│ └ d", "└ e", "  └ f", "other",
    ]  # fmt: skip


def test_a_number_stays_with_its_unit() -> None:
    words = " ".join(f"{number} ms and 5 % of 3 things" for number in range(60))
    for width in range(60, 80):
        lines = render(
            Document(title="t", sections=(Section(title="s", blocks=(Paragraph(text=words),)),), json="{}"), width
        )
        assert [line for line in lines.splitlines() if line.startswith(("ms", "%"))] == []
        assert " ".join(lines.split()[1:]) == words


def test_the_environment_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line reads the environment; a renderer gets options."""
    document = report_document(v0_cuda())
    expected = [render(document, color=color) for color in (False, True)]
    for name, value in (("NO_COLOR", "1"), ("FORCE_COLOR", "1"), ("TERM", "dumb"), ("COLUMNS", "40"), ("LINES", "3")):
        monkeypatch.setenv(name, value)
        assert [render(document, color=color) for color in (False, True)] == expected


def test_markup_in_names_is_text() -> None:
    table = Table(
        name="[red]t", caption="", heads=(Head(key="n", title="[b]n", name=True),), rows=(("[red]x[/red] :boom:",),)
    )
    text = render(only(table), color=True)
    assert "[red]x[/red] :boom:" in text
    assert "[b]n" in text


def test_nothing_in_a_report_can_steer_the_terminal() -> None:
    text = render(report_document(hostile()), detail=True)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\r" not in text
    assert "\\x1b[2J" in text


def test_a_summary_fits_a_screen(v0_cpu_report: Report, count_only_report: Report) -> None:
    """Fifty lines on a CPU; nine configurations, remedies, findings and convolutions' algorithms take some more."""
    for report, most in ((v0_cpu_report, 50), (count_only_report, 50), (v0_h100(), 87), (v1_h100(), 92)):
        assert len(render(report_document(with_verdict(report)), 100).splitlines()) <= most


def test_what_configurations_are_compared_by_fits_a_terminal_of_a_hundred_columns() -> None:
    text = render(report_document(v0_h100()), 100)
    (runs,) = [table for table in tables(report_document(v0_h100())) if table.name == "runs"]
    visible = {title for piece in fit(runs, 100)[0] for title in piece.titles}
    keys = {head.key for head in runs.heads if head.title in visible}
    assert keys >= {
        "step_ms",
        "step_spread",
        "marked_ratio",
        "break_even_steps",
        "peak_mib",
        "kernel_shares",
        "repeatable",
        "max_relative_error",
    }
    assert "benchmark+deterministic+no-tf32" in text


def test_a_title_that_ends_with_the_unit_says_it_once() -> None:
    heads = (
        Head(key="a", title="time %", unit="percent"),
        Head(key="b", title="share", unit="percent"),
        Head(key="c", title="FLOP/s", unit="flops/s"),
    )
    assert [cell(value, head) for value, head in zip((99.5, 99.5, 48.98e12), heads, strict=True)] == [
        "99.5", "99.5 %", "48.98 T",
    ]  # fmt: skip
    assert cell(None, heads[0]) == "-"


def test_a_paragraph_for_detail_is_left_out_of_a_summary() -> None:
    paragraphs = (Paragraph(text="always"), Paragraph(text="at length", detail=True))
    document = Document(title="t", sections=(Section(title="s", blocks=paragraphs),), json="{}")
    assert "at length" not in render(document)
    assert "at length" in render(document, detail=True)


def test_wide_characters_keep_the_columns_straight() -> None:
    table = Table(
        name="t",
        caption="",
        heads=(Head(key="n", title="name", name=True), Head(key="v", title="value", unit="ns")),
        rows=(("模型", 5), ("e\u0301", 7)),
    )
    rows = render(only(table)).splitlines()[-2:]
    assert len({display_width(row) for row in rows}) == 1


def test_findings_come_before_every_figure(v0_report: Report) -> None:
    text = render(report_document(v0_report))
    assert text.index("Findings") < text.index("Configurations") < text.index("Phases") < text.index("Layers")


def test_a_summary_is_short_where_detail_is_whole(v0_report: Report) -> None:
    document = report_document(v0_report)
    short, detail_text = render(document), render(document, detail=True)
    info = next(finding for finding in v0_report.findings if finding.severity == "info")
    assert info.title in short
    assert info.advice not in short
    assert info.advice in detail_text
    assert "stopwatch share 90.3 %" in detail_text
    assert "loss.backward()" not in short
    assert "loss.backward()" in detail_text
    assert "--detail also shows: findings in full, Cost of one step, " in short
    assert "--detail" not in detail_text
    assert document.title in short.splitlines()[0]


def test_many_findings_are_cut_to_their_titles() -> None:
    finding = v0_cuda().findings[0]
    many = tuple(replace(finding, title=f"finding number {i}", advice=f"advice {i}") for i in range(9))
    document = Document(
        title="t", sections=(Section(title="Findings", blocks=(FindingList(findings=many),)),), json="{}"
    )
    text = render(document)
    assert "finding number 8" in text
    assert f"advice {SUMMARY_FINDINGS - 1}" in text
    assert f"advice {SUMMARY_FINDINGS}" not in text


@pytest.mark.parametrize(
    ("written", "first"),
    [
        ("It takes 9.0 % of it. Then more.", "It takes 9.0 % of it."),
        ("In 4.5 ms, by e.g. two kernels. Yes.", "In 4.5 ms, by e.g. two kernels."),
        ('Set it. "default" follows.', "Set it."),
        ("Queued, not run. loss.item() waits.", "Queued, not run."),
        ("Memory x8.0. 3 of 4 i.e. most are.", "Memory x8.0."),
        (
            "Slower, i.e. worse, vs. the rest, etc. and so on... or not. Next",
            "Slower, i.e. worse, vs. the rest, etc. and so on... or not.",
        ),
        ("See torch.backends.cudnn. It is set.", "See torch.backends.cudnn."),
        ("", ""),
        ("One sentence only", "One sentence only"),
        ("Takes 5.8\n%. Over 9.", "Takes 5.8\n%."),
    ],
)
def test_the_first_sentence(written: str, first: str) -> None:
    assert first_sentence(written) == first


def test_a_summary_gives_first_sentences_and_detail_gives_all() -> None:
    finding = replace(v0_cuda().findings[0], explanation="Because of this. And of that.", advice="Do it. Then rest.")
    document = Document(
        title="t", sections=(Section(title="Findings", blocks=(FindingList(findings=(finding,)),)),), json="{}"
    )
    short, detail_text = render(document), render(document, detail=True)
    assert "Because of this." in short
    assert "Do it." in short
    assert "And of that." not in short
    assert "Then rest." not in short
    assert "And of that." in detail_text
    assert "Then rest." in detail_text


def test_every_table_of_a_section_has_its_caption() -> None:
    heads = (Head(key="k", title="k"),)
    pair = tuple(Table(name=n, caption=f"caption of {n}", heads=heads, rows=(("x",),)) for n in ("one", "two"))
    sections = (Section(title="First", blocks=()), Section(title="Tables", blocks=pair))
    text = render(Document(title="t", sections=sections, json="{}"))
    assert "Tables (caption of one)" in text
    assert "caption of two:" in text


def test_left_out_columns_are_said() -> None:
    document = report_document(transformer())
    assert "Columns hidden at this width: 2 in Cost of one step" in " ".join(render(document, 80).split())
    assert re.search(r"Columns hidden at this width: .*min traffic", render(document, 80, detail=True))
    assert "Columns hidden" not in render(report_document(transformer()), 400)


def test_a_table_that_cannot_shrink_goes_on_below() -> None:
    heads = (Head(key="k", title="k"), *(Head(key=f"c{i}", title=f"column{i}", unit="count") for i in range(12)))
    table = Table(name="t", caption="", heads=heads, rows=(("row", *(10**9 + i for i in range(12))),))
    text = render(only(table), 60)
    assert max(map(len, text.splitlines())) <= 60
    assert all(f"{10**9 + i:,}" in text for i in range(12))
    assert text.count("row") > 1


def test_an_empty_table_is_its_header() -> None:
    table = Table(
        name="t", caption="c", heads=(Head(key="a", title="alpha"), Head(key="b", title="beta", unit="ns")), rows=()
    )
    assert "alpha  beta" in render(only(table))


def test_logs_keep_their_lines() -> None:
    log = Paragraph(text="one\n  two\x1b[31m\n\n" + "x" * 150, role="log")
    lines = render(Document(title="t", sections=(Section(title="s", blocks=(log,)),), json="{}"), 80).splitlines()
    assert "  |   two\\x1b[31m" in lines
    assert sum(line.count("x") for line in lines if set(line) <= set(" |x")) == 150


VALUES = st.none() | st.integers(-(10**15), 10**15) | st.floats(-1e15, 1e15) | st.booleans()
NAMES = st.text(st.characters(codec="utf-8"), max_size=120)


@given(data=st.data(), width=st.integers(60, 160))
def test_any_table_fits_or_goes_on_below(data: st.DataObject, width: int) -> None:
    count = data.draw(st.integers(1, 8))
    units: list[Unit] = data.draw(
        st.lists(st.sampled_from(["ns", "bytes", "percent", "flops/s", "ratio"]), min_size=count, max_size=count)
    )
    heads = (
        Head(key="name", title="name", name=True),
        *(Head(key=f"c{i}", title=f"title {i}", unit=unit, rank=i % 3) for i, unit in enumerate(units)),
    )
    rows: list[tuple[Value, ...]] = [
        (data.draw(NAMES), *(data.draw(VALUES) for _ in range(count))) for _ in range(data.draw(st.integers(1, 4)))
    ]
    table = Table(name="t", caption="", heads=heads, rows=tuple(rows))
    text = render(only(table), width)
    for line in text.splitlines():
        assert display_width(line) <= width


@given(
    written=st.text(st.sampled_from(string.ascii_letters + string.digits + "._"), max_size=80), width=st.integers(6, 40)
)
def test_a_shortened_name_never_holds_part_of_a_number(written: str, width: int) -> None:
    short = shorten(written, width)
    assert display_width(short) <= max(width, 0) or short == written
    if short != written:
        # a name may have dots of its own beside the ellipsis
        cuts = [(short[: m.start()], short[m.start() + 3 :]) for m in re.finditer(r"(?=\.\.\.)", short)]
        sides = [(a, b) for a, b in cuts if written.startswith(a) and written.endswith(b)]
        assert sides
        numbers = re.findall(r"\d+", written)
        assert any(all(number in numbers for number in re.findall(r"\d+", a) + re.findall(r"\d+", b)) for a, b in sides)


def test_long_names_are_shortened_in_the_middle_only_as_far_as_needed() -> None:
    (kernels,) = [table for table in tables(report_document(v0_cuda())) if table.name == "kernels"]
    narrow, wide = (fit(kernels, width)[0][0] for width in (80, 140))
    assert max(map(len, narrow.columns[-1])) < max(map(len, wide.columns[-1]))
    assert max(map(len, narrow.columns[-1])) >= READABLE_NAME - 3  # a digit run at the cut goes whole
    assert narrow.columns[-1][0].startswith("sm80_xmma")
    assert narrow.columns[-1][0].endswith("cudnn")


def test_a_trial_that_two_findings_lead_to_is_told_once() -> None:
    text = render(report_document(v0_h100()), 100)
    assert len(re.findall("% less time .*\n?.*measured", text)) == 1  # under What to do, with both findings
    assert "tried benchmark" not in text
    assert len(re.findall("tried benchmark: .* ms -> .* ms", render(report_document(v0_h100()), 100, detail=True))) == 2
