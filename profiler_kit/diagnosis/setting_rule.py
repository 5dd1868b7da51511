"""Rules that compare runs with and without one setting: a row of a table says what is particular, the rest is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from profiler_kit.configurations.naming import change_of
from profiler_kit.diagnosis.advice import AdviceTrials
from profiler_kit.diagnosis.pairs import RunPair
from profiler_kit.diagnosis.phrases import (
    Advice,
    advise,
    capitalize,
    interval_text,
    join_sentences,
    layer_name,
    phase_name,
    quoted_name,
)
from profiler_kit.diagnosis.rule import Measure, Rule, Topic, evidence_of, new_finding
from profiler_kit.diagnosis.step_rule import Shares
from profiler_kit.diagnosis.timing import kernels_of, layer_timing
from profiler_kit.records.claims import kernel_claims
from profiler_kit.records.comparison import clock_name
from profiler_kit.records.families import family_name, main_algorithm
from profiler_kit.records.mean_step import LayerTiming
from profiler_kit.records.report import SEVERITIES, Evidence, Finding, Report, Severity
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.differences import Difference
from profiler_kit.statistics.noise import MIN_USEFUL_SAVING, Noise, noise_of
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import percent, text

NEVER_SERIOUS: Final = Shares(MIN_USEFUL_SAVING, medium=float("inf"))
_LayerPair = tuple[LayerTiming, LayerTiming]  # the same layer and phase, without the setting and with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What a pair shows besides its times.

    `title`: the end of the title. `sentences`, `measures`: more of them, the measures of the run with the setting. `advice`:
    instead of that of the row. `tries`: more configurations to try. `most`: the largest severity.
    """

    title: str = ""
    sentences: tuple[str, ...] = ()
    measures: tuple[Measure, ...] = ()
    advice: Advice | None = None
    tries: tuple[str, ...] = ()
    most: Severity = "high"


NO_EXTRAS: Final = Extras()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting.

    - `subject`: of the titles: ``cudnn.benchmark=True``. `word`: in the names of configurations; its line is that of `change_of`.
    - `pairs`: runs without and with it, the most important pair first.
    - `gains`, `costs`: the severity of time that it saves and costs; None: always `info`.
    - `when_better`, `otherwise`: what to do if it saves time, and if not. ``{code}`` in them is the line.
    - `family`: the kernels that it changes. `extras`: what else a pair shows.
    """

    subject: str
    word: str
    pairs: Callable[[Report], Sequence[RunPair]]
    gains: Shares | None = None
    costs: Shares | None = None
    when_better: str
    otherwise: str
    family: str = ""
    extras: Callable[[Report, RunPair, Difference], Extras] = lambda report, pair, difference: NO_EXTRAS


def saves_time(difference: Difference | None) -> bool:
    """Whether the second run saves time for sure, and enough to be worth a line."""
    return difference is not None and difference.outcome == "better" and difference.saved >= MIN_USEFUL_SAVING


def setting_rule(name: str, setting: Setting, doc: str, topic: Topic = "note", *, states_share: bool = True) -> Rule:
    """Return the rule that fires wherever a pair of runs with and without the setting was measured."""

    def check(report: Report) -> Iterator[Finding]:
        noise, pairs = noise_of(report), setting.pairs(report)
        difference = noise.difference(pairs[0].off, pairs[0].on) if pairs else None
        if difference is not None:
            yield _finding(report, setting, pairs, difference, noise)

    limits = "".join(
        f"\n{words}: {shares.sentence()}\n"
        for words, shares in (("If the setting saves time", setting.gains), ("If it costs time", setting.costs))
        if shares is not None
    )
    rest = f"\nOtherwise `info`: the difference is below {100.0 * MIN_USEFUL_SAVING:g} %, or within the noise.\n"
    return Rule(name, f"{doc.strip()}\n{limits}{rest}", check, topic, states_share=states_share)


def _finding(
    report: Report, setting: Setting, pairs: Sequence[RunPair], difference: Difference, noise: Noise
) -> Finding:
    pair, extras = pairs[0], setting.extras(report, pairs[0], difference)
    is_gain, is_cost = saves_time(difference), difference.outcome == "worse" and -difference.saved >= MIN_USEFUL_SAVING
    limits = setting.gains if is_gain else setting.costs if is_cost else None
    severity = limits.severity(abs(difference.saved)) if limits is not None else "info"
    slowest = _slowest_change(pair) if is_cost and limits is not None else None
    off, on = pair.off.config.name, pair.on.config.name
    return new_finding(
        severity=max(severity, extras.most, key=SEVERITIES.index),
        title=f"{setting.subject}{_effect(pair, difference)}{extras.title if is_gain else ''}",
        explanation=join_sentences(
            f"The median step takes {interval_text(pair.before)} in {quoted_name(pair.off)} and {interval_text(pair.after)} in "
            f"{quoted_name(pair.on)}"
            + (f"; over all processes, {percent(difference.saved)} less." if is_gain else "."),
            *extras.sentences,
            difference.sentence(),
            noise.sentence(),
            _layer_change(slowest),
            _peaks(pair),
            f"In other pairs: {'; '.join(other.summary() for other in pairs[1:])}." if pairs[1:] else "",
        ),
        advice=extras.advice or _advice(setting, is_gain=is_gain),
        evidence=(
            *evidence_of(
                on,
                ("saving", 100.0 * difference.saved, "percent"),
                ("step over that without it", difference.ratio, "ratio"),
            ),
            *evidence_of(
                off, ("median step", pair.before.median, "ns"), ("peak", pair.off.peak_allocated_bytes, "bytes")
            ),
            *evidence_of(on, ("median step", pair.after.median, "ns"), ("peak", pair.on.peak_allocated_bytes, "bytes")),
            *evidence_of(on, *extras.measures),
            *_layer_evidence(slowest, pair),
        ),
        paths=(slowest[0].path,) if slowest is not None else (),
        trials=AdviceTrials(
            tries=(on, *extras.tries) if setting.gains is not None and setting.costs is not None else (),
            trial=sweep_trial(pair.off, pair.on, noise) if is_gain or setting.costs is not None else None,
        ),
        weight=abs(difference.saved) if severity != "info" else 0.0,
        claims=kernel_claims(
            kernel.name
            for kernel in kernels_of(pair.off)
            if is_gain and setting.family and pair.off is report.baseline() and kernel.family.startswith(setting.family)
        ),
    )


def _effect(pair: RunPair, difference: Difference) -> str:
    """Return the end of the title: what the setting does to the step."""
    saved = difference.saved
    steps = f"from {text(pair.before.median, 'ns')} to {text(pair.after.median, 'ns')}"
    if saves_time(difference):
        return f" cuts the step {steps}"
    if difference.outcome == "better":
        return f" never pays here: it saves only {percent(saved)} of the step"
    if difference.outcome == "worse":
        return f" makes the step {percent(-saved)} longer than in {quoted_name(pair.off)}, {steps}"
    return f": no difference is established, the step changes by {percent(-saved)}"


def _advice(setting: Setting, *, is_gain: bool) -> Advice:
    words, change = setting.when_better if is_gain else setting.otherwise, change_of(setting.word)
    return advise(words, change.line) if change is not None and "{code}" in words else Advice(words)


def _peaks(pair: RunPair) -> str:
    off, on = pair.off.peak_allocated_bytes, pair.on.peak_allocated_bytes
    if off is None or on is None or off == on:
        return ""
    return f"A steady step peaks at {text(on, 'bytes')} with it and at {text(off, 'bytes')} without."


def _slowest_change(pair: RunPair) -> _LayerPair | None:
    """The layer and phase that lost most device time; None if no layer lost any."""
    slower_layers = [
        (timing_off, timing_on)
        for timing_on in pair.on.modules
        if (timing_off := layer_timing(pair.off, timing_on.path, timing_on.phase)) is not None
        and timing_on.kernel_ns > timing_off.kernel_ns
    ]
    return max(slower_layers, key=lambda layers: layers[1].kernel_ns - layers[0].kernel_ns, default=None)


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


def _layer_evidence(slowest: _LayerPair | None, pair: RunPair) -> Iterator[Evidence]:
    runs: tuple[ConfigRun, ...] = (pair.off, pair.on)
    for timing, run in zip(slowest or (), runs, strict=False):
        where = f"{timing.path}, {timing.phase}, {run.config.name}"
        yield Evidence(name=clock_name(run.clock), value=timing.kernel_ns, unit="ns", where=where)
