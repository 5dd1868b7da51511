"""A measured peak beside the predicted one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from diagnose_cases import MIB, cpu, of_rule, v0

from profiler_kit.diagnose import diagnose
from profiler_kit.records.counts import DeviceMemory, MemoryCategories, MemoryEstimate
from profiler_kit.records.report import Finding, Report

LOW, LIKELY, HIGH = 380, 400, 600


def source(measured_mib: float, *, base: Report | None = None) -> Report:
    """A report whose baseline peaked at `measured_mib`, predicted to be 400 MiB, or 380 to 600."""
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
    runs = tuple(
        replace(run, peak_allocated_bytes=round(measured_mib * MIB)) if run is baseline else run for run in base.runs
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
