"""A measured peak beside the predicted one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from diagnose_cases import MIB, cpu, of_rule, v0

from profiler_kit.diagnosis import diagnose
from profiler_kit.records.counts import DeviceMemory, MemoryCategories, MemoryEstimate
from profiler_kit.records.report import Finding, Report

LOW, LIKELY, HIGH = 380, 400, 600


def source(
    measured_mib: float, *, base: Report | None = None, predicted_mib: float | None = None, other_mib: float = LIKELY
) -> Report:
    """A report whose baseline peaked at `measured_mib`, predicted to be 400 MiB, or 380 to 600; all others at `other_mib`.

    `predicted_mib`: what is predicted for the baseline with measured scratch.
    """
    base = base or v0()
    device = DeviceMemory(
        profile="sm90", allocated_bytes=LIKELY * MIB, allocated_low_bytes=LOW * MIB, allocated_high_bytes=HIGH * MIB,
        reserved_bytes=700 * MIB, categories=MemoryCategories(), rounding_bytes=0, peak_phase="backward",
        peak_path="conv2", peak_op="aten.convolution_backward", after_forward_bytes=0,
    )  # fmt: skip
    memory = MemoryEstimate(peak_bytes=0, peak_at="", categories=MemoryCategories(), device=device)
    baseline = base.baseline()
    assert baseline is not None
    assert base.static is not None
    found = None
    if predicted_mib is not None:
        parts = MemoryCategories(parameters=2 * MIB, gradients=0, optimizer_state=2 * MIB, inputs=6 * MIB, workspace=0)
        found = replace(device, allocated_bytes=round(predicted_mib * MIB), categories=parts, peak_path="conv9")
    runs = tuple(
        replace(run, peak_allocated_bytes=round(measured_mib * MIB), predicted=found)
        if run is baseline
        else replace(run, peak_allocated_bytes=round(other_mib * MIB) if run.peak_allocated_bytes else None)
        for run in base.runs
    )
    return replace(base, runs=runs, static=replace(base.static, memory=memory))


def findings(report: Report) -> tuple[Finding, ...]:
    return of_rule(diagnose(report), "memory_prediction")


@pytest.mark.parametrize("measured_mib", [389, 400, 411])
def test_a_peak_as_predicted_is_no_finding(measured_mib: float) -> None:
    assert findings(source(measured_mib)) == ()


@pytest.mark.parametrize(
    ("measured_mib", "severity", "error"),
    [
        (500, "info", "25.0 % above"),
        (383, "info", "4.2 % below"),
        (700, "low", "75.0 % above"),
        (300, "low", "25.0 % below"),
    ],
)
def test_a_peak_off_the_prediction(measured_mib: float, severity: str, error: str) -> None:
    (finding,) = findings(source(measured_mib))
    assert finding.severity == severity
    assert error in finding.title
    assert "400 MiB" in finding.title
    assert ("380 MiB to 600 MiB" in finding.explanation) == (severity == "info")


def test_without_a_prediction_or_a_gpu_there_is_nothing_to_compare() -> None:
    assert findings(v0()) == ()
    on_a_cpu = cpu()
    if on_a_cpu.static is not None:
        assert findings(source(900, base=on_a_cpu)) == ()


def test_measured_workspace_that_explains_the_peak_comes_with_both_places() -> None:
    (finding,) = findings(source(500, predicted_mib=498))
    assert finding.severity == "info"
    assert "25.0 % above" in finding.title
    assert "498 MiB" in finding.explanation
    assert "aten.convolution_backward of conv9" in finding.explanation  # where the peak is with measured workspace
    assert "aten.convolution_backward of conv2" in finding.explanation  # and by the rules
    assert [piece.value for piece in finding.evidence] == [500 * MIB, LIKELY * MIB, 498 * MIB]


def test_a_peak_that_measured_workspace_does_not_explain_names_category_and_op() -> None:
    report = source(500, predicted_mib=430)
    baseline = report.baseline()
    assert baseline is not None
    assert baseline.memory is not None
    (finding,) = findings(report)
    assert finding.severity == "low"
    assert "16.3 % above" in finding.title
    assert "430 MiB" in finding.title
    assert baseline.memory.peak_op in finding.explanation
    assert "conv9" in finding.explanation
    probe = baseline.memory
    tensors = probe.saved_activations + probe.rest
    assert (
        "activations and other tensors" if tensors > probe.workspace else "library workspace"
    ) in finding.explanation


def test_a_prediction_that_holds_by_rules_only_is_a_coincidence() -> None:
    (finding,) = findings(source(400, predicted_mib=350))
    assert finding.severity == "low"
    assert "14.3 % above" in finding.title
    assert "350 MiB" in finding.title


def test_one_finding_covers_every_run() -> None:
    report = source(400, other_mib=700)
    (finding,) = findings(report)
    assert finding.severity == "low"
    assert finding.weight == 0.75
    measured = [piece.where for piece in finding.evidence if piece.name == "measured peak"]
    ran = [run.config.name for run in report.runs if run.failure is None and run is not report.baseline()]
    assert measured == ran
    assert all(name in finding.title + finding.explanation or len(ran) > 5 for name in ran)


def test_without_the_baseline_the_worst_run_is_named() -> None:
    report = source(400, other_mib=700)
    last = report.runs[-1]
    runs = (*report.runs[:-1], replace(last, peak_allocated_bytes=900 * MIB))
    (finding,) = findings(replace(report, runs=runs))
    assert last.config.name in finding.title
    assert finding.weight == 1.0


def test_runs_of_both_kinds_are_two_findings() -> None:
    assert [finding.severity for finding in findings(source(500, predicted_mib=498, other_mib=700))] == ["low", "info"]
