"""Reports as dashboards: series, and settings of which every run has a value."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sample_reports import count_only, failed, v0_cpu, v0_cuda
from trace_reports import convnet, host_only, traces, two_ranks

from profiler_kit.records.configs import NamedValue, RunConfig
from profiler_kit.records.dashboard import Dashboard
from profiler_kit.records.document import Chart
from profiler_kit.records.report import Report
from profiler_kit.report.dashboard import report_dashboard, traces_dashboard


def settings(report: Report) -> list[dict[str, object]]:
    return [dict(run.settings) for run in report_dashboard(report).runs]


def values(dashboard: Dashboard, run: int = 0) -> dict[str, tuple[tuple[int, float], ...]]:
    return {series.tag: series.points for series in dashboard.runs[run].series}


def with_configs(*configs: RunConfig) -> Report:
    report = v0_cuda()
    return replace(report, runs=tuple(replace(report.runs[0], config=config) for config in configs))


def test_every_run_has_a_value_of_every_axis() -> None:
    flags = {"enabled": True, "benchmark": False, "deterministic": False, "allow_tf32": True}
    plain = RunConfig(name="default", **flags)
    layout = RunConfig(name="layout", **flags, settings=(NamedValue(name="channels_last", value="on"),))
    batch = RunConfig(name="batch", **flags, settings=(NamedValue(name="batch", value="16"),))
    shown = settings(with_configs(plain, layout, batch))
    model = {"model": "ConvNetV0"}
    assert shown == [
        {**model, **flags, "channels_last": False, "batch": "default"},
        {**model, **flags, "channels_last": True, "batch": "default"},
        {**model, **flags, "channels_last": False, "batch": "16"},
    ]


def test_a_device_without_cudnn_has_no_flags() -> None:
    assert all(set(shown) == {"model"} for shown in settings(with_configs(RunConfig(name="default"))))


def test_a_repeated_run_has_the_group_of_its_first_one() -> None:
    report = v0_cuda()
    groups = {run.name: run.group for run in report_dashboard(report).runs}
    repeats = [run.config for run in report.runs if run.config.repeat_of is not None]
    assert repeats
    for config in repeats:
        assert groups[config.name] == groups[config.repeat_of or ""]
    assert len(set(groups.values())) == len(report.runs) - len(repeats)
    later = report_dashboard(replace(report, created="2027-01-01T00:00:00+00:00"))
    assert not {run.group for run in later.runs} & set(groups.values())


def test_series_of_a_run() -> None:
    report = v0_cuda()
    run = replace(report.runs[0], samples=8)
    report = replace(report, runs=(run,))
    assert run.step_ns is not None
    shown = values(report_dashboard(report))
    assert shown["step/time_ms"] == tuple((i, ns / 1e6) for i, ns in enumerate(run.steps_ns))
    assert shown["step/median_ms"] == ((0, run.step_ns.median / 1e6),)
    assert shown["throughput/examples_per_s"] == ((0, pytest.approx(8e9 / run.step_ns.median)),)
    for timing in run.phases:
        assert shown[f"phases/device/{timing.phase}_ms"] == ((0, (timing.kernel_ns or 0) / 1e6),)
        assert (f"phases/event/{timing.phase}_ms" in shown) == (timing.event_ns is not None)


def test_another_batch_size_has_no_rate_of_the_counted_flops() -> None:
    config = RunConfig(name="batch", settings=(NamedValue(name="batch", value="16"),))
    assert "throughput/tflop_per_s" in values(report_dashboard(with_configs(RunConfig(name="default"))))
    assert "throughput/tflop_per_s" not in values(report_dashboard(with_configs(config)))


def test_metrics_are_those_that_runs_have() -> None:
    assert [metric.tag for metric in report_dashboard(failed()).metrics] == []
    assert {run.failed for run in report_dashboard(failed()).runs} == {True}
    assert "step/median_ms" in [metric.tag for metric in report_dashboard(v0_cpu()).metrics]


def test_a_count_has_figures_of_the_whole_report() -> None:
    dashboard = report_dashboard(count_only())
    static = count_only().static
    assert static is not None
    assert dashboard.runs == ()
    assert {series.tag: series.points for series in dashboard.series}["work/forward_gflop"] == (
        (0, static.forward.flops / 1e9),
    )
    assert all(isinstance(chart, Chart) for chart in dashboard.charts)


def test_steps_of_a_trace_are_series() -> None:
    summary = convnet()
    shown = values(traces_dashboard(traces(summary)))
    assert shown["step/busy_ms"] == tuple((step.number, step.kernel_ns / 1e6) for step in summary.steps)
    known = [(step.number, step.device_ns / 1e6) for step in summary.steps if step.device_ns is not None]
    assert list(shown["step/time_ms"]) == known
    assert shown["trace/busy_ms"][0][1] + shown["trace/idle_ms"][0][1] == pytest.approx(shown["trace/span_ms"][0][1])
    assert [run.name for run in traces_dashboard(two_ranks()).runs] == [two_ranks().name(t) for t in two_ranks().traces]
    assert "trace/span_ms" in values(traces_dashboard(traces(host_only())))


def test_an_unreadable_time_of_creation() -> None:
    assert report_dashboard(replace(count_only(), created="yesterday")).created_s == 0
    assert report_dashboard(replace(count_only(), created="1970-01-02T00:00:00Z")).created_s == 86400
