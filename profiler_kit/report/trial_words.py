"""What came of an advice that was tried, in words."""

from __future__ import annotations

from profiler_kit.records.report import Trial
from profiler_kit.units import digits, text


def trial_words(trial: Trial, *, whole: bool = True) -> str:
    """The step before and after, the verdict, and what else the trial changed; `whole` adds its note.

    A gain is of the time of a step, or of an example where the two steps hold different numbers of them.
    """
    steps = f"{text(trial.before_ns.median, 'ns')} -> {text(trial.after_ns.median, 'ns')}"
    if trial.verdict == "failed":
        return _ended(f"failed: {trial.note}")
    parts = [steps, trial.verdict]
    if trial.gain_percent is not None and (trial.tried or trial.per_example):
        parts[1:1] = [_gain(trial)]
    if trial.tried:
        parts += _effects(trial)
    said = _ended(", ".join(parts))
    return f"{said} {trial.note}" if whole and trial.note else said


def _gain(trial: Trial) -> str:
    percent = trial.gain_percent or 0.0
    less = percent >= 0
    each = " an example" if trial.per_example else ""
    said = f"{text(abs(percent), 'percent')} {'less' if less else 'more'} time{each}"
    low, high = trial.gain_low_percent, trial.gain_high_percent
    if trial.tried and low is not None and high is not None:
        ends = sorted((low, high) if less else (-low, -high))
        said += f" ({ends[0]:.1f} to {ends[1]:.1f} %)"
    return said + _stated(trial)


def _stated(trial: Trial) -> str:
    """What the finding had stated before, and whether that was it: whether the two intervals meet."""
    if trial.stated_percent is None:
        return ""
    said = f", stated before: {text(trial.stated_percent, 'percent')}"
    bounds = (trial.stated_low_percent, trial.stated_high_percent, trial.gain_low_percent, trial.gain_high_percent)
    stated_low, stated_high, low, high = bounds
    if stated_low is None or stated_high is None or low is None or high is None:
        return said
    said += f" ({stated_low:.1f} to {stated_high:.1f} %)"
    return said if stated_low <= high and low <= stated_high else f"{said}, which it is not"


def _effects(trial: Trial) -> list[str]:
    """What the trial did to memory, numbers and bits, where both sides are known and differ."""
    said = []
    if trial.before_peak_bytes is not None and trial.after_peak_bytes is not None:
        before, after = text(trial.before_peak_bytes, "bytes"), text(trial.after_peak_bytes, "bytes")
        said.append(f"peak {before} -> {after}" if before != after else "the same peak")
    if trial.before_error is not None and trial.after_error is not None:
        was, now = digits(trial.before_error, 2), digits(trial.after_error, 2)
        said.append(f"error {was} -> {now}" if was != now else "the same error")
    if trial.same_bits is not None:
        said.append("the same bits" if trial.same_bits else "other bits")
    return said


def _ended(said: str) -> str:
    return said if said.endswith(".") else f"{said}."
