"""No configuration differs from the baseline: the flags are not where the time is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.pairs import plain
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.timing import device_share, kernels, time_by_family
from profiler_kit.diagnosis.words import listing, plural, quoted, sentences, threshold
from profiler_kit.records.families import family_words, is_convolution
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.noise import WORTH, Noise, noise_of, saving, verdict
from profiler_kit.units import percent, text

# Below this the device waits for the host most of the time one would want to save.
BUSY: Final = 0.6

DOC = f"""
At least two configurations with cuDNN on were measured, and none is surely different from the baseline by {threshold(WORTH)} or
more. The flags then make no difference to the time, and the finding says where to look instead: at launching, where kernels
run for less than {threshold(BUSY)} of the step; otherwise at the kernel families that take the time. cuDNN off is not counted
among the choices: it is a fallback.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires once, as information."""
    base = report.baseline()
    if base is None or base.step_ns is None:
        return
    noise = noise_of(report)
    others = [r for r in plain(report) if r is not base and r.config.enabled is True and r.step_ns is not None]
    if not others or any(_differs(base, r, noise) for r in others):
        return
    steps = [r.step_ns.median for r in (base, *others) if r.step_ns is not None]
    yield RULE.finding(
        severity="info",
        title=f"No choice among {plural(len(others) + 1, 'cuDNN configuration')} changes the step: "
        f"{text(min(steps), 'ns')} to {text(max(steps), 'ns')}",
        explanation=sentences(
            f"{listing([quoted(r) for r in others])} {'differs' if len(others) == 1 else 'differ'} from {quoted(base)} by less "
            f"than {threshold(WORTH)}, or by no more than the intervals and the noise allow.",
            noise.sentence(),
            _instead(base),
        ),
        advice=_advice(base),
        evidence=(
            Evidence(name="configurations", value=len(others) + 1, unit="count"),
            Evidence(name="shortest median step", value=min(steps), unit="ns"),
            Evidence(name="longest median step", value=max(steps), unit="ns"),
            *([Evidence(name="A/A gap", value=100.0 * noise.gap, unit="percent")] if noise.gap is not None else []),
        ),
    )


def _differs(base: ConfigRun, other: ConfigRun, noise: Noise) -> bool:
    if base.step_ns is None or other.step_ns is None:
        return False
    return verdict(base, other, noise) != "same" and abs(saving(base.step_ns, other.step_ns)) >= WORTH


def _instead(base: ConfigRun) -> str:
    busy = device_share(base)
    if busy is None or base.clock != "kernel":
        return ""
    if busy < BUSY:
        return f"Kernels run for {percent(busy)} of the step only: the rest goes into launching them, or waiting."
    families = [(f, ns) for f, ns in time_by_family(base).most_common(3) if base.device_ns]
    said = [f"{family_words(f)} {percent(ns / base.device_ns)}" for f, ns in families if base.device_ns]
    return f"By kernel family the device time goes to {listing(said)}." if said else ""


def _advice(base: ConfigRun) -> str:
    busy = device_share(base)
    if base.clock == "kernel" and busy is not None and busy < BUSY:
        return "Keep the defaults, and look at launching: a larger batch, torch.compile, or CUDA graphs."
    convolutions = sum(k.kernel_ns for k in kernels(base) if is_convolution(k.family))
    if base.device_ns and convolutions < 0.5 * base.device_ns:
        return (
            "Keep the defaults, and look at the kernels that are no convolutions: fuse them (torch.compile), or move fewer "
            "bytes (a smaller data type, fewer or smaller activations)."
        )
    return "Keep the defaults, and look at the model instead: the layer table shows which layers take the time."


RULE = Rule("nothing_to_choose", DOC, check)
