"""One layer that does most of the work or takes most of the time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from profiler_kit.diagnosis.convolution import LayerChange, convolution_of, join_sizes, layer_changes
from profiler_kit.diagnosis.phrases import (
    capitalize,
    factor_text,
    join_sentences,
    layer_name_capitalized,
    limit_percent,
    plural,
    work_text,
)
from profiler_kit.diagnosis.rule import evidence_of, new_finding
from profiler_kit.diagnosis.step_rule import Shares, StepPart, step_rule
from profiler_kit.diagnosis.step_work import StepWork, step_works
from profiler_kit.diagnosis.timing import efficiency, module_node, ratio
from profiler_kit.diagnosis.trace_layers import MIN_TIME_SHARE, dominant_layer, layer_at
from profiler_kit.records.counts import PSEUDO_PATHS, ModuleNode, StaticCount
from profiler_kit.records.families import REDUCED_OPERATION_FAMILIES, main_algorithm
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.units import percent, text

# With four fifths of the work in one layer, making everything else free saves at most a fifth (Amdahl's law).
MIN_WORK_SHARE: Final = 0.80
# From half of the time, removing this layer makes the step twice as fast. No other layer can save as much.
HIGH_TIME_SHARE: Final = 0.50
# If the device is busy for less than this share, the host limits the step, and a faster layer saves nothing.
MIN_BUSY_SHARE: Final = 0.6
# From a quarter of the time, removing this layer makes the step a third faster. Below, most time is elsewhere.
MEDIUM_TIME_SHARE: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class _CountedLayer:
    """A layer of a report as counted. `time_share`: its share of the busy time; None if it was not measured."""

    report: Report
    static: StaticCount
    node: ModuleNode
    time_share: float | None

    @property
    def work_share(self) -> float | None:
        """Its share of the work of the forward pass."""
        return ratio(_forward_work(self.node, self.static), _forward_work(self.static, self.static))

    @property
    def unit(self) -> str:
        """The unit of that work."""
        return "MACs" if self.static.forward.macs > 0 else "FLOPs"

    @property
    def is_fast(self) -> bool:
        """Whether it takes little of the time, so that a change gains little."""
        return self.time_share is not None and self.time_share < MEDIUM_TIME_SHARE

    def alternatives(self) -> list[LayerChange]:
        """Return the possible changes of a convolution; nothing for other layers."""
        conv = convolution_of(self.node)
        return list(layer_changes(self.node, conv)) if conv is not None and self.node.path else []

    def changed_step_ns(self, change: LayerChange) -> float | None:
        """Return the step after the change, if the layer stays as efficient as it is.

        None without times, where the device waits for the host, and for algorithms whose time does not follow the MACs.
        """
        run = self.report.baseline()
        timings = [item for item in run.modules if item.path == self.node.path] if run is not None else []
        used = main_algorithm([kernel for item in timings for kernel in item.kernels])
        if run is None or run.step_ns is None or (run.busy_share or 0.0) < MIN_BUSY_SHARE:
            return None
        if used is not None and used.family in REDUCED_OPERATION_FAMILIES:
            return None
        left = change.layer_macs / self.node.forward.macs
        return run.step_ns.median - (1.0 - left) * sum(item.kernel_ns for item in timings)

    def changed_macs(self, change: LayerChange) -> int:
        """Return the forward MACs of the model after the change."""
        return self.static.forward.macs - self.node.forward.macs + change.layer_macs


def _dominant_layer(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    """Return the layer with most counted work, otherwise the one with most time."""
    path = _most_work(report)
    part = dominant_layer(step) if path is None else layer_at(step, path)
    if part is None:
        return None
    counted = _counted_layer(report, next(iter(part.paths), None), part.ns / step.busy_ns)
    if counted is None:
        # A layer that explains little of the step is not its cause, however much of the device time it takes.
        return part if step.share(part.ns) >= MEDIUM_TIME_SHARE else None
    return replace(
        part,
        title=f"{layer_name_capitalized(counted.node.path)} {_work_and_time(counted, step)}",
        lead=_work_text(counted),
        advice=_advice(counted),
        evidence=tuple(_evidence(counted)),
        computed=bool(counted.alternatives()) and not counted.is_fast,
    )


def _in_counts(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield the finding for the layer with most counted work, where no times exist; otherwise that of the step."""
    counted = _counted_layer(report, _most_work(report), None)
    if counted is None or any(step_works(report)):
        yield from _IN_STEPS.findings(report)
    else:
        yield _unmeasured(counted)


def _unmeasured(layer: _CountedLayer) -> Finding:
    share = layer.work_share or 0.0
    return new_finding(
        severity="high",
        title=f"{layer_name_capitalized(layer.node.path)} does {percent(share)} of the forward pass's {layer.unit}",
        explanation=join_sentences(
            _work_text(layer), f"All other layers together do {percent(max(0.0, 1.0 - share))} of the work."
        ),
        advice=_advice(layer),
        evidence=_evidence(layer),
        paths=(layer.node.path,),
        weight=share,
        computed=bool(layer.alternatives()),
    )


def _forward_work(counted: ModuleNode | StaticCount, static: StaticCount) -> int:
    """Forward MACs of `counted`; FLOPs if the model of `static` has no MACs."""
    return counted.forward.macs if static.forward.macs > 0 else counted.forward.flops


def _most_work(report: Report | TraceReport) -> str | None:
    """The path that does most of the work of the forward pass; None without one, or if fewer than two modules do work."""
    static = report.static if isinstance(report, Report) else None
    if static is None or _forward_work(static, static) <= 0:
        return None
    nodes = [node for node in static.modules if node.path not in PSEUDO_PATHS and _forward_work(node, static) > 0]
    largest = max(nodes, key=lambda node: _forward_work(node, static), default=None)
    if largest is None or len(nodes) < 2:
        return None
    return largest.path if _forward_work(largest, static) >= MIN_WORK_SHARE * _forward_work(static, static) else None


def _counted_layer(report: Report | TraceReport, path: str | None, time_share: float | None) -> _CountedLayer | None:
    node = module_node(report.static, path) if isinstance(report, Report) and path is not None else None
    if not isinstance(report, Report) or report.static is None or node is None:
        return None
    return _CountedLayer(report=report, static=report.static, node=node, time_share=time_share)


def _work_and_time(layer: _CountedLayer, step: StepWork) -> str:
    work = (
        f"does {percent(layer.work_share)} of the forward pass's {layer.unit} " if layer.work_share is not None else ""
    )
    # much work in little time needs no action, so the title contrasts the two
    conjunction = "" if not work else "but " if layer.is_fast else "and "
    return f"{work}{conjunction}takes {percent(layer.time_share or 0.0)} of the {step.clock_name}"


def _work_text(layer: _CountedLayer) -> str:
    """Return sentences about the counted work of the layer and its rate."""
    node, conv, run = layer.node, convolution_of(layer.node), layer.report.baseline()
    rate = efficiency(layer.report, run, node.path, "forward") if run is not None else None
    work = (
        f"This {node.class_name} needs {work_text(node.forward.macs, 'MACs')} in the forward pass of one step."
        if conv is None
        else f"It convolves {conv.channels_in} channels into {conv.channels_out} with a {join_sizes(conv.kernel)} kernel at "
        f"{join_sizes(conv.grid)} positions: {work_text(node.forward.macs, 'MACs')} forward. That is {conv.macs_formula()} = "
        f"{conv.macs_per_image:,} multiply-accumulates (MACs) for each of {plural(conv.images, 'image')}."
    )
    return join_sentences(work, f"Its forward pass {rate.sentence()}" if rate is not None else "")


def _advice(layer: _CountedLayer) -> str:
    time_share, node = layer.time_share, layer.node
    if time_share is not None and layer.is_fast:
        return (
            f"Look at the layers with more time first. Without this layer the step would be at most "
            f"{factor_text(1.0 / (1.0 - time_share))} as fast."
        )
    first = " first" if time_share is None or time_share >= HIGH_TIME_SHARE else ""
    if node.path == "":
        return f"Look{first} at the code in the model's own forward(), outside its submodules."
    alternatives, total = layer.alternatives(), layer.static.forward.macs
    if not alternatives:
        return f"Change this layer{first}: use fewer channels or features, a smaller input, or fewer calls."
    summary = [
        f"{factor_text(total / layer.changed_macs(change))}{' fewer MACs' if i == 0 else ''} with {change.name}"
        for i, change in enumerate(alternatives)
    ]
    details = [
        f"{capitalize(change.name)} ({change.detail}): {work_text(layer.changed_macs(change), 'MACs')} instead of "
        f"{work_text(total, 'MACs')}{_new_step(layer, change)}."
        for change in alternatives
    ]
    return join_sentences(
        f"Change this layer{first}: {', '.join(summary)}.",
        "These figures are computed from the counts, not measured, for the whole forward pass.",
        *details,
        "Each change alters the model's results, so train it again and check its quality.",
    )


def _new_step(layer: _CountedLayer, change: LayerChange) -> str:
    new_ns, run = layer.changed_step_ns(change), layer.report.baseline()
    if new_ns is None or run is None or run.step_ns is None:
        return ""
    return f", step {text(new_ns, 'ns')} instead of {text(run.step_ns.median, 'ns')} at the efficiency of now"


def _evidence(layer: _CountedLayer) -> Iterator[Evidence]:
    node, run = layer.node, layer.report.baseline()
    flops_share = ratio(node.step_cost.flops, layer.static.step.flops)
    yield from evidence_of(
        node.path,
        (
            f"share of forward {layer.unit}",
            100.0 * layer.work_share if layer.work_share is not None else None,
            "percent",
        ),
        ("forward MACs a step", node.forward.macs, "macs"),
        ("share of the step's FLOPs", 100.0 * flops_share if flops_share is not None else None, "percent"),
    )
    rate = efficiency(layer.report, run, node.path, "forward") if run is not None else None
    if rate is not None:
        yield from rate.evidence()
    for change in layer.alternatives():
        yield from evidence_of(
            "computed",
            (f"forward MACs with {change.name}", layer.changed_macs(change), "macs"),
            (f"step with {change.name}", layer.changed_step_ns(change), "ns"),
        )


_IN_STEPS = step_rule(
    "dominant_layer",
    _dominant_layer,
    Shares(0.0, medium=MEDIUM_TIME_SHARE, high=HIGH_TIME_SHARE),
    f"""
Fires when one module does at least {limit_percent(MIN_WORK_SHARE)} of the forward pass's multiply-accumulates (FLOPs if the model
has none), or takes at least {limit_percent(MIN_TIME_SHARE)} of the device time (operator time on a CPU).

- `high`: the layer takes at least {limit_percent(HIGH_TIME_SHARE)} of the step, or the time was not measured.
- `medium`: it takes at least {limit_percent(MEDIUM_TIME_SHARE)} of the step.
- `low`: it takes less: the layer is fast, or the step waits for data or for launches. A change gains little. A trace gets no
  finding then.

For a convolution, the finding shows the MAC count as input channels x output channels x kernel x output grid, and three
changes: half the kernel size, stride 2 before the layer (a quarter of the output grid in 2-d), and a `k x 1` layer followed
by a `1 x k` layer. Their savings are **computed from the counts, not measured**, and each changes the model's results. If the
step was measured and the device does not wait for the host, the finding also gives the new step at the efficiency of now. The
rest of the step stays the same, although layers behind a stride get faster too. The saving of the finding is that of a step with
half of the layer's work, by the replay.

At least half of the layer's time must be that of convolutions, matrix products, attention or recurrent layers. Other work has
other causes than the size of the layer, and other rules.

What torch.compile generates is not a module of the source. Without module names, the rule looks for a convolution, matrix
product or attention whose calls with the same input shapes take as much, backward included. One call per step is one layer;
several calls may be several equal layers, so the finding is `low`. Without shapes, it looks for at most three kernels that each
run once per step. On a CPU, it looks for the longest calls of at most three operators.

The rule ignores models with a single layer that does work.
""",
    topic="place",
    states_share=False,
    keeps=0.5,  # half of the work of the layer
    needs_runs=False,
)
DOMINANT_LAYER = replace(_IN_STEPS, check=_in_counts)
