"""The verdict of a report as sections, and the sentences of remedies and shares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from profiler_kit.records.document import Block, Paragraph, RemedyList, Section
from profiler_kit.records.paths import shown_path
from profiler_kit.records.report import Finding
from profiler_kit.records.verdict import RankedRemedy, Verdict
from profiler_kit.units import percent, text

MAX_PATHS = 2


def verdict_sections(verdict: Verdict | None, warnings: Iterable[Block], *, remedies: bool = True) -> Iterator[Section]:
    """The verdict with `warnings` about the whole report, then what to do, then the advice that did not help."""
    verdict = verdict or Verdict(sentences=())  # reports of earlier versions have none
    sentences = (Paragraph(text=sentence) for sentence in verdict.sentences)
    yield Section(title="Verdict", blocks=(*sentences, *warnings), is_result=True)
    if verdict.remedies and remedies:
        yield Section(title="What to do", blocks=(RemedyList(remedies=verdict.remedies),), is_result=True)
    if verdict.without_gain and remedies:
        yield Section(title="Tried, no gain", blocks=(RemedyList(remedies=verdict.without_gain),))


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
    quantity = "peak memory" if "peak" in finding.claims else "the time"
    if finding.share < 0.0005:  # it would be shown as 0.0 %
        return f"Explains no part of {quantity} beyond the findings above."
    if (saving := finding.saving) is not None:
        return f"A step without it takes {percent(saving.median)} less time ({percent(saving.low)} to {percent(saving.high)})."
    return f"Explains {percent(finding.share)} of {quantity}."
