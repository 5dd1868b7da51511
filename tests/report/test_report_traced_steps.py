"""A report shows, saves and compares the traced steps of a run by the code that does so for a trace."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from sample_reports import SAMPLES
from test_report_run_waits import baseline, section, table, with_trace

from profiler_kit.comparison.traces import compare_steps
from profiler_kit.pipeline.inspect import inspect
from profiler_kit.records.document import Document, Paragraph, Table
from profiler_kit.records.inspect_options import TraceView
from profiler_kit.records.marks import is_mark
from profiler_kit.records.mean_step import mean_step
from profiler_kit.records.report import Report
from profiler_kit.records.runs import MEAN_NAMES
from profiler_kit.records.serde import dumps, loads_report
from profiler_kit.records.traces import TraceSummary
from profiler_kit.report import report_document, traces_document
from profiler_kit.report.frames import dataframe

TRACES = Path(__file__).parents[1] / "fixtures" / "traces"
VIEWS = [view for view in get_args(TraceView) if view != "rank"]


@pytest.fixture(scope="module", params=["cuda", "cpu"])
def report(request: pytest.FixtureRequest) -> Report:
    return with_trace(f"v0_{request.param}", f"train.{request.param}.json.gz")


def step_of(report: Report) -> TraceSummary:
    step = baseline(report).mean_step
    assert step is not None
    return step


def main_table(document: Document) -> Table | None:
    blocks = [block for each in document.sections for block in each.blocks]
    return next((block for block in blocks if isinstance(block, Table)), None)


def test_the_mean_step_is_a_trace_whose_parts_sum(report: Report) -> None:
    run, step = baseline(report), step_of(report)
    assert (step.span_ns, step.idle) == (run.span_ns, run.idle)
    assert step.busy_ns + step.idle_ns == step.span_ns
    assert sum(module.kernel_ns for module in step.modules) + step.unattributed_ns == step.busy_ns
    assert sum(timing.kernel_ns or 0 for timing in step.phases) + step.unattributed_ns == step.busy_ns
    assert sum(timing.idle_ns for timing in step.phases) <= step.idle_ns
    assert not step.steps
    assert run.traced is not None
    assert step.sites == run.traced.sites


def test_a_mean_without_steps_is_its_own_mean() -> None:
    step = baseline(SAMPLES["v0_cuda"]()).mean_step
    assert step is not None
    assert not step.steps
    assert mean_step(step) == step


@pytest.mark.parametrize("by", VIEWS)
def test_a_view_has_the_columns_of_inspect(report: Report, by: TraceView) -> None:
    step = step_of(report)
    kind = "cuda" if step.clock == "device" else "cpu"
    of_run = main_table(report_document(report, by=by, top=None))
    of_trace = main_table(traces_document(inspect(TRACES / f"train.{kind}.json.gz").report, by=by, top=None))
    assert (of_run is None) == (of_trace is None)
    if of_run is not None and of_trace is not None:
        keys = [[head.key for head in shown.heads] for shown in (of_run, of_trace)]
        assert keys[0][0] == keys[1][0]
        assert len({*keys[0]} & {*keys[1]}) >= min(map(len, keys)) - 1  # a column without values is hidden


@pytest.mark.parametrize("sample", ["v0_cuda", "failed", "count_only"])
@pytest.mark.parametrize("by", get_args(TraceView))
def test_every_report_has_every_view_or_says_that_it_lacks_the_data(sample: str, by: TraceView) -> None:
    document = report_document(SAMPLES[sample](), by=by)
    blocks = [block for each in document.sections for block in each.blocks]
    assert any(isinstance(block, Table | Paragraph) for block in blocks) or by == "rank"


def test_the_main_table_of_a_view_is_that_of_csv(report: Report) -> None:
    names = [report_document(report, by=by).full[0].name for by in VIEWS]  # type: ignore[index]
    assert names == [
        *("phases", "modules", "operators", "kernels", "idle", "host", "places", "streams", "steps", "waits")
    ]


def test_what_the_host_runs_is_on_the_first_page_of_a_device_that_waits(report: Report) -> None:
    host = section(report_document(report), "Host during idle time")
    assert host is not None
    names = [str(row[0]) for row in table(host).rows]
    assert names
    assert not any(map(is_mark, names))
    step = step_of(report)
    assert host.detail == (step.idle_ns < 0.2 * step.span_ns)
    assert (section(report_document(report), "Places") is not None) == bool(step.sites)


def test_data_frames_have_the_tables_of_inspect_by_configuration(report: Report) -> None:
    pytest.importorskip("pandas")
    run = baseline(report)
    kernels = dataframe(report, "module_kernels")
    of_run = kernels[kernels["config"] == run.config.name]
    assert of_run["kernel_ns"].sum() == run.device_ns
    whole = dataframe(report, "kernels")
    assert whole[whole["config"] == run.config.name]["name"].tolist() == [kernel.name for kernel in run.kernels]
    steps = dataframe(report, "steps")
    assert steps[steps["config"] == run.config.name]["number"].tolist() == [1, 2]


def test_a_file_has_each_figure_of_a_step_once(report: Report) -> None:
    text = dumps(report)
    saved = json.loads(text)["runs"][0]
    assert {"clock", "kernels", "span_ns", "activities", "waits", "queue", "untraced_step_ns"}.isdisjoint(saved)
    assert set(MEAN_NAMES) <= set(saved)
    assert saved["traced"]["activities"]
    assert "compile_ns" not in saved["traced"]  # it has its default
    kernels = [kernel for layer in saved["modules"] for kernel in layer["kernels"] if "traced" in kernel]
    assert len(kernels) > sum(len(module.get("kernels", ())) for module in saved["traced"]["modules"])
    assert all(abs(kernel["traced"][1] - 2 * kernel["kernel_ns"]) <= 2 for kernel in kernels)  # of two steps
    opened = loads_report(text, "saved.json")
    assert opened == report
    assert dumps(opened) == text
    assert opened.runs[0].kernels == report.runs[0].kernels


def test_steps_of_two_runs_compare_as_traces_do(report: Report) -> None:
    run = baseline(report)
    compared = compare_steps(run, run, ("A", "B"))
    assert compared is not None
    assert (compared.a.label, compared.b.label, compared.per) == ("A", "B", "step")
    assert compared.span.a_ns == compared.span.b_ns == run.span_ns
    assert sum(row.a_ns for row in (*compared.phases, *compared.causes)) == run.span_ns
    assert all(not row.change_ns for row in (*compared.kernels, *compared.operators, *compared.waits))
    step = step_of(report)
    other = replace(step, clock="host" if step.clock == "device" else "device")
    assert compare_steps(run, replace(run, traced=other), ("A", "B")) is None
    assert compare_steps(run, replace(run, traced=None), ("A", "B")) is None
