"""The verdict of a report as sections, and the sentences of remedies and shares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from profiler_kit.records.claims import PEAK
from profiler_kit.records.document import Block, Paragraph, RemedyList, Section
from profiler_kit.records.paths import shown_path
from profiler_kit.records.report import Finding
from profiler_kit.records.verdict import RankedRemedy, Verdict
from profiler_kit.units import percent, text

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
