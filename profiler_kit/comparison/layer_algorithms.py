"""The algorithms that a layer used in one phase, and their wording."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from profiler_kit.records.comparison import AlgorithmUse, LayerEfficiency
from profiler_kit.records.counts import Phase
from profiler_kit.records.experiments import ConvolutionPart, ConvolutionTiming
from profiler_kit.records.families import REDUCED_OPERATION_FAMILIES, algorithms_by_time
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import KernelStat
from profiler_kit.units import text

# Recomputation is forward work that runs during backward. It counts as backward, as in all shares by phase.
TIMED_AS: Final[dict[Phase, Phase]] = {"recompute": "backward"}
CONVOLUTION_PARTS: Final[dict[Phase, tuple[ConvolutionPart, ...]]] = {
    "forward": ("fprop",),
    "backward": ("dgrad", "wgrad"),
}
MIN_WHOLE_SHARE: Final = 0.75  # of a phase's time: a family with a smaller share is named with "mostly"


def algorithm_uses(run: ConfigRun, path: str, phase: Phase) -> tuple[AlgorithmUse, ...]:
    """The algorithms of `path` in `phase` of `run`, longest first: from measured convolution parts, else from kernels."""
    parts = [part for part in run.convolutions if part.path == path and part.part in CONVOLUTION_PARTS.get(phase, ())]
    if parts:
        return tuple(sorted(map(_algorithm_use, parts), key=lambda use: -use.kernel_ns))
    return tuple(
        AlgorithmUse(family=algorithm.family, math=algorithm.math, kernel_ns=algorithm.kernel_ns)
        for algorithm in algorithms_by_time(_kernels(run, path, phase))
    )


def _algorithm_use(part: ConvolutionTiming) -> AlgorithmUse:
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
        if layer.path == path and TIMED_AS.get(layer.phase, layer.phase) == phase:
            yield from layer.kernels


def workspace_algorithm(run: ConfigRun, path: str, phase: Phase) -> AlgorithmUse | None:
    """The algorithm with the largest workspace of `path` in `phase`; without workspace figures, the longest one."""
    uses = algorithm_uses(run, path, TIMED_AS.get(phase, phase))
    return max(uses, key=lambda use: use.workspace_bytes or 0, default=None)  # max returns the first of equals


def main_algorithm_text(layer: LayerEfficiency) -> str:
    """The layer's longest algorithm and its rate: ``FFT in fp32 at an effective 86.3 TFLOP/s``.

    The rate is called effective if the algorithm does less arithmetic than is counted: it may then exceed any peak.
    """
    rate = text(layer.flops_per_s, "flops/s") if layer.flops_per_s else ""
    if not layer.algorithms:
        return f"unnamed kernels at {rate}" if rate else "unnamed kernels"
    words = layer.algorithms[0].words
    if not rate:
        return words
    return f"{words} at {'an effective ' if layer.algorithms[0].family in REDUCED_OPERATION_FAMILIES else ''}{rate}"


def with_algorithm_text(layer: LayerEfficiency) -> str:
    """`main_algorithm_text` as an adverbial: ``with FFT in fp32 …``; ``mostly with`` if other families take a large share."""
    mostly = "mostly " if layer.algorithms and layer.first_share < MIN_WHOLE_SHARE else ""
    return f"{mostly}with {main_algorithm_text(layer)}"
