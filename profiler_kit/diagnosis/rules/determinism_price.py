"""The cost of cudnn.deterministic=True, even if it is zero."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import AdviceTrials
from profiler_kit.diagnosis.pairs import flag_pairs
from profiler_kit.diagnosis.phrases import (
    Advice,
    advise,
    capitalize,
    interval_text,
    join_sentences,
    layer_name,
    limit_percent,
    phase_name,
)
from profiler_kit.diagnosis.rule import Rule, new_finding
from profiler_kit.diagnosis.timing import layer_timing
from profiler_kit.records.comparison import clock_name
from profiler_kit.records.families import family_name, main_algorithm
from profiler_kit.records.mean_step import LayerTiming
from profiler_kit.records.report import Evidence, Finding, Report, Severity
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Outcome
from profiler_kit.statistics.noise import MIN_USEFUL_SAVING, noise_of
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import percent, text

# A user notices a tenth of the step. Reports range from 2.4x to 80x (pytorch/pytorch issue 28777).
MEDIUM_PRICE: Final = 0.10
# At this price, the flag is the first thing to look at.
HIGH_PRICE: Final = 0.50

DOC = f"""
Fires when a run with `cudnn.deterministic=True` and a run with otherwise the same flags were measured. It compares the
baseline's pair first.

- `high`: the step is at least {limit_percent(HIGH_PRICE)} slower, beyond the noise.
- `medium`: it is at least {limit_percent(MEDIUM_PRICE)} slower.
- `low`: it is at least {limit_percent(MIN_USEFUL_SAVING)} slower.
- `info`: the difference is smaller, or within the noise. The flag can stay on.

If the flag costs time, the finding names the layer that lost most, and the algorithms before and after.
"""

_LayerPair = tuple[LayerTiming, LayerTiming]  # the same layer and phase, without the flag and with it


def check(report: Report) -> Iterator[Finding]:
    """Yield one finding, whether the flag costs time or not, if a pair was measured."""
    deterministic_pairs = flag_pairs(report, "deterministic")
    if not deterministic_pairs:
        return
    pair = deterministic_pairs[0]
    off, on, before, after = pair.off, pair.on, pair.before, pair.after
    noise = noise_of(report)
    difference = noise.difference(off, on)
    if difference is None:
        return
    price, outcome = -difference.saved, difference.outcome
    costs_time = outcome == "worse" and price >= MIN_USEFUL_SAVING
    severity: Severity = "high" if price >= HIGH_PRICE else "medium" if price >= MEDIUM_PRICE else "low"
    slowest = _slowest_change(off, on) if costs_time else None
    yield new_finding(
        severity=severity if costs_time else "info",
        title=_title(outcome, price),
        explanation=join_sentences(
            f"The median step takes {interval_text(before)} without the flag and {interval_text(after)} with it.",
            difference.sentence(),
            noise.sentence(),
            _layer_change(slowest),
            f"With other flags: {'; '.join(other.summary() for other in deterministic_pairs[1:])}."
            if len(deterministic_pairs) > 1
            else "",
        ),
        advice=_advice(costs_time),
        evidence=(
            Evidence(name="price", value=100.0 * price, unit="percent", where=on.config.name),
            Evidence(name="median step without deterministic", value=before.median, unit="ns", where=off.config.name),
            Evidence(name="median step with deterministic", value=after.median, unit="ns", where=on.config.name),
            *_layer_evidence(slowest, off, on),
        ),
        paths=(slowest[0].path,) if slowest is not None else (),
        trials=AdviceTrials(trial=sweep_trial(off, on, noise)),
        weight=price if costs_time else 0.0,
    )


def _title(outcome: Outcome, price: float) -> str:
    if outcome == "worse" and price >= MIN_USEFUL_SAVING:
        return f"cudnn.deterministic=True makes the step {percent(price)} longer"
    if outcome == "worse":
        return f"cudnn.deterministic=True costs little: the step takes {percent(price)} longer"
    if outcome in ("same", "unknown"):
        return f"cudnn.deterministic=True: no difference is established, the step changes by {percent(price)}"
    return f"cudnn.deterministic=True costs no time: the step changes by {percent(price)}"


def _slowest_change(off: ConfigRun, on: ConfigRun) -> _LayerPair | None:
    """The layer and phase that lost most device time with the flag; None if no layer lost any."""
    slower_layers = [
        (timing_off, timing_on)
        for timing_on in on.modules
        if (timing_off := layer_timing(off, timing_on.path, timing_on.phase)) is not None
        and timing_on.kernel_ns > timing_off.kernel_ns
    ]
    return max(slower_layers, key=lambda pair: pair[1].kernel_ns - pair[0].kernel_ns, default=None)


def _layer_change(slowest: _LayerPair | None) -> str:
    if slowest is None:
        return ""
    before, after = slowest
    old, new = main_algorithm(before.kernels), main_algorithm(after.kernels)
    change = (
        f" The algorithm changes from {family_name(old.family)} ({old.kernel}) to {family_name(new.family)} ({new.kernel})."
        if old is not None and new is not None and old.kernel != new.kernel
        else ""
    )
    place = capitalize(f"{phase_name(after.phase)} of {layer_name(after.path)}")
    return (
        f"{place} loses most: it takes {text(after.kernel_ns, 'ns')} instead of {text(before.kernel_ns, 'ns')}.{change}"
    )


def _layer_evidence(slowest: _LayerPair | None, off: ConfigRun, on: ConfigRun) -> Iterator[Evidence]:
    if slowest is None:
        return
    for timing, run in zip(slowest, (off, on), strict=True):
        where = f"{timing.path}, {timing.phase}, {run.config.name}"
        yield Evidence(name=clock_name(run.clock), value=timing.kernel_ns, unit="ns", where=where)


def _advice(costs_time: bool) -> Advice:
    scope = (
        "The flag covers cuDNN's algorithms only; torch.use_deterministic_algorithms(True) also covers PyTorch's own."
    )
    if costs_time:
        return Advice(
            f"Leave torch.backends.cudnn.deterministic at False unless runs must be bitwise reproducible. {scope}"
        )
    return advise(
        f"If you want bitwise reproducible convolutions, set {{code}}: here it costs little. {scope}",
        "torch.backends.cudnn.deterministic = True",
    )


RULE = Rule("determinism_price", DOC, check)
