"""Markdown: whole, and harmless whatever the names in it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_reports import hostile, v0_cuda, v0_h100

from profiler_kit.records.document import Document, Head, Paragraph, Section, Table
from profiler_kit.records.report import Report
from profiler_kit.render import RenderOptions, renderer_by_name
from profiler_kit.render.markdown import code, escape
from profiler_kit.report import report_document

UNESCAPED_PIPE = re.compile(r"(?<!\\)(?:\\\\)*\|")


def render(document: Document) -> str:
    return renderer_by_name("markdown").render(document, RenderOptions())


def without_logs(text: str) -> str:
    return re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.M | re.S)


def table_lines(text: str) -> list[list[str]]:
    text = without_logs(text)
    result: list[list[str]] = []
    for line, before in zip(text.splitlines(), ["", *text.splitlines()], strict=False):
        if line.startswith("|"):
            if not before.startswith("|"):
                result.append([])
            result[-1].append(line)
    return result


def test_every_section_is_there_details_included(v0_report: Report) -> None:
    document = report_document(v0_report)
    text = render(document)
    for section in document.sections:
        assert f"## {section.title}" in text
    assert "loss.backward()" in text


def test_findings_carry_their_evidence_and_advice(v0_report: Report) -> None:
    text = render(report_document(v0_report))
    assert "stopwatch share: 90.3 % (`loss`)" in text
    assert "- Advice: Downsample before it" in text
    assert "- Tried: `benchmark`: 26.2 ms -> 15.03 ms, better." in text


def test_tables_have_the_same_number_of_cells_in_every_row(any_report: Report) -> None:
    tables = table_lines(render(report_document(any_report)))
    assert len(tables) >= 2
    for lines in tables:
        assert len({len(UNESCAPED_PIPE.findall(line)) for line in lines}) == 1, lines[0]
        assert re.fullmatch(r"[|:\- ]+", lines[1])


def test_kernel_names_are_whole(v0_report: Report) -> None:
    text = render(report_document(v0_report, top=None))
    for kernel in v0_report.runs[0].kernels:
        assert kernel.name in text


def test_hostile_names_become_neither_link_nor_mention_nor_html() -> None:
    text = render(report_document(hostile()))
    prose = re.sub(r"(`+).*?(?<!`)\1(?!`)", "", without_logs(text))  # without code spans
    assert "\x1b" not in text
    assert not re.search(r"(?<!\\)<script", prose)
    assert not re.search(r"@\w", prose)
    assert not re.search(r"#\d", prose)
    assert not re.search(r"(?<!\\)\]\(", prose)
    assert "http:" not in prose


@pytest.mark.parametrize(
    ("written", "escaped"),
    [
        ("a|b", r"a\|b"),
        ("cudnn.allow_tf32", "cudnn.allow_tf32"),
        ("_foreach_add_ __init__", r"\_foreach_add\_ \_\_init\_\_"),
        ("<b>&lt;", r"\<b>\&lt;"),
        ("[a](b)", r"\[a\](b)"),
        ("`x`", r"\`x\`"),
        ("C:\\x", r"C:\\x"),
        ("@user", "@\u200buser"),
        ("#12", "\\#\u200b12"),
        ("https://a.b", r"https\://a.b"),
        ("see www.a.b", r"see www\.a.b"),
        ("two\n# lines", r"two \# lines"),
        ("a @ b - c", "a @ b - c"),
    ],
)
def test_escapes(written: str, escaped: str) -> None:
    assert escape(written) == escaped


@pytest.mark.parametrize("text", ["- a", "+ a", "12. a", "3) a", "> a", "=== a", "---"])
def test_a_paragraph_never_begins_a_list_or_rule(text: str) -> None:
    document = Document(title="t", sections=(Section(title="s", blocks=(Paragraph(text=text),)),), json="{}")
    line = render(document).rstrip().splitlines()[-1]
    assert "\\" in line
    assert line.replace("\\", "") == text


@pytest.mark.parametrize(
    ("written", "span"), [("a", "`a`"), ("a`b", "``a`b``"), ("`", "`` ` ``"), ("a|b", "`a\\|b`"), ("", "")]
)
def test_code_spans(written: str, span: str) -> None:
    assert code(written) == span


@given(name=st.text(max_size=40), note=st.text(max_size=40))
def test_any_text_stays_in_its_cell(name: str, note: str) -> None:
    table = Table(
        name="t",
        caption="",
        heads=(Head(key="n", title="name", name=True), Head(key="t", title="note")),
        rows=((name, note), ("x", "y")),
    )
    document = Document(title="t", sections=(Section(title="s", blocks=(table,)),), json="{}")
    (lines,) = table_lines(render(document))
    assert len(lines) == 4
    assert {len(UNESCAPED_PIPE.findall(line)) for line in lines} == {3}


def test_the_log_cannot_close_its_own_fence() -> None:
    log = Paragraph(text="````\n<img src=x>\n```", role="log")
    text = render(Document(title="t", sections=(Section(title="s", blocks=(log,)),), json="{}"))
    fences = [line for line in text.splitlines() if line.startswith("`````")]
    assert fences == ["`````text", "`````"]


def test_a_warning_is_set_apart() -> None:
    assert "**Warning:** cudnn-off failed" in render(report_document(v0_cuda()))


def test_long_detail_is_folded_and_what_a_summary_has_is_not() -> None:
    text = render(report_document(v0_h100(), top=None))
    folded = "".join(re.findall(r"^<details><summary>Show</summary>\n.*?^</details>$", text, flags=re.M | re.S))
    assert "implicit_gemm" in folded
    assert "| `default (again)` |" not in text.split("## Configurations")[0]
    summary = text.split("## Phases")[1].split("## Layers")[0]
    assert "<details>" not in summary
    assert text.count("<details>") == text.count("</details>") > len(v0_h100().findings)


def test_a_findings_numbers_are_folded_inside_its_item(v0_report: Report) -> None:
    text = render(report_document(v0_report))
    item = text.split("\n1. **high:")[1].split("\n2. **")[0]
    assert item.index("   - Advice") < item.index("\n\n   <details>") < item.index("   - stopwatch share: 90.3 %")
    assert "\n\n   </details>\n" in item


def test_a_table_with_long_names_is_not_padded() -> None:
    long, heads = "k" * 300, (Head(key="n", title="name", name=True), Head(key="t", title="time", unit="ns"))
    table = Table(name="t", caption="", heads=heads, rows=((long, 1), ("a b", 2)))
    (lines,) = table_lines(render(Document(title="t", sections=(Section(title="s", blocks=(table,)),), json="{}")))
    assert lines[1] == "|:---|---:|"
    assert lines[3] == "| `a b` | 2 ns |"
    assert long in lines[2]
