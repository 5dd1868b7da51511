"""The verdict of a report as sections, and the sentences of remedies, shares and trials."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from profiler_kit.records.claims import PEAK
from profiler_kit.records.document import Block, Paragraph, RemedyList, Section
from profiler_kit.records.paths import shown_path
from profiler_kit.records.report import Finding, Trial
from profiler_kit.records.verdict import RankedRemedy, Verdict
from profiler_kit.units import digits, percent, text


def trial_sentence(trial: Trial, *, with_note: bool = True) -> str:
    """The step before and after, the gain, the verdict, and other effects of the trial; `with_note` adds its note.

    **Units**: the gain is time per step, or per example where the two steps have different batch sizes.
    """
    if trial.verdict == "failed":
        return _with_stop(f"failed: {trial.note}")
    parts = [f"{text(trial.before_ns.median, 'ns')} -> {text(trial.after_ns.median, 'ns')}", trial.verdict]
    if trial.gain_percent is not None and (trial.tried or trial.per_example):
        parts[1:1] = [_tried_gain(trial)]
    if trial.tried:
        parts += _effects(trial)
    sentence = _with_stop(", ".join(parts))
    return f"{sentence} {trial.note}" if with_note and trial.note else sentence


def _tried_gain(trial: Trial) -> str:
    percent = trial.gain_percent or 0.0
    is_less = percent >= 0
    per_example = " per example" if trial.per_example else ""
    gain = f"{text(abs(percent), 'percent')} {'less' if is_less else 'more'} time{per_example}"
    low, high = trial.gain_low_percent, trial.gain_high_percent
    if trial.tried and low is not None and high is not None:
        ends = sorted((low, high) if is_less else (-low, -high))
        gain += f" ({ends[0]:.1f} to {ends[1]:.1f} %)"
    return gain + _stated_gain(trial)


def _stated_gain(trial: Trial) -> str:
    """The gain that the finding estimated before the trial, and whether the two intervals overlap."""
    if trial.stated_percent is None:
        return ""
    estimate = f", estimated {text(trial.stated_percent, 'percent')}"
    bounds = (trial.stated_low_percent, trial.stated_high_percent, trial.gain_low_percent, trial.gain_high_percent)
    estimate_low, estimate_high, low, high = bounds
    if estimate_low is None or estimate_high is None or low is None or high is None:
        return estimate
    estimate += f" ({estimate_low:.1f} to {estimate_high:.1f} %)"
    return estimate if estimate_low <= high and low <= estimate_high else f"{estimate} and not confirmed"


def _effects(trial: Trial) -> list[str]:
    """Effects of the trial on peak memory, error and reproducibility, where both sides are known."""
    effects = []
    if trial.before_peak_bytes is not None and trial.after_peak_bytes is not None:
        before, after = text(trial.before_peak_bytes, "bytes"), text(trial.after_peak_bytes, "bytes")
        effects.append(f"peak {before} -> {after}" if before != after else "same peak")
    if trial.before_error is not None and trial.after_error is not None:
        before, after = digits(trial.before_error, 2), digits(trial.after_error, 2)
        effects.append(f"error {before} -> {after}" if before != after else "same error")
    if trial.same_bits is not None:
        effects.append("bitwise equal results" if trial.same_bits else "results not bitwise equal")
    return effects


def _with_stop(sentence: str) -> str:
    return sentence if sentence.endswith(".") else f"{sentence}."


MAX_PATHS = 2
MIN_MORE = 0.05  # of the step: what a repair saves more after others


def verdict_sections(verdict: Verdict | None, warnings: Iterable[Block], *, remedies: bool = True) -> Iterator[Section]:
    """The verdict with `warnings` about the whole report, then what to do, then the advice that did not help."""
    verdict = verdict or Verdict(sentences=())  # reports of earlier versions have none
    sentences = (Paragraph(text=sentence) for sentence in verdict.sentences)
    yield Section(title="Verdict", blocks=(*sentences, *warnings), is_result=True)
    if verdict.remedies and remedies:
        sequence = [Paragraph(text=text) for text in (sequence_sentence(verdict),) if text]
        yield Section(title="What to do", blocks=(RemedyList(remedies=verdict.remedies), *sequence), is_result=True)
    if verdict.without_gain and remedies:
        yield Section(title="Tried, no gain", blocks=(RemedyList(remedies=verdict.without_gain),))


def sequence_sentence(verdict: Verdict) -> str:
    """The step after one repair after the other: ``13.3 ms now, 9.1 ms without [1], 7 ms without [1] and [2]``."""
    if len(verdict.sequence) < 2 or verdict.step_ns is None:
        return ""
    parts, done = [f"{text(verdict.step_ns, 'ns')} now"], ""
    for step in verdict.sequence:
        done = f"{done} and [{step.finding}]" if done else f"[{step.finding}]"
        parts.append(f"about {text(step.step_ns, 'ns')} without {done}")
    device = f" The device's work alone takes {text(verdict.device_work_ns, 'ns')}." if verdict.device_work_ns else ""
    return f"A step, one repair after the other: {', '.join(parts)}.{device}"


def remedy_sentence(remedy: RankedRemedy) -> str:
    """The gain of `remedy`, its effects on memory and numerics, and whether it was tried: one line below the action."""
    effects = [effect for effect in (remedy.memory, remedy.numerics) if effect]
    layers = [shown_path(path) for path in remedy.paths[:MAX_PATHS]] if not remedy.code else []
    more = ", ..." if len(remedy.paths) > MAX_PATHS else ""
    parts = [f"in {', '.join(layers)}{more}"] if layers else []
    status = remedy.status if remedy.is_measured else "not tried"
    return f"{'; '.join([*parts, _gain(remedy), *effects, status])}."


def _gain(remedy: RankedRemedy) -> str:
    """The measured gain with its interval, or the limit of an estimate."""
    gain = remedy.gain_percent
    if remedy.outcome == "failed":
        return "failed"
    if gain is None:
        return "gain unknown"
    quantity = {"step": "time", "peak": "peak memory", "work": "FLOPs"}[remedy.about]
    if not remedy.is_measured:
        return f"at most {text(gain, 'percent')} of the {quantity}"
    if remedy.outcome == "same":
        return "no significant difference"
    low, high = remedy.gain_low_percent, remedy.gain_high_percent
    sentence = f"{text(abs(gain), 'percent')} {'less' if gain >= 0 else 'more'} {quantity}"
    sentence += " per example" if remedy.per_example else ""
    if low is not None and high is not None:
        ends = sorted((low, high) if gain >= 0 else (-low, -high))
        sentence += f" ({ends[0]:.1f} to {ends[1]:.1f} %)"
    return sentence


def share_sentence(finding: Finding) -> str:
    """The part of the step (or of peak memory) that `finding` explains; empty where that is unknown."""
    if finding.share is None:
        return ""
    quantity = "peak memory" if PEAK in finding.claims else "the time"
    if finding.share < 0.0005:  # it would be shown as 0.0 %
        return f"Explains no part of {quantity} beyond the findings above."
    if (saving := finding.saving) is not None:
        low, high = percent(saving.low), percent(saving.high)
        later = (
            f"; {percent(finding.share)} once those above are repaired as well"
            if finding.share > saving.median + MIN_MORE
            else ""
        )
        return f"Once repaired, a step takes {percent(saving.median)} less time ({low} to {high}){later}."
    return f"Explains {percent(finding.share)} of {quantity}."
