"""The time difference of two steps as work and, layer by layer, efficiency. The parts sum exactly, in ns.

The algorithms that a layer used in one phase explain its efficiency.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from profiler_kit.comparison.ratios import work_scale
from profiler_kit.records.comparison import (
    AlgorithmUse,
    EfficiencySplit,
    LayerChange,
    LayerEfficiency,
    Side,
    SideEfficiency,
)
from profiler_kit.records.counts import Phase, StaticCount
from profiler_kit.records.experiments import ConvolutionPart, ConvolutionTiming
from profiler_kit.records.families import REDUCED_OPERATION_FAMILIES, kernels_by_family
from profiler_kit.records.paths import shown_path
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import TraceKernel
from profiler_kit.records.uncounted import reason_of_unknown_work
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
        for algorithm in kernels_by_family(_kernels(run, path, phase))
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


def _kernels(run: ConfigRun, path: str, phase: Phase) -> Iterable[TraceKernel]:
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


# Of the slower step: a smaller effect of efficiency gets no sentence.
MIN_EFFICIENCY_SHARE: Final = 0.05
# Of its phase's time: a layer with this share may be compared with a dominant layer of another name.
DOMINANT_SHARE: Final = 0.5
# Of the whole effect of efficiency: if every layer contributes less, no single layer is the cause.
MIN_SINGLE_LAYER_SHARE: Final = 0.2

LayerPhase = tuple[str, Phase]


def efficiency_split(
    a: Report,
    b: Report,
    runs: tuple[ConfigRun, ConfigRun],
    sides: tuple[Side, Side],
    layers: Sequence[LayerChange] = (),
) -> EfficiencySplit | None:
    """Split the two steps' time difference by layer; None without step times, comparable work, or layer times on one clock.

    The reference for both sides is the faster side's FLOP/s over its whole step. The slower side's FLOPs at this rate are
    work; the remaining time is efficiency, and each layer has its own part in it. `layers` pairs the layers of both sides.
    """
    a_run, b_run = runs
    if a_run.step_ns is None or b_run.step_ns is None or a.static is None or b.static is None:
        return None
    if (
        not (a_run.modules and b_run.modules)
        or a_run.clock != b_run.clock
        or reason_of_unknown_work(a.static, b.static)
    ):
        return None
    statics = (a.static, b.static)
    steps_ns = (a_run.step_ns.median, b_run.step_ns.median)
    work = [_layer_work(static, work_scale(run, side)) for static, run, side in zip(statics, runs, sides, strict=True)]
    flops = [sum(layer_flops.values()) for layer_flops in work]
    if min(*flops, *steps_ns) <= 0:
        return None
    slow, fast = (1, 0) if steps_ns[1] >= steps_ns[0] else (0, 1)
    reference_ns = [round(flops[side] * Fraction(steps_ns[fast]) / flops[fast]) for side in (0, 1)]
    efficiencies = [_side_efficiency(runs[side], steps_ns[side], work[side], reference_ns[side]) for side in (0, 1)]
    split = EfficiencySplit(
        config=a_run.config.name,
        slower="b" if slow == 1 else "a",
        clock=a_run.clock,
        reference_flops_per_s=float(flops[fast] / steps_ns[fast] * 1_000_000_000),
        work_ns=reference_ns[slow] - steps_ns[fast],
        a=efficiencies[0],
        b=efficiencies[1],
    )
    return replace(split, sentence=_sentence(split, sides, layers))


def _layer_work(static: StaticCount, scale: Fraction) -> dict[LayerPhase, Fraction]:
    """Counted FLOPs by module and phase. Recomputation counts as backward."""
    flops_by_layer: Counter[LayerPhase] = Counter()
    for node in static.modules:
        flops_by_layer[node.path, "forward"] += node.forward.flops
        flops_by_layer[node.path, "loss"] += node.loss.flops
        flops_by_layer[node.path, "backward"] += node.backward.flops + node.recompute.flops
    return {layer: flops * scale for layer, flops in flops_by_layer.items() if flops}


def _side_efficiency(
    run: ConfigRun, step_ns: int, work: Mapping[LayerPhase, Fraction], reference_ns: int
) -> SideEfficiency:
    times: Counter[LayerPhase] = Counter()
    for layer in run.modules:
        times[layer.path, TIMED_AS.get(layer.phase, layer.phase)] += layer.kernel_ns
    at_reference = apportion(reference_ns, work)
    layer_phases = [*times, *(layer_phase for layer_phase in work if layer_phase not in times)]
    layers = []
    for path, phase in layer_phases:
        device_ns, flops = times[path, phase], work.get((path, phase), Fraction(0))
        expected_ns = at_reference.get((path, phase), 0)
        layers.append(
            LayerEfficiency(
                path=path,
                phase=phase,
                device_ns=device_ns,
                flops=round(flops),
                flops_per_s=float(flops / device_ns * 1_000_000_000) if flops and device_ns > 0 else None,
                at_reference_ns=expected_ns,
                beyond_ns=device_ns - expected_ns,
                algorithms=algorithm_uses(run, path, phase),
            )
        )
    return SideEfficiency(
        step_ns=step_ns,
        flops=round(sum(work.values())),
        layers=tuple(sorted(layers, key=lambda layer: -layer.device_ns)),
        rest_ns=step_ns - sum(layer.device_ns for layer in layers),
        beyond_ns=step_ns - reference_ns,
    )


def apportion(total: int, weights: Mapping[LayerPhase, Fraction]) -> dict[LayerPhase, int]:
    """Divide `total` by `weights` into integers that sum to it (largest remainder method)."""
    weight_sum = sum(weights.values())
    exact_shares = {key: total * weight / weight_sum for key, weight in weights.items()}
    shares = {key: int(share) for key, share in exact_shares.items()}
    remainder = total - sum(shares.values())
    for key in sorted(exact_shares, key=lambda key: shares[key] - exact_shares[key])[:remainder]:
        shares[key] += 1
    return shares


@dataclass(frozen=True, slots=True)
class _Contribution:
    """One layer's phase on the slower side, its counterpart on the faster side, and its part of the time difference.

    A counterpart's own loss is subtracted: a loss that both sides share does not explain the difference.
    """

    layer: LayerEfficiency
    counterpart: LayerEfficiency | None
    added_ns: int


def _sentence(split: EfficiencySplit, sides: tuple[Side, Side], layers: Sequence[LayerChange]) -> str:
    """State the part of the difference that is work and the layer that contributes most; empty if efficiency hardly matters."""
    slow, fast = split.slower_first
    slower, faster = (sides[1], sides[0]) if split.slower == "b" else (sides[0], sides[1])
    contributions = _contributions(split, layers)
    if abs(slow.beyond_ns) < MIN_EFFICIENCY_SHARE * slow.step_ns or not contributions:
        return ""
    is_loss = slow.beyond_ns > 0
    top = max(contributions, key=lambda part: part.added_ns if is_loss else -part.added_ns)
    work_sentence = _work_sentence(split, slow, fast)
    if is_loss and slow.rest_ns - fast.rest_ns > top.added_ns:
        clock = "operators" if split.clock == "operator" else "kernels"
        return (
            f"{work_sentence} {slower.label} spends {text(slow.rest_ns, 'ns')} of its step outside of the layers' {clock} "
            f"({faster.label}: {text(fast.rest_ns, 'ns')})."
        )
    layer_name = f"{slower.label}'s {shown_path(top.layer.path)}"
    phase_name = {"forward": "forward pass", "backward": "backward pass"}.get(top.layer.phase, top.layer.phase)
    amount = text(abs(top.added_ns), "ns")
    if abs(top.added_ns) < MIN_SINGLE_LAYER_SHARE * abs(slow.beyond_ns):
        total = text(abs(slow.beyond_ns), "ns")
        effect = f"Lower efficiency adds {total}" if is_loss else f"Higher efficiency saves {total}"
        layer_count = len({part.layer.path for part in contributions if part.added_ns * top.added_ns > 0})
        return (
            f"{work_sentence} {effect}, spread over {layer_count} layers. "
            f"The largest part is {amount} in the {phase_name} of {layer_name}."
        )
    counterpart = top.counterpart or _dominant_counterpart(top.layer, slow, fast)
    counterpart_text = ""
    if counterpart is not None and counterpart.algorithms:
        counterpart_text = f" ({faster.label}'s {shown_path(counterpart.path)}: {main_algorithm_text(counterpart)})"
    verb = "adds" if is_loss else "saves"
    return (
        f"{work_sentence} The {phase_name} of {layer_name} {verb} {amount}, "
        f"{with_algorithm_text(top.layer)}{counterpart_text}."
    )


def _work_sentence(split: EfficiencySplit, slow: SideEfficiency, fast: SideEfficiency) -> str:
    difference, work = text(slow.step_ns - fast.step_ns, "ns"), text(split.work_ns, "ns")
    if slow.beyond_ns <= 0:
        return f"The extra work alone accounts for {work} of difference; the measured difference is {difference}."
    if split.work_ns > 0:
        return f"The extra work accounts for {work} of the {difference} difference."
    return f"Work accounts for none of the {difference} difference."


def _contributions(split: EfficiencySplit, layers: Sequence[LayerChange]) -> list[_Contribution]:
    slow, fast = split.slower_first
    path_pairs = [
        (change.b_path, change.a_path) if split.slower == "b" else (change.a_path, change.b_path) for change in layers
    ]
    fast_paths = {
        slow_path: fast_path for slow_path, fast_path in path_pairs if slow_path is not None and fast_path is not None
    }
    fast_layers = {(layer.path, layer.phase): layer for layer in fast.layers}
    contributions = []
    for layer in slow.layers:
        fast_path = fast_paths.get(layer.path)
        counterpart = fast_layers.get((fast_path, layer.phase)) if fast_path is not None else None
        counterpart_ns = counterpart.beyond_ns if counterpart is not None else 0
        contributions.append(_Contribution(layer, counterpart, layer.beyond_ns - counterpart_ns))
    return contributions


def _dominant_counterpart(layer: LayerEfficiency, slow: SideEfficiency, fast: SideEfficiency) -> LayerEfficiency | None:
    """The faster side's longest layer of the same phase, if both layers dominate their phase."""
    candidates = (candidate for candidate in fast.layers if candidate.phase == layer.phase)
    longest = max(candidates, key=lambda candidate: candidate.device_ns, default=None)
    return longest if longest is not None and _dominates(layer, slow) and _dominates(longest, fast) else None


def _dominates(layer: LayerEfficiency, side: SideEfficiency) -> bool:
    phase_ns = sum(other.device_ns for other in side.layers if other.phase == layer.phase)
    return layer.device_ns >= DOMINANT_SHARE * phase_ns > 0
