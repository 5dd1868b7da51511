"""cuDNN configurations that all take the same time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.pairs import plain_runs
from profiler_kit.diagnosis.phrases import join_list, join_sentences, limit_percent, plural, quoted_name
from profiler_kit.diagnosis.rule import Rule, new_finding
from profiler_kit.diagnosis.timing import kernels_of, ns_by_family
from profiler_kit.records.families import family_name, is_convolution
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.noise import MIN_USEFUL_SAVING, Noise, noise_of
from profiler_kit.units import percent, text

# Below this busy share, launches take most of the time that could be saved.
MIN_BUSY_SHARE: Final = 0.6
# Below this share of the device time, other kernels are more important than convolutions.
MIN_CONVOLUTION_SHARE: Final = 0.5

DOC = f"""
Fires if at least two configurations with cuDNN on were measured, and none is significantly different from the baseline by
{limit_percent(MIN_USEFUL_SAVING)} or more. Always `info`: the flags do not change the time.

The finding points to a better place to look: launches, if kernels run for less than {limit_percent(MIN_BUSY_SHARE)} of the
step, else the kernel families with the most time. cuDNN off is not a choice here: it is a fallback.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding."""
    baseline = report.baseline()
    if baseline is None or baseline.step_ns is None:
        return
    noise = noise_of(report)
    others = [r for r in plain_runs(report) if r is not baseline and r.config.enabled is True and r.step_ns is not None]
    if not others or any(_differs(baseline, r, noise) for r in others):
        return
    steps = [r.step_ns.median for r in (baseline, *others) if r.step_ns is not None]
    yield new_finding(
        severity="info",
        title=f"cuDNN flags do not change the step: {plural(len(steps), 'configuration')} take {text(min(steps), 'ns')} to "
        f"{text(max(steps), 'ns')}",
        explanation=join_sentences(
            f"{join_list([quoted_name(r) for r in others])} {'differs' if len(others) == 1 else 'differ'} from "
            f"{quoted_name(baseline)} by less than {limit_percent(MIN_USEFUL_SAVING)}, or the difference is within the "
            "intervals and the noise.",
            noise.sentence(),
            _other_causes(baseline),
        ),
        advice=_advice(baseline),
        evidence=(
            Evidence(name="configurations", value=len(steps), unit="count"),
            Evidence(name="shortest median step", value=min(steps), unit="ns"),
            Evidence(name="longest median step", value=max(steps), unit="ns"),
            *([Evidence(name="A/A gap", value=100.0 * noise.gap, unit="percent")] if noise.gap is not None else []),
        ),
    )


def _differs(baseline: ConfigRun, other: ConfigRun, noise: Noise) -> bool:
    difference = noise.difference(baseline, other)
    return difference is not None and difference.is_sure and abs(difference.saved) >= MIN_USEFUL_SAVING


def _other_causes(baseline: ConfigRun) -> str:
    busy = baseline.busy_share
    if busy is None or baseline.clock != "kernel":
        return ""
    if busy < MIN_BUSY_SHARE:
        return f"Kernels run for only {percent(busy)} of the step. Launches and waits take the rest."
    families = [(f, ns) for f, ns in ns_by_family(baseline).most_common(3) if baseline.device_ns]
    shares = [f"{family_name(f)} {percent(ns / baseline.device_ns)}" for f, ns in families if baseline.device_ns]
    return f"Device time by kernel family: {join_list(shares)}." if shares else ""


def _advice(baseline: ConfigRun) -> str:
    busy = baseline.busy_share
    if baseline.clock == "kernel" and busy is not None and busy < MIN_BUSY_SHARE:
        return "Keep the defaults and reduce launches: a larger batch, torch.compile, or CUDA graphs."
    convolution_ns = sum(k.kernel_ns for k in kernels_of(baseline) if is_convolution(k.family))
    if baseline.device_ns and convolution_ns < MIN_CONVOLUTION_SHARE * baseline.device_ns:
        kinds = "operators" if baseline.clock == "operator" else "kernels"
        return (
            f"Keep the defaults and improve the {kinds} other than convolutions: fuse them (torch.compile), or move fewer bytes "
            "(a smaller data type, fewer or smaller activations)."
        )
    return "Keep the defaults and change the model: the layer table shows which layers take the time."


RULE = Rule("nothing_to_choose", DOC, check)
