"""Predicted and measured peaks side by side."""

from __future__ import annotations

from dataclasses import replace

from sample_reports import v0_cpu, v0_cuda

from profiler_kit.records.counts import DeviceMemory, MemoryCategories
from profiler_kit.records.document import Section, Table
from profiler_kit.records.report import Report
from profiler_kit.report import report_document
from profiler_kit.report.tables import memory_table, peaks_table

MB = 1_000_000
TITLE = "Predicted and measured peaks"


def device(nbytes: int, path: str) -> DeviceMemory:
    return DeviceMemory(
        profile="sm90", allocated_bytes=nbytes, allocated_low_bytes=nbytes, allocated_high_bytes=nbytes,
        reserved_bytes=nbytes, categories=MemoryCategories(workspace=nbytes - 512), rounding_bytes=512,
        peak_phase="backward", peak_path=path, peak_op="aten.convolution_backward", after_forward_bytes=0,
    )  # fmt: skip


def predicted() -> Report:
    """The sample of a GPU, predicted to peak at 400 MB by rules, and with its scratch a percent below every measured peak."""
    report = v0_cuda()
    assert report.static is not None
    assert report.static.memory is not None
    memory = replace(report.static.memory, device=device(400 * MB, "conv1"))
    runs = tuple(
        run
        if run.peak_allocated_bytes is None
        else replace(run, predicted=device(run.peak_allocated_bytes * 99 // 100, "conv2"))
        for run in report.runs
    )
    return replace(report, static=replace(report.static, memory=memory), runs=runs)


def cells(table: Table, key: str) -> list[object]:
    at = [head.key for head in table.heads].index(key)
    return [row[at] for row in table.rows]


def sections(report: Report) -> dict[str, Section]:
    return {section.title: section for section in report_document(report).sections}


def test_every_run_stands_with_both_predictions_and_its_measurement() -> None:
    report = predicted()
    measured = [run for run in report.runs if run.peak_allocated_bytes is not None]
    table = peaks_table(report)
    assert table is not None
    assert cells(table, "config") == [run.config.name for run in measured]
    assert cells(table, "measured_bytes") == [run.peak_allocated_bytes for run in measured]
    assert set(cells(table, "rule_bytes")) == {400 * MB}
    for given, off in zip(measured, cells(table, "scratch_off_percent"), strict=True):
        assert isinstance(off, float)
        assert abs(off + 1) < 0.01, given.config.name
    assert TITLE in sections(report)


def test_without_a_prediction_there_is_no_such_table_on_the_page() -> None:
    assert TITLE not in sections(v0_cuda())
    assert TITLE not in sections(v0_cpu())


def test_the_peak_taken_apart_is_predicted_beside_the_measured_one() -> None:
    report = predicted()
    table = memory_table(report, report.runs[:1])
    assert table is not None
    name = report.runs[0].config.name
    assert cells(table, "source") == ["tensors", "sm90", f"{name}, predicted", name]
