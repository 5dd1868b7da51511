"""One layer that does most of the work or takes most of the time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.convolution import convolution_of, join_sizes
from profiler_kit.diagnosis.efficiency import efficiency
from profiler_kit.diagnosis.layer_changes import LayerChange, StepBounds, layer_changes, step_bounds
from profiler_kit.diagnosis.phrases import (
    capitalize,
    factor_text,
    join_sentences,
    layer_name_capitalized,
    limit_percent,
    plural,
    work_text,
)
from profiler_kit.diagnosis.rule import Rule, evidence_of
from profiler_kit.diagnosis.step_work import step_works
from profiler_kit.diagnosis.timing import module_node, ns_by_path, ratio
from profiler_kit.diagnosis.trace_layers import (
    MIN_PRODUCT_SHARE,
    dominant_calls,
    dominant_module,
    dominant_operator_calls,
)
from profiler_kit.diagnosis.trace_shapes import dominant_shape
from profiler_kit.records.comparison import clock_name
from profiler_kit.records.counts import PSEUDO_PATHS, ModuleNode, StaticCount
from profiler_kit.records.families import is_product_family
from profiler_kit.records.report import Evidence, Finding, Report, Severity, TraceReport
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import percent, text

# With four fifths of the work in one layer, making everything else free saves at most a fifth (Amdahl's law).
MIN_WORK_SHARE: Final = 0.80
# Memory-bound neighbors (activations, normalization) take time too, even if one layer does all the work.
MIN_TIME_SHARE: Final = 0.60
# From half of the time, removing this layer makes the step twice as fast. No other layer can save as much.
HIGH_TIME_SHARE: Final = 0.50
# From a quarter of the time, removing this layer makes the step a third faster. Below, most time is elsewhere.
MEDIUM_TIME_SHARE: Final = 0.25

DOC = f"""
Fires when one module does at least {limit_percent(MIN_WORK_SHARE)} of the forward pass's multiply-accumulates (FLOPs if the model
has none), or takes at least {limit_percent(MIN_TIME_SHARE)} of the baseline's device time (operator time on a CPU).

- `high`: the layer takes at least {limit_percent(HIGH_TIME_SHARE)} of the step, or the time was not measured.
- `medium`: it takes at least {limit_percent(MEDIUM_TIME_SHARE)} of the step.
- `low`: it takes less: the layer is fast, or the step waits for data or for launches. A change gains little. A trace gets no
  finding then.

For a convolution, the finding shows the MAC count as input channels x output channels x kernel x output grid, and three
changes: half the kernel size, stride 2 before the layer (a quarter of the output grid in 2-d), and a `k x 1` layer followed
by a `1 x k` layer. Their savings are **computed from the counts, not measured**, and each changes the model's results. If the
step was measured and the device does not wait for the host, the finding also gives bounds for the new step. The upper bound
assumes that the layer stays as efficient as it is; the lower bound assumes that it reaches the measured peaks of the device.
In both, the rest of the step stays the same, although layers behind a stride get faster too. An FFT takes the same time for a
smaller kernel.

At least half of the layer's time must be that of convolutions, matrix products, attention or recurrent layers. Other work has
other causes than the size of the layer, and other rules.

In a trace, the rule looks for a module whose own work takes at least {limit_percent(MIN_TIME_SHARE)} of the busy time. What
torch.compile generates is not a module of the source. Without module names, it looks for a convolution, matrix product or
attention whose calls with the same input shapes take as much, backward included. One call per step is one layer; several
calls may be several equal layers. Without shapes, it looks for at most three kernels that each run once per step. On a CPU, it
looks for the longest calls of at most three operators.

The rule ignores models with a single layer that does work.
"""

_Alternative = tuple[LayerChange, StepBounds | None]


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding: for the layer with most work, otherwise for the layer with most time."""
    run = report.baseline()
    most_work, most_time = _most_work(report.static), _most_time(run)
    if most_work is not None and most_work[1] >= MIN_WORK_SHARE:
        path = most_work[0]
        if run is not None and not _is_mostly_products(run, path):
            return
    elif most_time is not None and most_time[1] >= MIN_TIME_SHARE:
        path = most_time[0]
    else:
        return
    static, node = report.static, module_node(report.static, path)
    work_share = (
        ratio(_forward_work(node, static), _forward_work(static, static))
        if node is not None and static is not None
        else None
    )
    time_share = ratio(ns_by_path(run)[path], run.device_ns) if run is not None else None
    work = next(step_works(report), None)
    step_share = work.share(work.module_ns.get(path, 0)) if work is not None else time_share
    clock = clock_name(run.clock if run is not None else None)
    alternatives = _alternatives(report, run, node)
    unit = "MACs" if static is not None and static.forward.macs > 0 else "FLOPs"
    yield RULE.finding(
        severity=_severity(step_share),
        title=_title(path, unit, work_share, time_share, clock),
        explanation=join_sentences(
            _layer_work(node), _layer_rate(report, run, node), _other_layers(work_share, time_share, clock)
        ),
        advice=_advice(static, node, time_share, alternatives, run),
        evidence=_evidence(report, run, path, unit, work_share, time_share, alternatives),
        paths=(path,),
        weight=step_share if step_share is not None else work_share or 0.0,
        claims=(f"busy:module:{path}",) if step_share is not None else (),
        computed=bool(alternatives) and not (time_share is not None and time_share < MEDIUM_TIME_SHARE),
    )


def _severity(time_share: float | None) -> Severity:
    if time_share is None or time_share >= HIGH_TIME_SHARE:
        return "high"
    return "medium" if time_share >= MEDIUM_TIME_SHARE else "low"


def _forward_work(counted: ModuleNode | StaticCount, static: StaticCount) -> int:
    """Forward MACs of `counted`; FLOPs if the model of `static` has no MACs."""
    return counted.forward.macs if static.forward.macs > 0 else counted.forward.flops


def _most_work(static: StaticCount | None) -> tuple[str, float] | None:
    """The path with most work and its share of the forward pass; None if fewer than two modules do work."""
    if static is None or _forward_work(static, static) <= 0:
        return None
    nodes = [node for node in static.modules if node.path not in PSEUDO_PATHS and _forward_work(node, static) > 0]
    if len(nodes) < 2:
        return None
    largest = max(nodes, key=lambda node: _forward_work(node, static))
    return largest.path, _forward_work(largest, static) / _forward_work(static, static)


def _most_time(run: ConfigRun | None) -> tuple[str, float] | None:
    """The path with most time and its share of the run's time; None if fewer than two modules take time."""
    if run is None or not run.device_ns:
        return None
    path_times = [(path, ns) for path, ns in ns_by_path(run).most_common() if path not in PSEUDO_PATHS]
    if len(path_times) < 2 or not _is_mostly_products(run, path_times[0][0]):
        return None
    return path_times[0][0], path_times[0][1] / run.device_ns


def _is_mostly_products(run: ConfigRun, path: str) -> bool:
    """Whether at least half of the time of the module is that of products. Other work has other causes than its size."""
    kernels = [kernel for layer in run.modules if layer.path == path for kernel in layer.kernels]
    products_ns = sum(kernel.kernel_ns for kernel in kernels if is_product_family(kernel.family))
    return not kernels or products_ns >= MIN_PRODUCT_SHARE * sum(kernel.kernel_ns for kernel in kernels)


def _title(path: str, unit: str, work_share: float | None, time_share: float | None, clock: str) -> str:
    clauses = []
    if work_share is not None:
        clauses.append(f"does {percent(work_share)} of the forward pass's {unit}")
    if time_share is not None:
        clauses.append(f"takes {percent(time_share)} of the {clock}")
    # much work in little time needs no action, so the title contrasts the two
    conjunction = " but " if time_share is not None and time_share < MEDIUM_TIME_SHARE else " and "
    return f"{layer_name_capitalized(path)} {conjunction.join(clauses)}"


def _layer_work(node: ModuleNode | None) -> str:
    conv = convolution_of(node) if node is not None else None
    if node is None:
        return ""
    if conv is None:
        return f"This {node.class_name} needs {work_text(node.forward.macs, 'MACs')} in the forward pass of one step."
    return (
        f"It convolves {conv.channels_in} channels into {conv.channels_out} with a {join_sizes(conv.kernel)} kernel at "
        f"{join_sizes(conv.grid)} positions: {work_text(node.forward.macs, 'MACs')} forward. That is {conv.macs_formula()} = "
        f"{conv.macs_per_image:,} multiply-accumulates (MACs) for each of {plural(conv.images, 'image')}."
    )


def _layer_rate(report: Report, run: ConfigRun | None, node: ModuleNode | None) -> str:
    rate = efficiency(report, run, node.path, "forward") if run is not None and node is not None else None
    return f"Its forward pass {rate.sentence()}" if rate is not None else ""


def _other_layers(work_share: float | None, time_share: float | None, clock: str) -> str:
    if time_share is not None:
        return f"Everything else takes {percent(max(0.0, 1.0 - time_share))} of the {clock}."
    if work_share is not None:
        return f"All other layers together do {percent(max(0.0, 1.0 - work_share))} of the work."
    return ""


def _alternatives(report: Report, run: ConfigRun | None, node: ModuleNode | None) -> list[_Alternative]:
    """The possible changes of the convolution `node`, each with bounds for the new step; empty for other layers."""
    conv = convolution_of(node) if node is not None else None
    if node is None or conv is None or report.static is None or node.path == "":
        return []
    return [(change, step_bounds(report, run, node, change)) for change in layer_changes(node, conv)]


def _changed_macs(static: StaticCount, node: ModuleNode, change: LayerChange) -> int:
    """The forward MACs of the model after the change."""
    return static.forward.macs - node.forward.macs + change.layer_macs


def _advice(
    static: StaticCount | None,
    node: ModuleNode | None,
    time_share: float | None,
    alternatives: list[_Alternative],
    run: ConfigRun | None,
) -> str:
    if time_share is not None and time_share < MEDIUM_TIME_SHARE:
        return (
            f"Look at the layers with more time first. Without this layer the step would be at most "
            f"{factor_text(1.0 / (1.0 - time_share))} as fast."
        )
    first = " first" if time_share is None or time_share >= HIGH_TIME_SHARE else ""
    if node is not None and node.path == "":
        return f"Look{first} at the code in the model's own forward(), outside its submodules."
    if node is None or static is None or convolution_of(node) is None:
        return f"Change this layer{first}: use fewer channels or features, a smaller input, or fewer calls."
    if not alternatives:
        return f"Change this layer{first}: use fewer channels, or a smaller input."
    total = static.forward.macs
    summary = [
        f"{factor_text(total / _changed_macs(static, node, change))}{' fewer MACs' if i == 0 else ''} with {change.name}"
        for i, (change, _) in enumerate(alternatives)
    ]
    details = [
        f"{capitalize(change.name)} ({change.detail}): {work_text(_changed_macs(static, node, change), 'MACs')} instead of "
        f"{work_text(total, 'MACs')}{_new_step(bounds, run)}."
        for change, bounds in alternatives
    ]
    return join_sentences(
        f"Change this layer{first}: {', '.join(summary)}.",
        "These figures are computed from the counts, not measured, for the whole forward pass.",
        *details,
        _step_assumptions(alternatives),
        "Each change alters the model's results, so train it again and check its quality.",
    )


def _new_step(bounds: StepBounds | None, run: ConfigRun | None) -> str:
    if bounds is None or run is None or run.step_ns is None:
        return ""
    lower = f"{text(bounds.low_ns, 'ns')} to " if bounds.low_ns is not None else ""
    return f", step {lower}{text(bounds.high_ns, 'ns')} instead of {text(run.step_ns.median, 'ns')}"


def _step_assumptions(alternatives: list[_Alternative]) -> str:
    bounds = [step for _, step in alternatives if step is not None]
    if not bounds:
        return ""
    if any(step.low_ns is not None for step in bounds):
        return "The shorter step assumes that this layer reaches the roofline, the longer one that it stays as efficient as now."
    return "The step times assume that this layer stays as efficient as now."


def _evidence(
    report: Report,
    run: ConfigRun | None,
    path: str,
    unit: str,
    work_share: float | None,
    time_share: float | None,
    alternatives: list[_Alternative],
) -> Iterator[Evidence]:
    if work_share is not None:
        yield Evidence(name=f"share of forward {unit}", value=100.0 * work_share, unit="percent", where=path)
    if time_share is not None and run is not None:
        name = f"share of {clock_name(run.clock)}"
        yield Evidence(name=name, value=100.0 * time_share, unit="percent", where=f"{path}, {run.config.name}")
    node = module_node(report.static, path)
    if report.static is None or node is None:
        return
    yield Evidence(name="forward MACs a step", value=node.forward.macs, unit="macs", where=path)
    step_share = ratio(node.step_cost.flops, report.static.step.flops)
    if step_share is not None:
        yield Evidence(name="share of the step's FLOPs", value=100.0 * step_share, unit="percent", where=path)
    rate = efficiency(report, run, path, "forward") if run is not None else None
    if rate is not None:
        yield from rate.evidence()
    for change, bounds in alternatives:
        name = change.name
        yield from evidence_of(
            "computed",
            (f"forward MACs with {name}", _changed_macs(report.static, node, change), "macs"),
            (f"step with {name}, at most", bounds.high_ns if bounds is not None else None, "ns"),
            (f"step with {name}, at least", bounds.low_ns if bounds is not None else None, "ns"),
        )


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Yield at most one finding: for a module; without modules, for one input shape; without shapes, for a few calls."""
    dominant = (
        dominant_module(report, MIN_TIME_SHARE)
        or dominant_shape(report, MIN_TIME_SHARE)
        or dominant_calls(report, MIN_TIME_SHARE)
        or dominant_operator_calls(report, MIN_TIME_SHARE)
    )
    # A layer that explains little of the step is not its cause, however much of the device time it takes.
    if dominant is None or dominant.weight < MEDIUM_TIME_SHARE:
        return
    yield RULE.finding(
        severity=_severity(dominant.weight),
        title=dominant.title,
        explanation=join_sentences(dominant.explanation, _other_layers(None, dominant.share, dominant.clock)),
        advice=dominant.advice,
        evidence=dominant.evidence,
        paths=dominant.paths,
        weight=dominant.weight,
        claims=dominant.claims,
    )


# Half of the work of the layer.
KEEPS: Final = 0.5

RULE = Rule("dominant_layer", DOC, check, "place", check_trace, states_share=False, keeps=KEEPS)
