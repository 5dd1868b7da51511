"""The outcome of a trial as a sentence: step time before and after, gain, verdict, and effects on memory and numbers."""

from __future__ import annotations

from profiler_kit.records.report import Trial
from profiler_kit.units import digits, text


def trial_sentence(trial: Trial, *, with_note: bool = True) -> str:
    """The step before and after, the gain, the verdict, and other effects of the trial; `with_note` adds its note.

    **Units**: the gain is time per step, or per example where the two steps have different batch sizes.
    """
    if trial.verdict == "failed":
        return _with_stop(f"failed: {trial.note}")
    parts = [f"{text(trial.before_ns.median, 'ns')} -> {text(trial.after_ns.median, 'ns')}", trial.verdict]
    if trial.gain_percent is not None and (trial.tried or trial.per_example):
        parts[1:1] = [_gain(trial)]
    if trial.tried:
        parts += _effects(trial)
    sentence = _with_stop(", ".join(parts))
    return f"{sentence} {trial.note}" if with_note and trial.note else sentence


def _gain(trial: Trial) -> str:
    percent = trial.gain_percent or 0.0
    is_less = percent >= 0
    per_example = " per example" if trial.per_example else ""
    gain = f"{text(abs(percent), 'percent')} {'less' if is_less else 'more'} time{per_example}"
    low, high = trial.gain_low_percent, trial.gain_high_percent
    if trial.tried and low is not None and high is not None:
        ends = sorted((low, high) if is_less else (-low, -high))
        gain += f" ({ends[0]:.1f} to {ends[1]:.1f} %)"
    return gain + _estimate(trial)


def _estimate(trial: Trial) -> str:
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
