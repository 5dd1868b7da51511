"""Single charts: their names, their options, and their forms in notebooks and files."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from pathlib import Path

import pytest
from trace_reports import convnet, nested, traces, two_ranks

import profiler_kit
from profiler_kit.display import plots
from profiler_kit.errors import UsageError
from profiler_kit.pipeline.inspect import Inspection
from profiler_kit.records.document import Chart, Document
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.serde import read_saved
from profiler_kit.records.trace_comparison import TraceComparison
from profiler_kit.report.results import result_document

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
PNG = b"\x89PNG\r\n\x1a\n"


def charts(document: Document) -> list[Chart]:
    return [block for section in document.sections for block in section.blocks if isinstance(block, Chart)]


def hint(error: pytest.ExceptionInfo[UsageError]) -> str:
    return error.value.hint or ""


def test_every_chart_of_a_report_has_a_name_of_its_own(any_report: Report) -> None:
    drawn = charts(result_document(any_report))
    names = [chart.name for chart in drawn]
    assert "" not in names
    assert len(set(names)) == len(names)
    for chart in drawn:
        assert any_report.plot(chart.name).chart.title == chart.title
    with pytest.raises(UsageError, match="a report has no chart 'pie'") as error:
        any_report.plot("pie")
    assert [name for name in names if name not in hint(error)] == []


@pytest.mark.parametrize("name", ["check", "comparison", "trace_comparison", "trace_report"])
def test_other_records_have_charts_with_names(name: str) -> None:
    record = read_saved(FIXTURES / "frozen" / f"{name}.json")
    names = [chart.name for chart in charts(result_document(record))]
    assert names
    assert "" not in names
    assert len(set(names)) == len(names)
    assert isinstance(record, TraceReport) or "waterfall" in names


def test_charts_of_a_run(v0_report: Report) -> None:
    by_run = {run: v0_report.plot("phases", run=run).chart.data["parts"] for run in (None, "default", "no-tf32")}
    assert by_run[None] == by_run["default"]
    assert by_run[None] != by_run["no-tf32"]
    with pytest.raises(UsageError, match="cats"):
        v0_report.plot("phases", run="cats")
    with pytest.raises(UsageError, match="no configurations"):
        traces(nested()).plot("phases", run="default")


def test_the_first_figure_of_a_chart_is_the_requested_one(v0_report: Report) -> None:
    keys = [size["key"] for size in v0_report.plot("icicle").chart.data["sizes"]]
    assert keys[0] == "time"
    chosen = v0_report.plot("icicle", by="memory").chart.data
    assert [size["key"] for size in chosen["sizes"]] == ["memory", *(key for key in keys if key != "memory")]
    assert chosen["nodes"] == v0_report.plot("icicle").chart.data["nodes"]
    with pytest.raises(UsageError, match="no figure 'taste'") as error:
        v0_report.plot("icicle", by="taste")
    assert hint(error) == f"choose one of: {', '.join(keys)}"
    with pytest.raises(UsageError, match="shows one figure"):
        v0_report.plot("phases", by="time")


def test_charts_of_one_of_several_traces() -> None:
    report = traces(convnet("a/run.json"), nested())
    first, second = report.plot("phases"), report.plot("phases", trace=1)
    assert first.chart == traces(convnet("a/run.json")).plot("phases").chart
    assert second.chart == traces(nested()).plot("phases").chart
    assert second.subject == nested().file
    for selector in (-1, report.name(report.traces[1]), nested().file):
        assert report.plot("phases", trace=selector).chart == second.chart
    for selector in (2, "run2"):
        with pytest.raises(UsageError, match="no trace") as error:
            report.plot("phases", trace=selector)
        assert report.name(report.traces[0]) in hint(error)
    with pytest.raises(UsageError, match="no traces"):
        read_saved(FIXTURES / "frozen" / "comparison.json").plot("waterfall", trace=0)


def test_a_chart_of_all_ranks() -> None:
    report = two_ranks()
    assert repr(report).startswith("<TraceReport 2 traces: 2 ranks, ")
    assert report.plot("ranks").chart.data["unit"] == "ns"
    assert report.plot("ranks").subject == "ddp: 2 traces"
    assert report.plot("phases").subject == report.traces[0].file


def test_the_ranks_of_a_job_on_one_clock() -> None:
    inspection = profiler_kit.inspect(FIXTURES / "traces" / "ranks_cuda", timelines=True)
    chart = inspection.plot("ranks_timeline").chart
    assert chart.data["links"]
    assert (
        inspection.plot("timeline", trace=1).chart.data["boxes"]
        != inspection.plot("timeline", trace=0).chart.data["boxes"]
    )


def test_a_report_without_traces_has_no_charts() -> None:
    report = traces()
    assert repr(report) == "<TraceReport 0 traces: 0 findings>"
    inspection = Inspection(report=report, files=(), interrupted=True)
    for record in (report, inspection):
        with pytest.raises(UsageError, match="has no chart"):
            record.plot("timeline")


def test_a_record_without_charts() -> None:
    with pytest.raises(UsageError, match="a machine has no chart") as error:
        read_saved(FIXTURES / "frozen" / "machine.json").plot("phases")
    assert hint(error) == "this one has no charts"


def test_an_inspection_reads_the_timeline_when_it_is_plotted(monkeypatch: pytest.MonkeyPatch) -> None:
    file = FIXTURES / "traces" / "train.cuda.json.gz"
    inspection = profiler_kit.inspect(file)
    assert repr(inspection) == "<Inspection train.cuda: 8.004 ms, 1.6 % busy, 1 finding>"
    assert inspection.to_dataframe("phases").equals(inspection.report.to_dataframe("trace_phases"))
    assert str(inspection) == str(inspection.report)
    with pytest.raises(UsageError, match="no chart 'timeline'"):
        inspection.report.plot("timeline")
    timeline = inspection.plot("timeline")
    assert timeline.chart.kind == "timeline"
    assert timeline.chart.data["boxes"]
    with_timelines = profiler_kit.inspect(file, timelines=True)
    monkeypatch.delattr("profiler_kit.pipeline.trace_reading.extract_trace")  # nothing is read again
    assert with_timelines.plot("timeline").chart.data == timeline.chart.data
    assert "Timeline of step" in with_timelines._repr_html_()
    assert "Timeline of step" not in inspection._repr_html_()


def test_a_plot_in_a_notebook(v0_report: Report) -> None:
    pytest.importorskip("matplotlib")
    plot = v0_report.plot("icicle")
    bundle = plot._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", "image/png"}
    assert bundle["text/plain"] == repr(plot) == f"<Plot 'icicle': Module tree, {plot.subject}>"
    assert b64decode(bundle["image/png"]).startswith(PNG)
    assert bundle["image/png"] in bundle["text/html"]
    assert "frameElement.parentElement.style.height" in bundle["text/html"]
    assert "frameElement" not in v0_report._repr_html_()


def test_eight_charts_in_a_notebook_take_less_than_2_mb(v0_report: Report) -> None:
    names = ("phases", "configurations", "icicle", "memory")
    outputs = [v0_report.plot(name)._repr_mimebundle_() for name in names]
    assert 2 * sum(len(json.dumps(output)) for output in outputs) < 2_000_000


def test_a_plot_without_matplotlib(v0_report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    bundle = v0_report.plot("icicle")._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert "<p>Module tree, ConvNetV0" in bundle["text/html"]


def test_a_plot_is_saved_by_the_suffix_of_its_file(v0_report: Report, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot = v0_report.plot("icicle")
    assert plot.save(tmp_path / "x.png").read_bytes().startswith(PNG)
    assert "<svg" in plot.save(str(tmp_path / "x.svg")).read_text()
    page = plot.save(tmp_path / "x.html").read_text(encoding="utf-8")
    assert page.count('data-chart="') == 1
    assert "<nav" not in page
    assert "frameElement" not in page
    with pytest.raises(UsageError, match="cannot infer a format"):
        plot.save(tmp_path / "x.doc")
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["x.html", "x.png", "x.svg"]
    assert plot.figure().get_axes()


def test_the_waterfall_of_two_traces() -> None:
    compared = read_saved(FIXTURES / "frozen" / "trace_comparison.json")
    assert isinstance(compared, TraceComparison)
    rows = compared.plot("waterfall").chart.data["rows"]
    assert (rows[0]["end"], rows[-1]["end"]) == (compared.span.a_ns, compared.span.b_ns)


def test_the_page_on_python_lists_the_kinds_of_charts() -> None:
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "python.md").read_text(encoding="utf-8")
    rows = page.partition("| record | kinds |")[2].partition("\n\n")[0]
    code = "".join(file.read_text() for file in (root / "profiler_kit" / "report" / "charts").glob("*.py"))
    names = re.findall(r'^ +name="(\w+)",$', code, re.MULTILINE)
    assert len(re.findall(r"\bChart\(\n", code)) == len(names)
    assert set(re.findall(r"`(\w+)`", rows)) == set(names)
