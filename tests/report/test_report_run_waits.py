"""What a report shows of the idle time and the waits of a run's traced steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sample_reports import SAMPLES
from traced_runs import step_of

from profiler_kit.diagnosis import diagnose
from profiler_kit.pipeline.run_traces import attribute_run_trace
from profiler_kit.records.document import Document, Paragraph, Section, Table
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval
from profiler_kit.records.serde import dumps, loads_report
from profiler_kit.report import sentences
from profiler_kit.report.document import report_document
from profiler_kit.report.frames import dataframe

TRACES = Path(__file__).parents[1] / "fixtures" / "traces"


def with_trace(sample: str, trace: str) -> Report:
    """A sample report whose baseline has the traced steps of a recorded trace, and takes as long as they do."""
    report = SAMPLES[sample]()
    baseline = report.baseline()
    assert baseline is not None
    run, annotation, *_ = attribute_run_trace(baseline, TRACES / trace)
    assert annotation.spans
    assert run.span_ns is not None
    run = replace(run, step_ns=Interval(median=run.span_ns, low=run.span_ns, high=run.span_ns))
    return replace(report, runs=tuple(run if r is baseline else r for r in report.runs), roofline=())


@pytest.fixture(scope="module")
def cuda() -> Report:
    return with_trace("v0_cuda", "train.cuda.json.gz")


def baseline(report: Report) -> ConfigRun:
    run = report.baseline()
    assert run is not None
    return run


def section(document: Document, title: str) -> Section | None:
    return next((s for s in document.sections if s.title == title), None)


def table(idle_section: Section | None) -> Table:
    assert idle_section is not None
    return next(block for block in idle_section.blocks if isinstance(block, Table))


def test_the_idle_time_of_a_device_that_waits_is_on_the_first_page(cuda: Report) -> None:
    document, run = report_document(cuda), baseline(cuda)
    idle_section = section(document, "Idle time")
    assert idle_section is not None
    assert not idle_section.detail
    (sentence,) = (block.text for block in idle_section.blocks if isinstance(block, Paragraph))
    assert sentence.startswith("Device busy 1.7 % of a traced step: 65.9 us of 3.91 ms.")
    idle_table = table(idle_section)
    assert [head.key for head in idle_table.heads] == ["cause", "ns", "span_percent", "gaps", "before"]
    assert [row[0] for row in idle_table.rows] == ["op dispatch", "python", "launch latency", "synchronization"]
    (total,) = idle_table.totals
    assert total[1] == sum(part.ns for part in run.idle)
    assert total[1] == sum(int(row[1] or 0) for row in idle_table.rows)
    titles = [s.title for s in document.sections]
    assert titles.index("Idle time") == titles.index("Phases") + 1


def test_little_idle_time_and_a_cpu_s_are_for_detail() -> None:
    little = section(report_document(SAMPLES["v0_cuda"]()), "Idle time")
    assert little is not None
    assert little.detail
    on_cpu = section(report_document(with_trace("v0_cpu", "train.cpu.json.gz")), "Idle time")
    assert on_cpu is not None
    assert on_cpu.detail
    assert [row[0] for row in table(on_cpu).rows] == ["python"]


def test_a_report_without_idle_times_has_no_section_of_them() -> None:
    document = report_document(SAMPLES["v0_cpu"]())
    assert {"Idle time", "Host waits", "Host and device time by phase"}.isdisjoint(s.title for s in document.sections)


def test_waits_and_the_host_beside_the_device(cuda: Report) -> None:
    document = report_document(cuda)
    waits = section(document, "Host waits")
    assert waits is not None
    assert [row[:3] for row in table(waits).rows] == [("aten::item", "cudaStreamSynchronize", "loss")]
    assert any("at a time" in block.text for block in waits.blocks if isinstance(block, Paragraph))
    phases = table(section(document, "Host and device time by phase"))
    assert [head.key for head in phases.heads][:4] == ["phase", "host_ns", "waited_ns", "device_ns"]
    assert [row[0] for row in phases.rows] == ["forward", "loss", "backward", "optimizer"]


def test_programs_get_every_runs_idle_times_and_waits(cuda: Report) -> None:
    pytest.importorskip("pandas")
    run = baseline(cuda)
    idle, waits = dataframe(cuda, "idle"), dataframe(cuda, "waits")
    assert idle[idle["config"] == run.config.name]["ns"].sum() == sum(part.ns for part in run.idle)
    assert set(idle["config"]) > {run.config.name}  # the other runs of the sample have some too
    assert waits["wait_ns"].tolist() == [wait.wait_ns for wait in step_of(run).syncs]


def test_they_are_saved_with_the_report(cuda: Report) -> None:
    saved = baseline(loads_report(dumps(cuda), "saved.json"))
    run = baseline(cuda)
    assert (saved.idle, step_of(saved).syncs, step_of(saved).queue, saved.phases) == (
        run.idle,
        step_of(run).syncs,
        step_of(run).queue,
        run.phases,
    )
    assert saved.span_ns == run.span_ns


def test_the_causes_stand_in_the_finding_that_rests_on_them(cuda: Report) -> None:
    (finding,) = (f for f in diagnose(cuda) if f.rule == "launch_bound")
    assert all(f"{cause} " in finding.explanation for cause in ("op dispatch", "python", "launch latency"))
    idle_ns = next(item.value for item in finding.evidence if item.name == "idle time before launches")
    assert finding.weight == pytest.approx(
        idle_ns / next(item.value for item in finding.evidence if item.name == "span")
    )


def test_the_replay_of_the_traced_steps_stands_beside_the_timed_steps(cuda: Report) -> None:
    run = cuda.baseline()
    assert run is not None
    replayed = run.untraced_step_ns
    assert replayed is not None
    assert run.profiler_scale is not None
    agreeing, slower = (
        sentences.steps(replace(run, step_ns=Interval(median=ns, low=ns, high=ns)))
        for ns in (replayed.median, 2 * replayed.high)
    )
    assert slower.startswith(agreeing)
    assert len(slower) > len(agreeing)


@pytest.mark.parametrize(("factor", "scale"), [(1.0, 1.0), (10.0, 0.0)])
def test_the_cost_of_the_profiler_is_calibrated_by_the_timed_steps(factor: float, scale: float) -> None:
    run = SAMPLES["v0_cuda"]().baseline()
    assert run is not None
    replayed = attribute_run_trace(run, TRACES / "train.cuda.json.gz").run.untraced_step_ns
    assert replayed is not None
    ns = round(factor * replayed.median)
    timed = replace(run, step_ns=Interval(median=ns, low=ns, high=ns))
    calibrated = attribute_run_trace(timed, TRACES / "train.cuda.json.gz").run.profiler_scale
    assert calibrated == pytest.approx(scale, abs=0.01)
