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
    join_list,
    join_sentences,
    layer_name,
    phase_name,
    quoted_name,
)
from profiler_kit.diagnosis.rule import Measure, Rule, Topic, evidence_of, new_finding
from profiler_kit.diagnosis.step_rule import Shares
from profiler_kit.diagnosis.timing import kernels_of, layer_timing
from profiler_kit.records.claims import kernel_claims
from profiler_kit.records.families import family_name, is_convolution, main_algorithm
from profiler_kit.records.report import SEVERITIES, Evidence, Finding, Report, Severity
from profiler_kit.records.samples import Difference
from profiler_kit.statistics.noise import MIN_USEFUL_SAVING, Noise, noise_of
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import percent, text

NEVER_SERIOUS: Final = Shares(MIN_USEFUL_SAVING, medium=float("inf"))
_PASS_NAMES: Final = {"fprop": "forward", "dgrad": "the gradient of the input", "wgrad": "the gradient of the weight"}


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
    changes = algorithm_changes(pair) if setting.costs is not None and not is_gain else []
    off, on = pair.off.config.name, pair.on.config.name
    return new_finding(
        severity=max(severity, extras.most, key=SEVERITIES.index),
        title=f"{setting.subject}{_effect(pair, difference)}{extras.title}",
        explanation=join_sentences(
            f"The median step takes {interval_text(pair.before)} in {quoted_name(pair.off)} and {interval_text(pair.after)} in "
            f"{quoted_name(pair.on)}"
            + (f"; over all processes, {percent(difference.saved)} less." if is_gain else "."),
            *extras.sentences,
            difference.sentence(),
            noise.sentence(),
            f"{capitalize(join_list([change.words() for change in changes]))}." if changes else "",
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
            *(
                Evidence(name="algorithm", value=change.words(), unit="text", where=f"{change.path}, {on}")
                for change in changes
            ),
        ),
        paths=(change.path for change in changes),
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


@dataclass(frozen=True, slots=True)
class AlgorithmChange:
    """A layer and its pass in which two runs use another algorithm, with its times and kernel families before and after."""

    path: str
    part: str
    times_ns: tuple[int, int]
    families: tuple[str, str]

    def words(self) -> str:
        """Return the change in words."""
        (old, new), (before, after) = map(family_name, self.families), (text(ns, "ns") for ns in self.times_ns)
        return f"{self.part} of {layer_name(self.path)} changes from {old} to {new} ({before} becomes {after})"


def algorithm_changes(pair: RunPair) -> list[AlgorithmChange]:
    """Return the convolutions whose algorithm differs, that which loses most time first; by phase without separate parts."""
    changes = []
    if pair.off.convolutions and pair.on.convolutions:
        parts_before = {(part.path, part.part): part for part in pair.off.convolutions}
        for part in pair.on.convolutions:
            if (old := parts_before.get((part.path, part.part))) is not None:
                times, families = (old.kernel_ns, part.kernel_ns), (old.family, part.family)
                changes.append(AlgorithmChange(part.path, _PASS_NAMES[part.part], times, families))
    else:
        for item in pair.on.modules:
            timing, used = layer_timing(pair.off, item.path, item.phase), main_algorithm(item.kernels)
            before = main_algorithm(timing.kernels) if timing is not None else None
            if timing is not None and before is not None and used is not None and is_convolution(used.family):
                times, families = (timing.kernel_ns, item.kernel_ns), (before.family, used.family)
                changes.append(AlgorithmChange(item.path, phase_name(item.phase), times, families))
    changed = [change for change in changes if change.families[0] != change.families[1]]
    return sorted(changed, key=lambda change: change.times_ns[0] - change.times_ns[1])
