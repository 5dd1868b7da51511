"""Which algorithms a layer ran on in one phase, and how that is said."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from profiler_kit.records.comparison import AlgorithmUse, LayerEfficiency
from profiler_kit.records.counts import Phase
from profiler_kit.records.families import FEWER_OPERATIONS, algorithms
from profiler_kit.records.laboratory import ConvolutionPart, ConvolutionTiming
from profiler_kit.records.runs import ConfigRun, KernelStat
from profiler_kit.units import text

# Recomputation is forward work, done where backward needs it: it counts as backward, as in every share of phases.
RAN_IN: Final[dict[Phase, Phase]] = {"recompute": "backward"}
PARTS: Final[dict[Phase, tuple[ConvolutionPart, ...]]] = {"forward": ("fprop",), "backward": ("dgrad", "wgrad")}
MOSTLY_SHARE: Final = 0.75  # of a phase's time: a family that takes less did it only mostly


def algorithm_uses(run: ConfigRun, path: str, phase: Phase) -> tuple[AlgorithmUse, ...]:
    """What `path` ran on in `phase` of `run`, most time first: its parts where they were measured, else its kernels."""
    parts = [one for one in run.convolutions if one.path == path and one.part in PARTS.get(phase, ())]
    if parts:
        return tuple(sorted((_use(one) for one in parts), key=lambda one: -one.kernel_ns))
    return tuple(
        AlgorithmUse(family=one.family, math=one.math, kernel_ns=one.kernel_ns)
        for one in algorithms(_kernels(run, path, phase))
    )


def _use(part: ConvolutionTiming) -> AlgorithmUse:
    return AlgorithmUse(
        family=part.family,
        math=part.math,
        kernel_ns=part.kernel_ns,
        part=part.part,
        flops_per_s=part.flops_per_s,
        workspace_bytes=part.workspace_bytes,
    )


def _kernels(run: ConfigRun, path: str, phase: Phase) -> Iterable[KernelStat]:
    for layer in run.modules:
        if layer.path == path and RAN_IN.get(layer.phase, layer.phase) == phase:
            yield from layer.kernels


def workspace_algorithm(run: ConfigRun, path: str, phase: Phase) -> AlgorithmUse | None:
    """What took the workspace of `path` in `phase`: the part with most of it, else what took most time."""
    uses = algorithm_uses(run, path, RAN_IN.get(phase, phase))
    return max(uses, key=lambda one: one.workspace_bytes or 0, default=None)  # the first of equals takes most time


def rate_words(one: LayerEfficiency) -> str:
    """How fast, and by what: ``FFT in fp32 at an effective 86.3 TFLOP/s``; the time where no work is counted.

    Effective: the algorithm does less arithmetic than is counted, so the rate may pass any peak.
    """
    took = text(one.flops_per_s, "flops/s") if one.flops_per_s else ""
    if not one.algorithms:
        return f"kernels not named, at {took}" if took else "kernels not named"
    words = one.algorithms[0].words
    if not took:
        return words
    return f"{words} at {'an effective ' if one.algorithms[0].family in FEWER_OPERATIONS else ''}{took}"


def by_words(one: LayerEfficiency) -> str:
    """The same as what did it: ``by FFT in fp32 at …``, ``mostly by`` where other families took a good part."""
    return f"{'mostly ' if one.algorithms and one.first_share < MOSTLY_SHARE else ''}by {rate_words(one)}"
