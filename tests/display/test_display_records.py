"""Records in a shell and in a notebook: one line, a summary, files, and a page that nothing outside it can touch."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest
from sample_reports import hostile

import profiler_kit
from profiler_kit.cli import main
from profiler_kit.errors import UsageError
from profiler_kit.records.report import Report
from profiler_kit.records.serde import dumps, read_saved
from profiler_kit.render import RenderOptions, renderer_by_name
from profiler_kit.report.results import result_document

ROOT = Path(__file__).resolve().parents[2]
FROZEN = ROOT / "tests" / "fixtures" / "frozen"
MEASURED = ROOT / "docs" / "measured" / "convnet_v0_h100.json"
LINES = {
    "check": "<CheckResult Small: 1 of 2 budgets broken, please read>",
    "comparison": "<Comparison Small (small.py) -> Small (small_wide.py): 1 of 5 layers changed>",
    "machine": "<Machine Linux-6.18.44-fc-v595-x86_64-with-glibc2.36: Intel(R) Xeon(R) Processor>",
    "report_count": "<Report Small: 1.092 M FLOPs, 1 finding>",
    "report_cuda": "<Report ConvNetV0: 27.07 ms per training step, 1.214 T FLOPs, 2 runs, 4 findings>",
    "report_failed": "<Report Broken: 1.688 K FLOPs, 1 run, 1 finding>",
    "trace_comparison": "<TraceComparison rank0 -> rank1: 27.69 ms -> 27.49 ms per trace>",
    "trace_report": "<TraceReport rank0: 27.69 ms, 32.1 % busy, 1 finding>",
}


class Output(HTMLParser):
    """The HTML of an output: its tags in order, the attributes of its frame, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.frame: dict[str, str | None] = {}
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "iframe":
            self.frame = dict(attributes)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("name", LINES)
def test_a_record_is_one_line_in_a_shell(name: str) -> None:
    assert repr(read_saved(FROZEN / f"{name}.json")) == LINES[name]


@pytest.mark.parametrize("file", [MEASURED, *(FROZEN / f"{name}.json" for name in ("check", "comparison", "machine"))])
def test_print_shows_what_the_command_line_shows(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(file)]) == 0
    assert f"{read_saved(file)}\n" == capsys.readouterr().out


@pytest.mark.parametrize("name", LINES)
def test_a_notebook_shows_the_page_of_a_record(name: str) -> None:
    record = read_saved(FROZEN / f"{name}.json")
    output = Output(record._repr_html_())
    assert output.tags == ["div", "pre", "iframe"]
    document = result_document(record, complete=True)
    assert output.frame["srcdoc"] == renderer_by_name("html").render(document, RenderOptions(detail=True))
    assert output.frame["title"] == document.title
    assert output.text.strip() == str(record)


def test_names_of_a_model_stay_inside_the_page() -> None:
    report = hostile()
    assert "<" in report.target.name + report.target.spec + str(report)
    assert Output(report._repr_html_()).tags == ["div", "pre", "iframe"]
    assert Output(report.plot("icicle")._repr_mimebundle_()["text/html"]).tags == ["div", "img", "iframe"]


def test_save_writes_the_format_of_the_suffix(tmp_path: Path) -> None:
    report = profiler_kit.read_report(MEASURED)
    assert report.save(tmp_path / "copy.json") == tmp_path / "copy.json"
    assert (tmp_path / "copy.json").read_text(encoding="utf-8") == dumps(report)
    assert profiler_kit.read_report(tmp_path / "copy.json") == report
    page = report.save(tmp_path / "copy.html").read_text(encoding="utf-8")
    assert page == Output(report._repr_html_()).frame["srcdoc"]
    table = report.save(tmp_path / "copy.csv").read_bytes()
    assert table.startswith(b"path,")
    assert table.count(b"\r\n") == 1 + len(report.to_dataframe("layers"))
    with pytest.raises(UsageError, match="cannot infer a format"):
        report.save(tmp_path / "copy.doc")


def test_the_functions_of_the_package_are_the_methods(v0_report: Report) -> None:
    assert profiler_kit.summary(v0_report) == str(v0_report)
    assert profiler_kit.notebook_html(v0_report) == v0_report._repr_html_()
    assert profiler_kit.plot(v0_report, "phases") == v0_report.plot("phases")
    assert profiler_kit.dataframe(v0_report, "runs").equals(v0_report.to_dataframe("runs"))
