"""CSV: every row, raw values, stable keys, nothing a spreadsheet would run."""

from __future__ import annotations

import csv
import io

import pytest

from profiler_kit.records.document import Document, Head, Table
from profiler_kit.records.report import Report
from profiler_kit.render import RenderOptions, renderer_by_name
from profiler_kit.report import report_document


def render(document: Document) -> str:
    return renderer_by_name("csv").render(document, RenderOptions())


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_sums_can_be_taken_from_the_file(v0_report: Report) -> None:
    result = rows(render(report_document(v0_report, top=1, depth=0)))
    assert v0_report.static is not None
    assert sum(int(row["macs_forward"] or 0) for row in result) == v0_report.static.forward.macs
    assert sum(int(row["saved_bytes"] or 0) for row in result) == v0_report.static.saved_bytes
    assert sum(int(row["kernel_ns"] or 0) for row in result) == v0_report.runs[0].device_ns


def test_unknown_is_empty_and_zero_is_zero(v0_report: Report) -> None:
    by_path = {row["path"]: row for row in rows(render(report_document(v0_report)))}
    assert by_path["(optimizer)"]["macs_forward"] == ""
    assert by_path[""]["macs_forward"] == "0"
    assert by_path["conv2"]["params"] == "384050"


def test_the_header_is_the_same_for_every_report(any_report: Report, v0_report: Report) -> None:
    header = render(report_document(v0_report)).split("\r\n")[0]
    text = render(report_document(any_report))
    assert text.split("\r\n")[0] == header
    assert text.endswith("\r\n")
    assert all(len(line) == len(header.split(",")) for line in csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "  =1"])
def test_text_is_never_a_formula(text: str) -> None:
    table = Table(
        name="t",
        caption="",
        heads=(Head(key="name", title="name"), Head(key="n", title="n", unit="ns")),
        rows=((text, -5),),
    )
    (row,) = rows(render(Document(title="t", sections=(), json="{}", full=(table,))))
    assert row["name"].startswith("'")
    assert row["n"] == "-5"  # a number stays one


def test_quotes_commas_and_types() -> None:
    heads = tuple(Head(key=key, title=key) for key in "abcd")
    table = Table(name="t", caption="", heads=heads, rows=(('say "hi", you', True, 0.1, None),))
    text = render(Document(title="t", sections=(), json="{}", full=(table,)))
    assert text == 'a,b,c,d\r\n"say ""hi"", you",true,0.1,\r\n'
