"""Hostile names through every format and every kind of record: text from models and traces stays text."""

from __future__ import annotations

import csv
import functools
import io
import json
import re
import unicodedata
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from gate_reports import node, report
from trace_reports import kernel, trace, traces

from profiler_kit.comparison.compare import compare
from profiler_kit.gate.budgets import parse_budget
from profiler_kit.pipeline.check import check_reports
from profiler_kit.records.document import Document, Head, Paragraph, Section, Table
from profiler_kit.render import RenderOptions, renderer_by_name, renderers
from profiler_kit.render.github import LONGEST, MARKER
from profiler_kit.report.results import result_document

NAMES = (
    "::error file=README::injected", " ::error file=README::injected", "x" * 59 + " ::warning::wrapped",
    "x " * 40 + "::set-output name=a::b", "##[error]injected", "##vso[task.setvariable variable=a]b",
    "a\n::add-mask::b", "a\r::stop-commands::b", "a\u2028::notice::b", "\u3000::debug::b", "\u00a0::debug::b",
    "\x1b[31mred\x1b[0m", "\x1b]8;;http://x.example\x07link\x1b]8;;\x07", "a\x00b", "a\x07\x08b", "\x9b31m",
    "abc\u202egpj.exe", "a\u2066b\u2069", "a\u200fb", "\ufeffname", "a\ufffeb", "a\ud800b", "a\ue000b",
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "</script><b id=foreign>", "</details><b id=foreign>",
    "<!-- profiler-kit -->", "-->", "]]>", "&lt;b&gt;", "&#60;b&#62;", "\"onmouseover=\"x", "'><b id=foreign>",
    "@octocat and @org/team", "#123 and GH-123", "[text](javascript:alert(1))", "![p](http://x.example/p.png)",
    "http://x.example www.x.example", "a | b | c", "`code` ``` fence", "*bold* _it_ ~~s~~", "# heading", "- [ ] task",
    "=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(A1)", "\t=1+1", "\\input{/etc/passwd}", "$x^2$ % & { }",
    'a",b="c', 'a"} 1\nforeign 2', "\\", "# EOF", "{{7*7}} ${{ github.token }} $(id) `id`",
)  # fmt: skip
SCRIPTS = re.compile(r"<(style|script)>.*?</\1>", re.DOTALL)
KINDS = ("report", "comparison", "check", "traces")
OF_CHECK = {"junit", "openmetrics", "codequality"}


def document(kind: str, name: str) -> Document:
    """A record with `name` wherever a model or a trace names something."""
    if kind == "traces":
        return result_document(traces(trace(name, kernels=[kernel("other", 2, 1, name=name, op=name)])))
    nodes = [node(name, class_name=name, config=name, macs=1000, params=100, saved_bytes=64)]
    base = report(nodes, name=name)
    if kind == "report":
        return result_document(base)
    grown = [*nodes, node(f"{name}.added", class_name=name, config=name, macs=3000, params=300)]
    head = report(grown, name=name)
    if kind == "comparison":
        return result_document(compare(base, head))
    return result_document(check_reports(base, head, [parse_budget("flops=+10%"), parse_budget("params=1M")]))


@functools.cache
def rendered(kind: str, name: str, form: str) -> str:
    text = renderer_by_name(form).render(document(kind, name), RenderOptions(width=80, detail=True))
    return SCRIPTS.sub("", text) if form == "html" else text


FORMS = [renderer.name for renderer in renderers()]
CASES = [(kind, form) for form in FORMS for kind in KINDS if form not in OF_CHECK or kind == "check"]


@pytest.mark.parametrize(("kind", "form"), CASES)
def test_no_runner_executes_a_name(kind: str, form: str) -> None:
    for name in NAMES:
        text = rendered(kind, name, form)
        commands = [line for line in text.splitlines() if line.lstrip().startswith("::") or "##[" in line]
        assert not commands, (name, commands[:2])
        assert "##vso[" not in text, name


@pytest.mark.parametrize(("kind", "form"), CASES)
def test_no_control_or_bidi_character_is_left(kind: str, form: str) -> None:
    for name in NAMES:
        text = rendered(kind, name, form)
        text.encode()
        allowed = {"\n", "\u200b"} | ({"\r"} if form == "csv" else set())
        raw = {c for c in text if c not in allowed and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")}
        assert not raw, (name, raw)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[str] = []
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.shapes.append(tag)
        self.attributes |= {key for key, _ in attrs}
        assert ("id", "foreign") not in attrs

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


def tags(html: str) -> _Tags:
    parser = _Tags()
    parser.feed(html)
    return parser


@pytest.mark.parametrize("kind", KINDS)
def test_html_has_no_foreign_element(kind: str) -> None:
    plain = tags(rendered(kind, "plain", "html"))
    for name in NAMES:
        page = tags(rendered(kind, name, "html"))
        assert set(page.shapes) <= set(plain.shapes) | {"code", "span"}, name
        assert not {key for key in page.attributes if key.startswith("on")}, name


@pytest.mark.parametrize("form", ["markdown", "github"])
@pytest.mark.parametrize("kind", KINDS)
def test_markdown_has_no_mention_link_or_element(kind: str, form: str) -> None:
    for name in NAMES:
        text = rendered(kind, name, form).removeprefix(MARKER)
        spans = re.compile(r"(?<![`\\])(`+)(?!`).*?(?<!`)\1(?!`)")
        outside = "\n".join(spans.sub("", line) for line in text.splitlines())
        assert not re.search(r"(?<!\\)<(?!/?(details|summary)\b)", outside), name
        assert not re.search(r"@\w|(?<!\\)\]\(|(?<!\\)!\[[^\]]*\]\(|https?://|www\.\w|#\d", outside), name


@pytest.mark.parametrize("kind", KINDS)
def test_a_spreadsheet_has_no_formula(kind: str) -> None:
    for name in NAMES:
        for row in csv.reader(io.StringIO(rendered(kind, name, "csv"))):
            texts = [cell for cell in row if not re.fullmatch(r"-?[\d.e+-]+", cell)]
            assert not [cell for cell in texts if cell.startswith(("=", "+", "-", "@", "\t", "\r", "::"))], name


def test_formats_of_ci_systems_parse() -> None:
    for name in NAMES:
        suites = ElementTree.fromstring(rendered("check", name, "junit"))
        assert [len(suite.findall("testcase")) for suite in suites] == [2]
        assert len(suites.findall(".//failure")) == 1
        (entry,) = json.loads(rendered("check", name, "codequality"))
        assert not entry["location"]["path"].startswith(("/", ".."))
        metrics = rendered("check", name, "openmetrics").splitlines()
        assert metrics[-1] == "# EOF"
        sample = re.compile(r'profiler_kit_\w+\{target="(?:[^"\\]|\\["\\n])*"\} \d+')
        assert all(line.startswith("# TYPE profiler_kit_") or sample.fullmatch(line) for line in metrics[:-1]), name


@pytest.mark.parametrize("kind", KINDS)
def test_json_keeps_names(kind: str) -> None:
    for name in NAMES:
        if "\ud800" not in name:
            data: Any = json.loads(rendered(kind, name, "json"))
            assert data == json.loads(document(kind, name).json)


@pytest.mark.parametrize("length", [5, 30_000])
def test_a_comment_fits_github(length: int) -> None:
    nodes = [node(f"layer{i}.{'|' * length}", macs=i + 1, params=i) for i in range(3_000 if length == 5 else 60)]
    check = check_reports(report(nodes[:1]), report(nodes), [parse_budget("flops=+10%")])
    text = renderer_by_name("github").render(result_document(check), RenderOptions())
    assert text.startswith(MARKER)
    assert "1 budget broken" in text or "budgets broken" in text
    assert len(text) <= LONGEST


def test_a_comment_says_how_many_rows_are_left_out() -> None:
    heads = (Head(key="a", title="A", name=True),)
    table = Table(name="t", caption="", heads=heads, rows=tuple((f"row{i}",) for i in range(1000)))
    sections = (Section(title="Layers", blocks=(table, Paragraph(text="end"))),)
    text = renderer_by_name("github").render(Document(title="t", sections=sections, json="{}"), RenderOptions())
    assert "980 more rows" in text
    huge = tuple(Section(title=f"s{i}", blocks=(Paragraph(text="|" * 5000),) * 15) for i in range(40))
    text = renderer_by_name("github").render(Document(title="t" * 99_999, sections=huge, json="{}"), RenderOptions())
    assert len(text) <= LONGEST
    assert "more sections" in text


def test_a_comment_unfolds_results_whatever_their_titles() -> None:
    rows = (Paragraph(text="one " * 400),) * 4
    sections = (Section(title="Findings", blocks=rows, is_result=True), Section(title="Why", blocks=rows))
    text = renderer_by_name("github").render(Document(title="t", sections=sections, json="{}"), RenderOptions())
    assert text.count("<details>") == 1
    assert text.index("Findings") < text.index("Why") < text.index("<details>")
