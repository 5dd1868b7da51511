"""LaTeX: whole, balanced, and harmless whatever the names in it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_reports import hostile, v0_h100

from profiler_kit.records.document import Document, FindingList, Head, Paragraph, Section, Table
from profiler_kit.records.report import Report
from profiler_kit.render import RenderOptions, renderer_by_name
from profiler_kit.render.latex import escape
from profiler_kit.report import report_document

ENVIRONMENT = re.compile(r"\\(begin|end)\{(\w+)\}")
ROW = re.compile(r"(?<!\\)&")


def render(document: Document) -> str:
    return renderer_by_name("latex").render(document, RenderOptions())


def page(*blocks: Paragraph | Table | FindingList) -> str:
    return render(Document(title="t", sections=(Section(title="s", blocks=blocks),), json="{}"))


def body(latex: str) -> str:
    return latex.split(r"\begin{document}")[1]


def check_structure(latex: str) -> None:
    """Environments nest, braces are balanced, and a table's rows have as many cells as its columns."""
    opened: list[str] = []
    for kind, name in ENVIRONMENT.findall(latex):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []
    depth = 0
    for char in re.sub(r"\\[\\{}]", "", latex):
        depth += {"{": 1, "}": -1}.get(char, 0)
        assert depth >= 0
    assert depth == 0
    for columns, rows in re.findall(r"\\begin\{longtable\}\{@\{\}(\w+)@\{\}\}(.*?)\\end\{longtable\}", latex, re.S):
        lines = [line for line in rows.splitlines() if "&" in line or line.endswith(r"\\")]
        assert lines
        assert {len(ROW.findall(line)) + 1 for line in lines} == {len(columns)}


def test_a_report_is_a_whole_document(any_report: Report) -> None:
    document = report_document(any_report)
    latex = render(document)
    check_structure(latex)
    for section in document.sections:
        if not section.is_drawn:
            assert rf"\subsection*{{{escape(section.title)}}}" in latex
    for finding in any_report.findings:
        assert escape(finding.title) in latex
        assert escape(finding.advice) in latex


def test_hostile_names_become_no_command() -> None:
    latex = render(report_document(hostile()))
    check_structure(latex)
    assert "\x1b" not in latex
    assert "\u202e" not in latex
    assert "�" not in latex


@pytest.mark.parametrize(
    ("written", "escaped"),
    [
        (r"\input{/etc/passwd}", r"\textbackslash{}input\{/etc/passwd\}"),
        ("50 % of $x_1^2$ & #3", r"50 \% of \$x\_1\textasciicircum{}2\$ \& \#3"),
        ("--detail ''a''", "-{}-detail '{}'a'{}'"),
        ("[2] *a", "{[}2] {*}a"),
        ("a\nb\x1b[0m", r"a b\textbackslash{}x1b{[}0m"),
        ("Größe ×2 ±1", r"Größe \texttimes{}2 \textpm{}1"),  # noqa: RUF001
        ("模", "U+6A21"),
        ("", ""),
    ],
)
def test_escape(written: str, escaped: str) -> None:
    assert escape(written) == escaped


def test_a_long_name_may_break() -> None:
    assert escape("k" * 100) == rf"{'k' * 40}\allowbreak{{}}{'k' * 40}\allowbreak{{}}{'k' * 20}"


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_balanced(written: str) -> None:
    escaped = escape(written)
    check_structure(escaped)
    assert escaped.isascii() or all(char.isalpha() for char in escaped if not char.isascii())
    assert not re.search(r"(?<!\\)[%#$&_^~]", escaped.replace("~", "") if any(c in written for c in "│├└") else escaped)


def test_totals_follow_below_a_rule() -> None:
    heads = (Head(key="a", title="name", name=True), Head(key="b", title="time step", unit="ns"))
    table = Table(name="t", caption="c_1", heads=heads, rows=(("x_1", 5), ("[y]", 7)), totals=(("total", 12),))
    latex = page(table)
    check_structure(latex)
    assert r"\emph{c\_1}" in latex
    assert re.search(r"\\toprule\nname +& +\\shortstack\[r\]\{time \\\\ step\} +\\\\\n\\midrule\n\\endhead\n", latex)
    assert re.search(r"x\\_1 +& +5 ns", latex)
    assert re.search(r"\{\[\}y\] +& +7 ns", latex)
    assert re.search(r"\\midrule \\textbf\{total\} & +\\textbf\{12 ns\} \\\\\n\\bottomrule", latex)


def test_empty_lists_and_tables_are_valid() -> None:
    latex = page(FindingList(findings=()), Table(name="t", caption="", heads=(), rows=()))
    assert "enumerate" not in latex
    assert "longtable" not in body(latex)
    heads = (Head(key="a", title="alpha"), Head(key="b", title="beta", unit="ns"))
    check_structure(page(Table(name="t", caption="", heads=heads, rows=())))


def test_a_log_keeps_its_lines_and_cannot_end_its_environment() -> None:
    latex = page(Paragraph(text="one\n  two\n\n\\end{quote}", role="log"))
    check_structure(latex)
    assert "\\mbox{}one\\\\\n\\mbox{}~~two\\\\\n\\mbox{}\\\\\n\\mbox{}\\textbackslash{}end" in latex


def test_columns_that_do_not_fit_are_listed() -> None:
    latex = render(report_document(v0_h100()))
    assert "Columns without space: " in latex


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
@pytest.mark.parametrize("report", [hostile, v0_h100], ids=["hostile", "v0_h100"])
def test_it_compiles(report: object, tmp_path: Path) -> None:
    assert callable(report)
    (tmp_path / "report.tex").write_text(render(report_document(report())), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "report.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Missing character" not in done.stdout
