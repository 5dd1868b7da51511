"""What cudnn.benchmark=True gains, what its search costs, and after how many steps that is paid back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import Attempt, changed
from profiler_kit.diagnosis.pairs import Pair, pairs
from profiler_kit.diagnosis.rule import Rule, known
from profiler_kit.diagnosis.tuning import TUNING_SHARE, Planned, planned
from profiler_kit.diagnosis.words import interval, plural, quoted, sentences, threshold
from profiler_kit.records.report import Evidence, Finding, Report, Severity
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.noise import WORTH, Noise, break_even_steps, faster, noise_of, saving
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import percent, text

# A fifth of the step is more than most changes to a model bring; a twentieth is worth one line of code.
LARGE: Final = 0.20
SMALL: Final = 0.05
# The fewest algorithms that leave a choice between two kinds and one more: what to try where the search costs too much.
FEW: Final = "benchmark_limit=3"

# A first step that is shorter by this share in the second process had something to fetch that the system then kept.
COLD: Final = 0.3

DOC = f"""
Compares each run with `cudnn.benchmark=True` with the run whose other flags are the same, the baseline's pair first.

It pays where the step is surely faster and saves at least {threshold(WORTH)}. The price is the search on the first step of
every new input shape: tuning = (first step - steady step), less the same without benchmark. Of a configuration's two
processes the one that began faster counts; where the first began much slower, that is said. It is paid back after
tuning / (steady step without - steady step with) steps; that is *never* where the saving is below {threshold(WORTH)} or within
the noise. While it searches, cuDNN tries algorithms with large workspaces, so the first step's peak is given too.
`high` from {threshold(LARGE)}, `medium` from {threshold(SMALL)}.

With `--steps-planned N` the verdict is about N steps of this shape, the search included, and `low` where it is not paid back
within them; a search that takes more than {threshold(TUNING_SHARE)} of that run is said, with `{FEW}` as what to try.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires once, whatever the outcome, where a pair was measured."""
    noise = noise_of(report)
    tried = pairs(report, "benchmark")
    if not tried:
        return
    pair = tried[0]
    pays = _pays(pair.off, pair.on, noise)
    even = break_even_steps(pair.on.tuning_ns, pair.before, pair.after) if pays else None
    whole = planned(pair.off, pair.on, report.asked.steps_planned if report.asked is not None else None)
    dear = pays and whole is not None and whole.share > TUNING_SHARE
    few = changed(pair.on.config, FEW).name
    yield RULE.finding(
        severity=_severity(pair, noise, whole),
        title=_title(pair, pays, even, noise, whole),
        explanation=sentences(
            _price(pair, pays, even),
            _cold(pair),
            _plan(whole),
            f"The median step takes {interval(pair.before)} without cudnn.benchmark and {interval(pair.after)} with it"
            + (f", {percent(saving(pair.before, pair.after))} less." if pays else "."),
            noise.sentence(),
            _memory(pair),
            _others(tried[1:], noise),
        ),
        advice=_advice(pays, even, whole, dear),
        evidence=_evidence(pair, pays, even, whole),
        attempt=Attempt(
            tries=(pair.on.config.name, *([few] if dear else [])), trial=sweep_trial(pair.off, pair.on, noise)
        ),
        weight=saving(pair.before, pair.after) if pays else 0.0,
    )


def _pays(off: ConfigRun, on: ConfigRun, noise: Noise) -> bool:
    if off.step_ns is None or on.step_ns is None:
        return False
    return faster(on, off, noise) and saving(off.step_ns, on.step_ns) >= WORTH


def _severity(pair: Pair, noise: Noise, whole: Planned | None) -> Severity:
    if not _pays(pair.off, pair.on, noise):
        return "low" if _pays(pair.on, pair.off, noise) else "info"
    if whole is not None and not whole.pays:
        return "low"
    gain = saving(pair.before, pair.after)
    return "high" if gain >= LARGE else "medium" if gain >= SMALL else "low"


def _title(pair: Pair, pays: bool, even: int | None, noise: Noise, whole: Planned | None) -> str:
    saved = saving(pair.before, pair.after)
    if pays:
        back = f", paid back after {plural(even, 'step')}" if even is not None else ""
        if whole is not None:
            verb = "pays within" if whole.pays else "does not pay in"
            back += f": {verb} your {plural(whole.steps, 'step')}"
        step = f"{text(pair.before.median, 'ns')} to {text(pair.after.median, 'ns')}"
        return f"cudnn.benchmark=True cuts the step from {step}{back}"
    if _pays(pair.on, pair.off, noise):
        return f"cudnn.benchmark=True never pays here: the step takes {percent(-saved)} longer"
    if faster(pair.on, pair.off, noise):
        return f"cudnn.benchmark=True never pays here: it saves only {percent(saved)} of the step"
    return f"cudnn.benchmark=True never pays here: the step changes by {percent(-saved)}, which is too little to tell or to use"


def _price(pair: Pair, pays: bool, even: int | None) -> str:
    if pair.on.tuning_ns is None:
        return "What the search for the fastest algorithms costs is not known."
    spent = f"Trying algorithms costs {text(max(0, pair.on.tuning_ns), 'ns')} in the first step of each input shape"
    if even is None:
        return f"{spent}." if pays else f"{spent}, and nothing pays that back."
    saved = text(pair.before.median - pair.after.median, "ns")
    return f"{spent}, then saves {saved} a step."


def _cold(pair: Pair) -> str:
    """What the first process paid on top, where the second began much faster: kernels read from disk for the first time."""
    first = pair.on.first_step_ns
    second = pair.on.repeat.first_step_ns if pair.on.repeat is not None else None
    if first is None or second is None or first - second < COLD * first:
        return ""
    return (
        f"The first process of {quoted(pair.on)} began with a step of {text(first, 'ns')}, the second with one of "
        f"{text(second, 'ns')}: what is read from disk for the first time comes on top."
    )


def _plan(whole: Planned | None) -> str:
    if whole is None:
        return ""
    part = f", of which it is {percent(whole.share)}" if whole.share > TUNING_SHARE else ""
    return (
        f"{plural(whole.steps, 'step')} take {text(whole.off_ns, 'ns')} without it and {text(whole.on_ns, 'ns')} with it, the "
        f"search included{part}."
    )


def _memory(pair: Pair) -> str:
    first_off, first_on = pair.off.first_step_peak_bytes, pair.on.first_step_peak_bytes
    off, on = pair.off.peak_allocated_bytes, pair.on.peak_allocated_bytes
    return sentences(
        f"While it searches, the peak is {text(first_on, 'bytes')}, {text(first_on - first_off, 'bytes')} more than in the "
        "first step without it."
        if first_off is not None and first_on is not None and first_on > first_off
        else "",
        f"The steady step peaks at {text(on, 'bytes')} with it and {text(off, 'bytes')} without."
        if off is not None and on is not None
        else "",
    )


def _others(rest: tuple[Pair, ...], noise: Noise) -> str:
    outcomes = []
    for pair in rest:
        even = break_even_steps(pair.on.tuning_ns, pair.before, pair.after)
        pays = f"pays after {plural(even, 'step')}" if even is not None else "pays"
        outcomes.append(f"{pair.words()}, {pays if _pays(pair.off, pair.on, noise) else 'never pays'}")
    return f"With other flags: {'; '.join(outcomes)}." if outcomes else ""


def _advice(pays: bool, even: int | None, whole: Planned | None, dear: bool) -> str:
    limit = f"Fewer algorithms cost less to try: torch.backends.cudnn.{FEW.replace('=', ' = ')}."
    if not pays:
        return "Leave torch.backends.cudnn.benchmark at False."
    if whole is not None and not whole.pays:
        return f"Leave torch.backends.cudnn.benchmark at False for so few steps. {limit}"
    least = f"It is worth it for shapes that come at least {plural(even, 'time')}. " if even is not None else ""
    return (
        f"Set torch.backends.cudnn.benchmark = True at the start, if input shapes stay the same. {least}"
        "Every new shape is searched anew: pad or bucket varying sizes, and drop a smaller last batch (drop_last=True). "
        "Set after a shape was seen, the flag changes nothing for that shape." + (f" {limit}" if dear else "")
    )


def _evidence(pair: Pair, pays: bool, even: int | None, whole: Planned | None) -> Iterator[Evidence]:
    off, on = pair.off.config.name, pair.on.config.name
    yield Evidence(name="saving", value=100.0 * saving(pair.before, pair.after), unit="percent", where=on)
    yield Evidence(name="median step without benchmark", value=pair.before.median, unit="ns", where=off)
    yield Evidence(name="median step with benchmark", value=pair.after.median, unit="ns", where=on)
    never = "never" if not pays else None
    yield from known(on, ("tuning", pair.on.tuning_ns, "ns"))
    yield from known(
        on, ("break-even steps", even, "count") if even is not None else ("break-even steps", never, "text")
    )
    if whole is not None:
        yield Evidence(name=f"{whole.steps:,} planned steps", value=whole.off_ns, unit="ns", where=off)
        yield Evidence(name=f"{whole.steps:,} planned steps", value=whole.on_ns, unit="ns", where=on)
        yield Evidence(name="tuning of the planned steps", value=100.0 * whole.share, unit="percent", where=on)
    yield from known(off, ("first step's peak", pair.off.first_step_peak_bytes, "bytes"))
    yield from known(on, ("first step's peak", pair.on.first_step_peak_bytes, "bytes"))


RULE = Rule("benchmark_pays", DOC, check, "remedy")
