"""The HTML page: self-contained, escaped, and complete without scripts. tests/browser opens it in a browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import pytest
from sample_reports import v0_cuda
from trace_reports import trace, traces

from profiler_kit.records.document import (
    Chart,
    ChartData,
    ChartKind,
    Document,
    FindingList,
    Head,
    Paragraph,
    Section,
    Table,
)
from profiler_kit.records.lanes import StepTimeline
from profiler_kit.records.report import Finding, Severity
from profiler_kit.records.runs import Span
from profiler_kit.render import RenderOptions, renderer_by_name, renderer_by_suffix
from profiler_kit.render._html_blocks import MARKED_ROWS
from profiler_kit.render.html import render
from profiler_kit.report import report_document, traces_document

WEB = Path(render.__code__.co_filename).parent / "web"
HOSTILE = "</script><script>alert(1)</script>\x1b[2J\u202e\"'&"
VOID = {"meta", "br", "input", "link", "img", "hr"}
MAX_BYTES = 100_000  # without data


def page(document: Document) -> str:
    return render(document, RenderOptions())


def embedded(html: str, name: str) -> list[Any]:
    match = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', html, re.DOTALL)
    assert match is not None
    values: list[Any] = json.loads(match[1])
    return values


def charts(html: str) -> list[dict[str, Any]]:
    return embedded(html, "charts")


class Checker(HTMLParser):
    """Collects tags and text, and fails on tags that do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text += data


def check(html: str) -> Checker:
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert checker.open == []
    return checker


def hostile_document() -> Document:
    heads = (Head(key="name", title=HOSTILE, doc=HOSTILE, name=True), Head(key="ns", title="time", unit="ns"))
    table = Table(name="t", caption=HOSTILE, heads=heads, rows=((HOSTILE, 5), (None, None)), totals=((HOSTILE, 5),))
    chart = Chart(
        kind="bars",
        title=HOSTILE,
        text=HOSTILE,
        data={"unit": "ns", "rows": [HOSTILE], "parts": [{"name": HOSTILE, "values": [1]}]},
    )
    roles = [Paragraph(text=HOSTILE, role=role) for role in ("text", "note", "warning", "log")]
    return Document(title=HOSTILE, sections=(Section(title=HOSTILE, blocks=(*roles, table, chart)),), json="{}")


def test_text_of_models_is_escaped_everywhere() -> None:
    html = page(hostile_document())
    checker = check(html)
    assert [tag for tag, _ in checker.tags].count("script") == 3, "two of data, and the page's own"
    assert "alert(1)" in checker.text, "shown as text"
    assert not {*map(chr, range(9)), *map(chr, range(11, 32)), "\u202e"} & set(html)
    assert charts(html)[0]["data"]["rows"] == ["</script><script>alert(1)</script>\\x1b[2J\\u202e\"'&"]


def test_a_page_loads_nothing() -> None:
    html = page(report_document(v0_cuda()))
    for tag, attributes in check(html).tags:
        assert "src" not in attributes, tag
        assert tag != "link"
        assert attributes.get("href", "#").startswith("#"), tag
    assert "default-src 'none'" in html
    urls = [url for file in WEB.iterdir() for url in re.findall(r"https?://[^\"]+", file.read_text())]
    assert urls == ["https://ui.perfetto.dev"], (
        "a button opens it in another window; the policy forbids to load from it"
    )


def test_a_page_is_small() -> None:
    assert len(page(Document(title="t", sections=(), json="{}")).encode()) < MAX_BYTES


def test_every_table_and_finding_is_in_the_page_without_scripts() -> None:
    document = report_document(v0_cuda(), top=None)
    checker = check(page(document))
    tables = [
        block for section in document.sections for block in section.blocks if isinstance(block, Table) and block.heads
    ]
    assert [tag for tag, _ in checker.tags].count("table") == len(tables)
    rows = sum(len(table.rows) + len(table.totals) + 1 for table in tables)
    assert [tag for tag, _ in checker.tags].count("tr") == rows
    for finding in v0_cuda().findings:
        assert finding.title in checker.text


def test_a_long_table_has_its_first_rows_as_markup_and_the_others_as_data() -> None:
    heads = (Head(key="name", title="name", name=True), Head(key="ns", title="time", unit="ns"))
    rows = tuple((f"{HOSTILE}{i}", 1_500_000 + i) for i in range(MARKED_ROWS + 2))
    table = Table(name="t", caption="", heads=heads, rows=rows)
    short = replace(table, rows=rows[:MARKED_ROWS])
    html = page(Document(title="t", sections=(Section(title="s", blocks=(short, table)),), json="{}"))
    tags = check(html).tags
    assert [tag for tag, _ in tags].count("tr") == 2 * (1 + MARKED_ROWS)
    assert [attributes.get("data-more") for _, attributes in tags if attributes.get("class") == "scroll"] == [None, "0"]
    (others,) = embedded(html, "rows")
    assert [cells[1] for cells in others] == [["1.5 ms", rows[-2][1]], ["1.5 ms", rows[-1][1]]]
    assert [cells[0][-2:] for cells in others] == [str(MARKED_ROWS), str(MARKED_ROWS + 1)]
    assert "\u202e" not in others[0][0]


def test_numbers_sort_by_their_value() -> None:
    heads = (Head(key="name", title="name"), Head(key="ns", title="time", unit="ns"))
    table = Table(name="t", caption="", heads=heads, rows=(("a", 1_500_000), ("b", None)))
    html = page(Document(title="t", sections=(Section(title="s", blocks=(table,)),), json="{}"))
    assert 'data-sort="1500000">1.5 ms</td>' in html


def test_a_chart_has_its_figures_and_every_kind_is_drawn() -> None:
    html = page(report_document(v0_cuda()))
    kinds = {chart["kind"] for chart in charts(html)}
    assert {"bars", "icicle"} <= kinds <= set(get_args(ChartKind))
    script = "".join(file.read_text() for file in WEB.glob("*.js"))
    for kind in get_args(ChartKind):
        assert re.search(rf"^(  {kind}\(|draw\.{kind} = function {kind}\()element, data", script, re.MULTILINE), kind


def test_a_trace_has_charts() -> None:
    summary = trace(idle={("python", "forward"): 10.0})
    kinds = [chart["kind"] for chart in charts(page(traces_document(traces(summary))))]
    assert kinds == ["bars"]
    bars = charts(page(traces_document(traces(replace(summary, unattributed_ns=0)))))[0]["data"]
    assert sum(part["values"][0] for part in bars["parts"]) == summary.span_ns


def test_the_timeline_of_a_step_is_cropped_to_it() -> None:
    spans = tuple(
        Span(lane=lane, name="forward", start_ns=start, end_ns=end, step=step)
        for lane, start, end, step in (("host", 90, 150, 1), ("device: phase", 120, 260, 2))
    )
    timeline = StepTimeline(
        step=7, index=1, start_ns=100, host_end_ns=150, device_ns=(120, 250), end_ns=250, spans=spans, omitted=3
    )
    html = page(traces_document(traces(trace()), timelines={0: timeline}))
    chart = next(chart for chart in charts(html) if chart["kind"] == "timeline")
    assert chart["data"] == {
        "lanes": ["host", "device: phase"], "names": ["forward"], "families": [None],
        "facts": [], "boxes": [[0, 0, 50, 0, 0], [1, 20, 150, 0, 1]], "bands": [[0, 0, 0, 50], [1, 1, 20, 150]],
    }  # fmt: skip
    text = check(html).text
    assert "Timeline of step 7" in text
    assert "3 shorter boxes are left out" in text


def test_code_between_backticks_is_code() -> None:
    blocks = (Paragraph(text="Paste `model = torch.compile(model)` here."),)
    html = page(Document(title="t", sections=(Section(title="s", blocks=blocks),), json="{}"))
    assert "Paste <code>model = torch.compile(model)</code> here." in html


def test_the_suffix_picks_the_format() -> None:
    assert renderer_by_suffix(Path("report.HTML")).name == "html"


def finding(severity: Severity, *paths: str) -> Finding:
    return Finding(
        rule="r", severity=severity, title=f"a {severity} one", explanation="", advice="", evidence=(), paths=paths
    )


def test_findings_of_low_severity_are_folded_after_the_others() -> None:
    findings = tuple(map(finding, ("high", "low", "info", "medium", "low")))
    html = page(
        Document(title="t", sections=(Section(title="s", blocks=(FindingList(findings=findings),)),), json="{}")
    )
    check(html)
    assert re.findall(r'<li id="finding-(\d)">', html) == ["1", "4", "2", "3", "5"], "with their numbers"
    shown, folded = html.split('<details class="lower">')
    assert "finding-4" in shown
    assert "<summary>3 lower-priority findings (2 low, 1 info)</summary>" in folded


def test_few_findings_of_low_severity_stay_in_the_list() -> None:
    for severities in (("high", "low", "info"), ("low", "low", "info")):
        blocks = (FindingList(findings=tuple(map(finding, severities))),)
        html = page(Document(title="t", sections=(Section(title="s", blocks=blocks),), json="{}"))
        assert '<details class="lower">' not in html
        assert re.findall(r'<li id="finding-(\d)">', html) == ["1", "2", "3"]


def test_layers_of_findings_link_to_their_rows() -> None:
    report = replace(v0_cuda(), findings=(finding("high", "conv2", "elsewhere"),))
    html = page(report_document(report, top=None))
    row = re.search(r'<tr id="(layer-\d+)"><td class="name"[^>]*>conv2<', html)
    assert row is not None
    assert f'<a class="layer" href="#{row[1]}" data-path="conv2">' in html
    assert "<code>elsewhere</code>" in html, "no row, no link"


def test_the_verdict_links_to_findings() -> None:
    document = Document(
        title="t",
        sections=(
            Section(title="Verdict", blocks=(Paragraph(text="Cause [1], not [7]."),)),
            Section(title="Findings", blocks=(FindingList(findings=(finding("high"),)),)),
        ),
        json="{}",
    )
    assert 'Cause <a href="#finding-1">[1]</a>, not [7].' in page(document)


def test_formats_of_text_build_no_chart() -> None:
    def fail() -> dict[str, Any]:
        raise AssertionError("built")

    chart = Chart(kind="bars", title="t", text="t", data=ChartData(fail))
    document = Document(title="t", sections=(Section(title="s", blocks=(chart,)),), json="{}")
    for name in ("terminal", "markdown", "json"):
        renderer_by_name(name).render(document, RenderOptions(detail=True))
    with pytest.raises(AssertionError, match="built"):
        page(document)


def test_the_first_chart_is_on_the_first_screen_and_warnings_are_above_it() -> None:
    chart = Chart(kind="bars", title="The reason", text="", data={"unit": "ns", "rows": [], "parts": []})
    sentences = [Paragraph(text=f"{number}: {'x' * 190}") for number in range(5)]
    blocks = (*sentences, Paragraph(text="Read this first.", role="warning"))
    html = page(
        Document(title="t", sections=(Section(title="s", blocks=blocks), Section(title="c", blocks=(chart,))), json="")
    )
    places = [html.index(text) for text in ("0: x", "1: x", "2: x", "Read this first", "The reason", "3: x", "4: x")]
    assert places == sorted(places)
    assert html.count("The reason</h3>") == 1
