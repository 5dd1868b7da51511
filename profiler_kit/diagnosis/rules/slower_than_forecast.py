"""A layer whose convolution or product takes much longer than the same op took wherever it was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.advice import trials_of
from profiler_kit.diagnosis.phrases import (
    Advice,
    advise,
    capitalize,
    factor_text,
    join_sentences,
    layer_name,
    limit_percent,
    phase_name,
)
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.diagnosis.timing import busy_share
from profiler_kit.records.claims import module_claims
from profiler_kit.records.counts import Forecast, LayerForecast
from profiler_kit.records.families import family_name, is_contraction, is_convolution, main_algorithm
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.traces import TraceKernel, TraceModule
from profiler_kit.units import text

# Of 235 recorded calls above this share of their step, 21 pass the upper end of their interval when their network is left out,
# and 10 pass it by this factor: most of them with an unusual algorithm.
MIN_FACTOR: Final = 1.5
# With any algorithm, a layer below a tenth of the device time cannot change the step by more than that.
MIN_LAYER_SHARE: Final = 0.10
LARGE_SHARE: Final = 0.20


@dataclass(frozen=True, slots=True)
class _SlowLayer:
    """A layer and phase far above its forecast. `share`: of the device time; `used`: its algorithm with the most time."""

    timing: TraceModule
    predicted: LayerForecast
    used: TraceKernel
    share: float

    @property
    def at_stake(self) -> float:
        """The share of the device time above the forecast."""
        return self.share * (1.0 - self.predicted.kernel_ns / self.timing.kernel_ns)


def _slower(report: Report) -> Iterator[Finding]:
    forecast = report.static.forecast if report.static is not None else None
    if forecast is not None and not forecast.is_scaled:
        for layer in sorted(_slow_layers(report, forecast), key=lambda layer: -layer.at_stake):
            yield _finding(report, forecast, layer)


def _slow_layers(report: Report, forecast: Forecast) -> Iterator[_SlowLayer]:
    """The layers of the baseline; none where another configuration than the predicted one is the baseline."""
    run = report.baseline()
    if (
        run is None
        or run.clock != "kernel"
        or not run.device_ns
        or not run.config.is_plain
        or run.config.enabled is False
    ):
        return
    predicted = {(layer.path, layer.phase): layer for layer in forecast.modules}
    for timing in run.modules:
        layer, used = predicted.get((timing.path, timing.phase)), main_algorithm(timing.kernels)
        share = timing.kernel_ns / run.device_ns
        if layer is None or used is None or share < MIN_LAYER_SHARE or not is_contraction(used.family):
            continue
        if timing.kernel_ns >= MIN_FACTOR * layer.high_ns:
            yield _SlowLayer(timing, layer, used, share)


def _finding(report: Report, forecast: Forecast, layer: _SlowLayer) -> Finding:
    timing, predicted = layer.timing, layer.predicted
    subject = f"{phase_name(timing.phase)} of {layer_name(timing.path)}"
    factor = timing.kernel_ns / max(predicted.kernel_ns, 1)
    return new_finding(
        severity="medium" if layer.at_stake >= LARGE_SHARE else "low",
        title=f"{capitalize(subject)} takes {factor_text(factor)} as long as predicted for {forecast.device}",
        explanation=join_sentences(
            f"It takes {text(timing.kernel_ns, 'ns')} with {family_name(layer.used.family)}.",
            f"From recorded calls of the same op, {text(predicted.kernel_ns, 'ns')} were expected, at most "
            f"{text(predicted.high_ns, 'ns')} in nine of ten cases.",
            "The library probably chose an unusual algorithm for this shape, type or memory format.",
        ),
        advice=_advice(layer.used),
        evidence=evidence_of(
            f"{timing.path}, {timing.phase}",
            ("device time", timing.kernel_ns, "ns"),
            ("predicted", predicted.kernel_ns, "ns"),
            ("predicted, at most", predicted.high_ns, "ns"),
            ("kernel", layer.used.name, "text"),
            ("share of device time", 100.0 * layer.share, "percent"),
        ),
        paths=(timing.path,),
        trials=trials_of(report, "benchmark", "channels_last", "amp_bf16"),
        weight=layer.at_stake * busy_share(report),
        claims=module_claims((timing.path,)),
    )


def _advice(used: TraceKernel) -> Advice:
    if is_convolution(used.family):
        search = "Set {code}: cuDNN then times its algorithms. Otherwise try another memory format or type, or other channels."
        return advise(search, "torch.backends.cudnn.benchmark = True")
    return Advice("Try sizes that are multiples of 8, contiguous operands, or another type.")


SLOWER_THAN_FORECAST = Rule(
    "slower_than_forecast",
    f"""
Fires on a layer that takes at least {limit_percent(MIN_LAYER_SHARE)} of the baseline's device time in one phase, with a
convolution or a matrix product, and at least {MIN_FACTOR:g} times the upper end of what was predicted for it
([forecast](forecast.md)). The prediction comes from recorded calls of the same op on the same card, so the cause is seldom the
amount of work, and often the algorithm.

- `medium`: at least {limit_percent(LARGE_SHARE)} of the device time is above the prediction.
- `low`: less.

The rule does not read forecasts that were scaled from another card, or baselines with other settings than the predicted ones.
Rule `slow_algorithm` compares the runs of the report with each other, and needs no forecast.
""",
    _slower,
    "remedy",
    states_share=False,
)
