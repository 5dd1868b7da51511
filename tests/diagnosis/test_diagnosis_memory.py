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
    ("measured_mib", "severity", "words"),
    [
        (500, "info", "25.0 % above the predicted 400 MiB"),
        (383, "info", "4.2 % below the predicted 400 MiB"),
        (700, "low", "75.0 % above the predicted 400 MiB"),
        (300, "low", "25.0 % below the predicted 400 MiB"),
    ],
)
def test_a_peak_off_the_prediction(measured_mib: float, severity: str, words: str) -> None:
    (finding,) = findings(source(measured_mib))
    assert finding.severity == severity
    assert words in finding.title
    assert ("within the predicted 380 MiB to 600 MiB" in finding.explanation) == (severity == "info")


def test_without_a_prediction_or_a_gpu_there_is_nothing_to_compare() -> None:
    assert findings(v0()) == ()
    on_a_cpu = cpu()
    if on_a_cpu.static is not None:
        assert findings(source(900, base=on_a_cpu)) == ()


def test_measured_scratch_that_accounts_for_the_peak_is_told_with_both_places() -> None:
    (finding,) = findings(source(500, predicted_mib=498))
    assert finding.severity == "info"
    assert "25.0 % above the predicted 400 MiB" in finding.title
    assert "498 MiB are predicted" in finding.explanation
    assert "aten.convolution_backward of conv9" in finding.explanation  # where the peak is with measured scratch
    assert "aten.convolution_backward of conv2" in finding.explanation  # and by the rules
    assert [piece.value for piece in finding.evidence] == [500 * MIB, LIKELY * MIB, 498 * MIB]


def test_a_peak_that_measured_scratch_does_not_account_for_names_category_and_op() -> None:
    report = source(500, predicted_mib=430)
    baseline = report.baseline()
    assert baseline is not None
    assert baseline.memory is not None
    (finding,) = findings(report)
    assert finding.severity == "low"
    assert "16.3 % above the predicted 430 MiB" in finding.title
    assert baseline.memory.peak_op in finding.explanation
    assert "conv9" in finding.explanation
    probe = baseline.memory
    tensors = probe.saved_activations + probe.rest
    worst = "activations and other tensors" if tensors > probe.workspace else "library scratch"
    assert f"what differs most there is {worst}" in finding.explanation


def test_a_prediction_that_holds_by_rules_and_not_with_scratch_is_no_coincidence() -> None:
    (finding,) = findings(source(400, predicted_mib=350))
    assert finding.severity == "low"
    assert "14.3 % above the predicted 350 MiB" in finding.title


def test_every_run_is_compared_and_told_at_once() -> None:
    report = source(400, other_mib=700)
    (finding,) = findings(report)
    assert finding.severity == "low"
    assert finding.weight == 0.75
    measured = [piece.where for piece in finding.evidence if piece.name == "measured peak"]
    ran = [run.config.name for run in report.runs if run.failure is None and run is not report.baseline()]
    assert measured == ran
    assert all(name in finding.title + finding.explanation or len(ran) > 5 for name in ran)


def test_without_the_baseline_the_worst_run_is_told() -> None:
    report = source(400, other_mib=700)
    last = report.runs[-1]
    runs = (*report.runs[:-1], replace(last, peak_allocated_bytes=900 * MIB))
    (finding,) = findings(replace(report, runs=runs))
    assert last.config.name in finding.title
    assert finding.weight == 1.0


def test_runs_of_both_kinds_are_two_findings() -> None:
    assert [finding.severity for finding in findings(source(500, predicted_mib=498, other_mib=700))] == ["low", "info"]
