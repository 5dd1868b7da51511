"""Layers whose channels tensor cores have to pad."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.convolution import MULTIPLE, Channels, channels_of, padded
from profiler_kit.diagnosis.rule import Rule, known
from profiler_kit.diagnosis.timing import is_product
from profiler_kit.diagnosis.words import layer, listing, opening, quoted, sentences, threshold
from profiler_kit.records.counts import ModuleNode
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import percent, text

# A layer below a twentieth of the device time is not worth another shape of its weights.
LEAST_SHARE: Final = 0.05
# Less padding than this is within what tiles lose at the edges anyway.
LEAST_PADDING: Final = 0.05
# A twentieth of the device time spent on padding is worth a look at the model.
MEDIUM: Final = 0.05
TENSOR_CORE_MATH: Final = frozenset({"tf32", "f16", "bf16"})

DOC = f"""
A convolution or linear layer whose kernels are of tensor-core arithmetic has channels (features) that are no multiple of
{MULTIPLE}: at least {threshold(LEAST_PADDING)} of its multiplications are padding, and it takes at least {threshold(LEAST_SHARE)}
of the baseline's device time. The share is **computed from the channels** and a lower bound: tiles are larger than {MULTIPLE}, so
more is padded where a layer has few channels (hardware counters show it). `medium` where padding takes {threshold(MEDIUM)} of the
device time, else `low`. More channels, up to the next multiple, then cost next to nothing.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One layer, its channels and its device time."""

    node: ModuleNode
    channels: Channels
    ns: int
    math: str

    @property
    def padding_ns(self) -> float:
        return self.ns * self.channels.padded_share


def check(report: Report) -> Iterator[Finding]:
    """Fires once, for all such layers of the baseline."""
    run = report.baseline()
    if run is None or run.clock != "kernel" or not run.device_ns or report.static is None:
        return
    found = [case for node in report.static.modules if (case := _case(run, node)) is not None]
    large = [case for case in found if case.ns >= LEAST_SHARE * run.device_ns]
    cases = sorted(
        (case for case in large if case.channels.padded_share >= LEAST_PADDING), key=lambda case: -case.padding_ns
    )
    if not cases:
        return
    worst = cases[0]
    stake = min(1.0, sum(case.padding_ns for case in cases) / run.device_ns)
    yield RULE.finding(
        severity="medium" if stake >= MEDIUM else "low",
        title=f"{opening(worst.node.path)} pads {percent(worst.channels.padded_share)} of its multiplications: "
        f"{listing([str(count) for count in worst.channels.uneven])} channels, no multiple of {MULTIPLE}",
        explanation=sentences(
            f"In {quoted(run)} {listing([_said(case) for case in cases])}.",
            f"Together the padding takes at least {percent(stake)} of the device time, computed from the channels.",
        ),
        advice=f"Choose channels that are multiples of {MULTIPLE}, better of 64: "
        f"{_next(worst.channels)} instead of {worst.channels.inputs} -> {worst.channels.outputs} cost about the same time. It "
        "changes the model, so train it again.",
        evidence=tuple(
            piece
            for case in cases
            for piece in (
                *known(case.node.path, ("padded share", 100.0 * case.channels.padded_share, "percent")),
                *known(f"{case.node.path}, {run.config.name}", ("device time", case.ns, "ns")),
            )
        ),
        paths=(case.node.path for case in cases),
        weight=stake,
        computed=True,
    )


def _case(run: ConfigRun, node: ModuleNode) -> _Case | None:
    channels = channels_of(node)
    if channels is None or not channels.uneven:
        return None
    times: Counter[str] = Counter()
    for kernel in (kernel for item in run.modules if item.path == node.path for kernel in item.kernels):
        if kernel.math in TENSOR_CORE_MATH and is_product(kernel.family):
            times[kernel.math] += kernel.kernel_ns
    if not times:
        return None
    math = max(sorted(times), key=lambda name: times[name])
    return _Case(node=node, channels=channels, ns=times.total(), math=math)


def _said(case: _Case) -> str:
    channels = case.channels
    return (
        f"{layer(case.node.path)} spends {text(case.ns, 'ns')} in {case.math} kernels on {channels.inputs} -> {channels.outputs} "
        f"channels, filled up to {_next(channels)}"
    )


def _next(channels: Channels) -> str:
    return f"{padded(channels.inputs)} -> {padded(channels.outputs)}"


RULE = Rule("channels_multiple", DOC, check, "cause")
