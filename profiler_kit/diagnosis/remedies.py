"""What to do: the advice of findings as a ranked list, with the line to paste, its gain, and its effects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Literal

from profiler_kit.configurations.axis import Change
from profiler_kit.configurations.naming import change_of
from profiler_kit.diagnosis.advice import optimizer_class
from profiler_kit.diagnosis.phrases import Advice
from profiler_kit.diagnosis.registry import all_rules
from profiler_kit.records.claims import PEAK
from profiler_kit.records.report import Finding, Remedy, Report, TraceReport, Trial
from profiler_kit.records.verdict import RankedRemedy, RemedyStatus
from profiler_kit.statistics.noise import noise_of
from profiler_kit.units import digits, text

# An estimate below this share of the step does not justify a change of code.
MIN_ESTIMATE: Final = 0.03
# Topics whose advice changes the program. The others say how to read the report.
_TOPICS: Final = ("place", "bound", "site", "cause", "remedy", "memory")


def remedies(
    report: Report | TraceReport, cause: int | None = None
) -> tuple[tuple[RankedRemedy, ...], tuple[RankedRemedy, ...]]:
    """Return the ranked remedies of the findings of `report`, and the advice that was tried without gain.

    Measured ones come first, the largest gain first. Estimates follow in the order of their findings, which puts a cause before
    its symptoms: the first one treats the main cause, however large the share of a symptom is.
    `cause`: the number of the main cause, whose advice counts even if it is about the recording. Findings that advise the same
    configuration, or the same action, share one remedy.
    """
    topics = {rule.name: rule.topic for rule in all_rules()}
    by_action: dict[tuple[str, str | None], RankedRemedy] = {}
    for number, finding in enumerate(report.findings, start=1):
        if not finding.advice or finding.severity == "info" or not _applies_to_baseline(report, finding):
            continue
        remedy = _remedy(report, finding, number)
        topic = topics.get(finding.rule, "note")
        if topic not in _TOPICS and number == cause:
            remedy = replace(remedy, status="not tried", gain_percent=None)
        elif not remedy.is_measured and not _is_action(finding, topic):
            continue
        key = (remedy.config or remedy.code or remedy.action, remedy.config)
        earlier = by_action.get(key)
        by_action[key] = remedy if earlier is None else _merged(earlier, remedy)
    useful = [remedy for remedy in by_action.values() if remedy.outcome in (None, "better")]
    without_gain = tuple(remedy for remedy in by_action.values() if remedy.outcome not in (None, "better"))
    useful.sort(key=_rank)
    return tuple(useful), without_gain


def _rank(remedy: RankedRemedy) -> tuple[bool, bool, float]:
    order = -(remedy.gain_percent or 0.0) if remedy.is_measured else remedy.findings[0]
    return not remedy.is_measured, remedy.about == "peak", order


def _merged(first: RankedRemedy, second: RankedRemedy) -> RankedRemedy:
    return replace(
        first if _rank(first) <= _rank(second) else second,
        findings=tuple(sorted({*first.findings, *second.findings})),
    )


def _is_action(finding: Finding, topic: str) -> bool:
    """Return whether advice without a measured gain changes the program, for a share of the step that matters.

    A finding whose time others explain adds no remedy: theirs come first.
    """
    share = finding.share if finding.share is not None else finding.weight
    return topic in _TOPICS and (finding.severity != "low" or finding.computed) and share >= MIN_ESTIMATE


def _applies_to_baseline(report: Report | TraceReport, finding: Finding) -> bool:
    """Return whether the advice changes the baseline, and its trial starts there."""
    run = report.baseline() if isinstance(report, Report) else None
    if not isinstance(report, Report) or run is None or finding.config is None:
        return True
    if finding.config == run.config.name:
        return False
    trial = finding.trial
    return trial is None or trial.tried or trial.before_ns == noise_of(report).compared_step(run)


def _remedy(report: Report | TraceReport, finding: Finding, number: int) -> RankedRemedy:
    # a trial measures the configuration that it names, which may be another one of `tries`
    config = finding.trial.config if finding.trial is not None else finding.config
    changes = tuple(_changes(report, config))
    advised = advised_remedy(finding)
    action, applied = advised.text, "; ".join(change.line for change in changes)
    # the advice's own line is more specific, but a measured gain is that of the configuration
    code = advised.code or applied
    if finding.trial is not None:
        code = applied or advised.code
        if applied and finding.tries and config != finding.tries[0]:
            action = f'Use "{config}"'  # the advice is about the first of `tries`
    elif finding.config is not None and finding.config.startswith("batch="):
        code = advised.code  # the factor of a trial does not suit every training
    estimate = finding.weight if finding.saving is None else finding.saving.high
    remedy = RankedRemedy(
        action=action,
        code=code,
        paths=finding.paths,
        findings=(number,),
        about=_about(report, finding),
        config=finding.config,
        status="estimated" if finding.weight > 0.0 else "not tried",
        gain_percent=100.0 * estimate if estimate > 0.0 else None,
        memory=", ".join(change.memory for change in changes if change.memory),
        numerics=", ".join(dict.fromkeys(change.numerics for change in changes if change.numerics)),
    )
    return remedy if finding.trial is None else _with_trial(remedy, finding.trial)


def _about(report: Report | TraceReport, finding: Finding) -> Literal["step", "peak", "work"]:
    if PEAK in finding.claims or any(rule.name == finding.rule and rule.topic == "memory" for rule in all_rules()):
        return "peak"
    return "work" if isinstance(report, Report) and report.baseline() is None else "step"


def _with_trial(remedy: RankedRemedy, trial: Trial) -> RankedRemedy:
    """Return `remedy` with the outcome of `trial`."""
    gain, low, high = trial.gain_percent, trial.gain_low_percent, trial.gain_high_percent
    status: RemedyStatus = "tried" if trial.tried else "measured"
    about: Literal["step", "peak", "work"] = "step"
    outcome = trial.verdict
    before, after = trial.before_peak_bytes, trial.after_peak_bytes
    if remedy.about == "peak" and before and after is not None:
        about, gain, low, high = "peak", 100.0 * (1.0 - after / before), None, None
        outcome = "better" if after < before else "worse" if after > before else "same"
    return replace(
        remedy,
        status=status,
        about=about,
        config=trial.config,
        outcome=outcome,
        gain_percent=gain,
        gain_low_percent=low,
        gain_high_percent=high,
        per_example=trial.per_example,
        memory=_memory_effect(trial) or remedy.memory,
        numerics=_numeric_effect(trial) or remedy.numerics,
    )


def _memory_effect(trial: Trial) -> str:
    if trial.before_peak_bytes is None or trial.after_peak_bytes is None:
        return ""
    before, after = text(trial.before_peak_bytes, "bytes"), text(trial.after_peak_bytes, "bytes")
    return f"peak {before} -> {after}" if before != after else "same peak"


def _numeric_effect(trial: Trial) -> str:
    if trial.same_bits:
        return "bitwise equal results"
    if trial.before_error is None or trial.after_error is None:
        return ""
    before, after = digits(trial.before_error, 2), digits(trial.after_error, 2)
    return f"error {before} -> {after}" if before != after else "same error"


def _changes(report: Report | TraceReport, config: str | None) -> Iterator[Change]:
    """Yield the changes that turn the baseline into the configuration `config`."""
    if config is None or not isinstance(report, Report):
        return
    run = report.baseline()
    baseline_words = set(run.config.name.split("+")) if run is not None else set()
    device = run.environment.device.partition(":")[0] if run is not None and run.environment is not None else "cuda"
    for word in config.split("+"):
        name, _, value = word.partition("=")
        change = change_of(
            f"batch={value.removesuffix('x')} * batch_size" if name == "batch" and value.endswith("x") else word
        )
        if change is None or word in baseline_words:
            continue
        change = change.filled(device=device, optimizer=optimizer_class(report) or "AdamW")
        yield replace(change, numerics="") if change.in_training and report.target.mode != "train" else change


def advised_remedy(finding: Finding) -> Remedy:
    """Return what `finding` advises, also for a finding of an earlier version, which has sentences alone."""
    return finding.remedy or Remedy(text=Advice(finding.advice).action)
