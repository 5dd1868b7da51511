"""What cudnn.deterministic=True costs, also when that is nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import Attempt
from profiler_kit.diagnosis.pairs import pairs
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.timing import layer_timing
from profiler_kit.diagnosis.words import interval, layer, phase, sentences, threshold
from profiler_kit.records.families import algorithm, family_words
from profiler_kit.records.report import Evidence, Finding, Report, Severity
from profiler_kit.records.runs import ConfigRun, LayerTiming
from profiler_kit.records.samples import Outcome
from profiler_kit.statistics.noise import WORTH, noise_of, saving, verdict
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import percent, text

# A tenth of the step is what one would notice and pay for; users report 2.4x to 80x (pytorch/pytorch issue 28777).
PRICE: Final = 0.10
# Where it costs this much, the flag is the first thing to look at.
HIGH_PRICE: Final = 0.50

DOC = f"""
Compares each run with `cudnn.deterministic=True` with the run whose other flags are the same, the baseline's pair first.
`medium` where the step is surely at least {threshold(PRICE)} slower, `high` from {threshold(HIGH_PRICE)}, with the layer
that lost most and the algorithms it changed between; `low` for a smaller sure loss; `info` where it costs nothing beyond the
noise, or less than {threshold(WORTH)}: then it can stay on.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires once, whatever the price, where a pair was measured."""
    tried = pairs(report, "deterministic")
    if not tried:
        return
    off, on, before, after = tried[0].off, tried[0].on, tried[0].before, tried[0].after
    noise = noise_of(report)
    price, outcome = -saving(before, after), verdict(off, on, noise)
    costs = outcome == "worse" and price >= WORTH
    grave: Severity = "high" if price >= HIGH_PRICE else "medium" if price >= PRICE else "low"
    slower = _slowest_change(off, on) if costs else None
    yield RULE.finding(
        severity=grave if costs else "info",
        title=_title(outcome, price),
        explanation=sentences(
            f"The median step takes {interval(before)} without it and {interval(after)} with it.",
            noise.sentence(),
            _where_words(slower),
            f"With other flags: {'; '.join(pair.words() for pair in tried[1:])}." if len(tried) > 1 else "",
        ),
        advice=_advice(costs),
        evidence=(
            Evidence(name="price", value=100.0 * price, unit="percent", where=on.config.name),
            Evidence(name="median step without deterministic", value=before.median, unit="ns", where=off.config.name),
            Evidence(name="median step with deterministic", value=after.median, unit="ns", where=on.config.name),
            *_where_evidence(slower, off, on),
        ),
        paths=(slower[0].path,) if slower is not None else (),
        attempt=Attempt(trial=sweep_trial(off, on, noise)),
        weight=price if costs else 0.0,
    )


def _title(outcome: Outcome, price: float) -> str:
    if outcome == "worse" and price >= WORTH:
        return f"cudnn.deterministic=True makes the step {percent(price)} longer"
    if outcome == "worse":
        return f"cudnn.deterministic=True costs next to nothing: the step takes {percent(price)} longer"
    within = ", which is within the noise" if outcome == "same" else ""
    return f"cudnn.deterministic=True costs nothing: the step changes by {percent(price)}{within}"


def _slowest_change(off: ConfigRun, on: ConfigRun) -> tuple[LayerTiming, LayerTiming] | None:
    """(without, with) of the layer and phase that lost most device time."""
    both = [
        (without, with_it)
        for with_it in on.modules
        if (without := layer_timing(off, with_it.path, with_it.phase)) is not None
        and with_it.kernel_ns > without.kernel_ns
    ]
    return max(both, key=lambda pair: pair[1].kernel_ns - pair[0].kernel_ns, default=None)


def _where_words(slower: tuple[LayerTiming, LayerTiming] | None) -> str:
    if slower is None:
        return ""
    before, after = slower
    was, now = algorithm(before.kernels), algorithm(after.kernels)
    change = (
        f", as {family_words(was.family)} ({was.kernel}) gives way to {family_words(now.family)} ({now.kernel})"
        if was is not None and now is not None and was.kernel != now.kernel
        else ""
    )
    return (
        f"Most of it is in {phase(after.phase)} of {layer(after.path)}: {text(before.kernel_ns, 'ns')} becomes "
        f"{text(after.kernel_ns, 'ns')}{change}."
    )


def _where_evidence(
    slower: tuple[LayerTiming, LayerTiming] | None, off: ConfigRun, on: ConfigRun
) -> Iterator[Evidence]:
    if slower is None:
        return
    for timing, run in zip(slower, (off, on), strict=True):
        where = f"{timing.path}, {timing.phase}, {run.config.name}"
        yield Evidence(name="device time", value=timing.kernel_ns, unit="ns", where=where)


def _advice(costs: bool) -> str:
    scope = "The flag covers cuDNN's algorithms; torch.use_deterministic_algorithms(True) covers PyTorch's own too."
    if costs:
        return f"Leave torch.backends.cudnn.deterministic at False where you do not need equal bits from run to run. {scope}"
    return f"Set torch.backends.cudnn.deterministic = True if you want convolutions to repeat; here it costs little. {scope}"


RULE = Rule("determinism_price", DOC, check)
