"""Findings that read the forecast: a layer far above it, and what bfloat16 would save."""

from __future__ import annotations

from dataclasses import replace

import pytest
from diagnose_cases import of_rule, v0, value
from diagnose_lab import laboratory

from profiler_kit.diagnosis import diagnose
from profiler_kit.records.counts import Forecast, LayerForecast, SettingForecast
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.samples import Interval

LAYER = next(item for item in v0().runs[0].modules if (item.path, item.phase) == ("conv2", "forward"))


def around(ns: float) -> Interval:
    return Interval(median=round(ns), low=round(ns / 2), high=round(ns * 2))


def predicted(source: Report, *layers: LayerForecast, half: float | None = None, **fields: bool) -> Report:
    """`source` with a forecast of these layers, and of the kernels under autocast as a share of those without it."""
    settings = () if half is None else (SettingForecast(setting="amp_bf16", kernel_ns=around(half * 1e9)),)
    forecast = Forecast(
        device="H100", source="a test", is_scaled=fields.get("is_scaled", False), kernel_ns=around(1e9),
        host_ns=around(1e9), step_ns=around(1e9), calls=1, modules=layers, settings=settings,
    )  # fmt: skip
    assert source.static is not None
    return replace(source, static=replace(source.static, forecast=forecast))


def conv2(high_ns: float) -> LayerForecast:
    return LayerForecast(path="conv2", phase="forward", kernel_ns=round(high_ns / 2), high_ns=round(high_ns))


def slower(source: Report) -> tuple[Finding, ...]:
    return of_rule(diagnose(source), "slower_than_forecast")


@pytest.mark.parametrize(("part", "fires"), [(1 / 1.4, False), (1 / 1.6, True)])
def test_a_layer_far_above_its_forecast(part: float, fires: bool) -> None:
    assert bool(slower(predicted(v0(), conv2(part * LAYER.kernel_ns)))) is fires


def test_its_figures_and_its_trial() -> None:
    (finding,) = slower(predicted(v0(), conv2(LAYER.kernel_ns / 2)))
    assert finding.paths == ("conv2",)
    assert value(finding, "predicted").value == pytest.approx(LAYER.kernel_ns / 4, rel=1e-6)
    assert value(finding, "device time").value == LAYER.kernel_ns
    assert finding.config == "benchmark"
    assert finding.severity == "medium"


def test_a_small_layer_a_scaled_forecast_and_none_at_all_fire_nothing() -> None:
    small = min((item for item in v0().runs[0].modules if item.kernel_ns), key=lambda item: item.kernel_ns)
    tiny = LayerForecast(path=small.path, phase=small.phase, kernel_ns=1, high_ns=1)
    assert slower(predicted(v0(), tiny)) == ()
    assert slower(predicted(v0(), conv2(LAYER.kernel_ns / 2), is_scaled=True)) == ()
    assert slower(v0()) == ()


def test_half_precision_uses_the_forecast() -> None:
    (by_peaks,) = of_rule(diagnose(laboratory()), "half_precision")
    (finding,) = of_rule(diagnose(predicted(laboratory(), half=0.6)), "half_precision")
    busy = laboratory().runs[0].busy_share
    assert busy is not None
    assert value(finding, "saving").value == pytest.approx(40 * busy, rel=0.02)
    assert value(finding, "saving").value != pytest.approx(value(by_peaks, "saving").value, rel=0.02)
    assert value(finding, "predicted kernels in bfloat16").value == 0.6e9
    assert finding.computed


def test_half_precision_that_saves_nothing_by_the_forecast_is_a_note() -> None:
    (finding,) = of_rule(diagnose(predicted(laboratory(), half=1.2)), "half_precision")
    assert finding.severity == "info"
    assert value(finding, "saving").value == 0
