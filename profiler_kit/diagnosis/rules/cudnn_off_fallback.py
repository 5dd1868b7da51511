"""What runs, and what it costs, when cuDNN is off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import Attempt
from profiler_kit.diagnosis.pairs import plain
from profiler_kit.diagnosis.rule import Rule, known
from profiler_kit.diagnosis.timing import kernels, ratio
from profiler_kit.diagnosis.words import quoted, sentences, threshold, times
from profiler_kit.records.families import IM2COL
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.noise import noise_of, saving, verdict
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import percent, text

# A tenth more memory is im2col's buffers; less may be the allocator's rounding.
MORE_MEMORY: Final = 0.10

DOC = f"""
A run with `cudnn.enabled=False` stands beside the plain runs with cuDNN on (no benchmark, not deterministic): how much
slower or faster the step is, and whether it peaks more than {threshold(MORE_MEMORY)} higher. Convolutions then run as PyTorch's
own im2col and matrix product, in float32 unless TF32 is allowed for matrix products too; so the run without TF32 is the fair
one to compare with, where there is one. `info`, as it is a fallback and no choice; `low` where cuDNN off is surely faster.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires once, where the run without cuDNN and a plain one with it were measured."""
    off = next((r for r in plain(report) if r.config.enabled is False), None)
    with_it = [r for r in plain(report) if _is_unchanged(r)]
    if off is None or off.step_ns is None or not with_it:
        return
    fair = next((r for r in with_it if r.config.allow_tf32 is False), with_it[0])
    if fair.step_ns is None:
        return
    noise = noise_of(report)
    outcome = verdict(fair, off, noise)
    factor = ratio(off.step_ns.median, fair.step_ns.median)
    if factor is None:
        return
    yield RULE.finding(
        severity="low" if outcome == "better" else "info",
        title=_title(outcome, factor, fair),
        explanation=sentences(
            *(_beside(off, r) for r in with_it),
            _im2col(off),
            noise.sentence(),
        ),
        advice=_advice(outcome),
        evidence=(
            Evidence(name="step against cuDNN on", value=factor, unit="ratio", where=off.config.name),
            Evidence(name="median step", value=off.step_ns.median, unit="ns", where=off.config.name),
            Evidence(name="median step", value=fair.step_ns.median, unit="ns", where=fair.config.name),
            *known(off.config.name, ("peak", off.peak_allocated_bytes, "bytes")),
            *known(fair.config.name, ("peak", fair.peak_allocated_bytes, "bytes")),
        ),
        attempt=Attempt(trial=sweep_trial(fair, off, noise) if outcome == "better" else None),
        weight=saving(fair.step_ns, off.step_ns) if outcome == "better" else 0.0,
    )


def _is_unchanged(run: ConfigRun) -> bool:
    flags = run.config
    return flags.enabled is True and not flags.benchmark and not flags.deterministic and run.step_ns is not None


def _title(outcome: str, factor: float, fair: ConfigRun) -> str:
    if outcome == "same":
        return (
            f"Without cuDNN the step takes as long as {quoted(fair)}, as far as can be told ({times(factor)} the time)"
        )
    if outcome == "better":
        return f"Without cuDNN the step is faster: {times(factor)} the time of {quoted(fair)}"
    return f"Without cuDNN the step takes {times(factor)} the time of {quoted(fair)}"


def _beside(off: ConfigRun, on: ConfigRun) -> str:
    if off.step_ns is None or on.step_ns is None:
        return ""
    said = f"The step takes {text(off.step_ns.median, 'ns')} with cuDNN off and {text(on.step_ns.median, 'ns')} in {quoted(on)}"
    more = ratio(off.peak_allocated_bytes, on.peak_allocated_bytes)
    if more is None or more <= 1.0 + MORE_MEMORY:
        return f"{said}."
    peaks = text(off.peak_allocated_bytes, "bytes"), text(on.peak_allocated_bytes, "bytes")
    return f"{said}, and peaks at {peaks[0]} instead of {peaks[1]}."


def _im2col(off: ConfigRun) -> str:
    spent = sum(k.kernel_ns for k in kernels(off) if k.family == IM2COL)
    share = ratio(spent, off.device_ns)
    if not spent or share is None:
        return ""
    return (
        f"PyTorch's own convolution writes each input patch out before it multiplies (im2col, {percent(share)} of the device "
        "time), one sample at a time: that buffer has kernel height x kernel width values for each output position and input "
        "channel."
    )


def _advice(outcome: str) -> str:
    if outcome == "better":
        return "Try torch.backends.cudnn.enabled = False for this model, and compare the results."
    return (
        "Leave torch.backends.cudnn.enabled at True. torch.backends.cudnn.flags(...) turns it off inside its block unless "
        "enabled=True is passed."
    )


RULE = Rule("cudnn_off_fallback", DOC, check)
