"""One layer that the work, or the time, is all about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.alternatives import Change, StepBounds, changes, step_bounds
from profiler_kit.diagnosis.convolution import by, convolution_of
from profiler_kit.diagnosis.efficiency import efficiency
from profiler_kit.diagnosis.rule import Rule, known
from profiler_kit.diagnosis.timing import node_of, ratio, time_by_path
from profiler_kit.diagnosis.traced_layers import dominant_calls, dominant_module
from profiler_kit.diagnosis.traced_shapes import dominant_shape
from profiler_kit.diagnosis.words import opening, plural, sentences, threshold, times, work
from profiler_kit.records.counts import PSEUDO_PATHS, ModuleNode, StaticCount
from profiler_kit.records.report import Evidence, Finding, Report, Severity, TraceReport
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import percent, text

# With four fifths of the work in one place, making all the rest free saves a fifth (Amdahl): there is one place to look.
WORK_SHARE: Final = 0.80
# Time is spread by memory-bound neighbours (activations, normalisation) even where one layer has all the work.
TIME_SHARE: Final = 0.60
# Half of the measured time: making this layer free makes the step twice as fast, and no other layer can do as much.
HIGH: Final = 0.50
# A quarter: free, it makes the step a third faster; below it the time is somewhere else, however much work the layer has.
MEDIUM: Final = 0.25

DOC = f"""
One module does at least {threshold(WORK_SHARE)} of the forward pass's multiply-accumulates (FLOPs where it has none), or takes at
least {threshold(TIME_SHARE)} of the baseline's device time. A model with a single working layer is left alone: that one layer
dominates is no news.

How grave it is goes by time where that was measured, since only time can be saved: `high` from {threshold(HIGH)}, `medium` from
{threshold(MEDIUM)}, else `low`: the layer has the work and does it fast, so changing it gains little. Without a
measurement it is `high`.

For a convolution the count is given as its product, input channels x output channels x kernel x output grid, and changes are
worked out: half the kernel size, stride 2 before the layer (a quarter of the output grid in 2-d), and a `k x 1` and a `1 x k`
layer in its place. What they would save is **computed from the counts, not measured**, and each changes what the model computes.
With a measured step the new one is given too, between bounds: at most as long as if the layer stayed as efficient as it is, at
least what the device's ceilings allow for the layer; the rest of the step as it is (layers behind a stride get faster as well).
An FFT takes as long for a smaller kernel. No step is given where the device waits for the host.

In a trace it is the module whose own work takes at least {threshold(TIME_SHARE)} of the device's busy time. Where the trace names
no modules, it is the convolution, matrix product or attention whose calls with inputs of the same shapes take as much, backward's
work joined to the call that made its node; a call a step is one layer, more may be several alike. Without shapes it is
at most three kernels that run once a step: whatever they belong to is called once, as one layer is.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires on at most one layer: the one with most work, else the one with most time."""
    run = report.baseline()
    most_work, most_time = _by_work(report.static), _by_time(run)
    if most_work is not None and most_work[1] >= WORK_SHARE:
        path = most_work[0]
    elif most_time is not None and most_time[1] >= TIME_SHARE:
        path = most_time[0]
    else:
        return
    static, node = report.static, node_of(report.static, path)
    share = ratio(_amount(node, static), _amount(static, static)) if node is not None and static is not None else None
    spent = ratio(time_by_path(run)[path], run.device_ns) if run is not None else None
    options = _options(report, run, node)
    unit = "MACs" if static is not None and static.forward.macs > 0 else "FLOPs"
    yield RULE.finding(
        severity=_severity(spent),
        title=_title(path, unit, share, spent),
        explanation=sentences(_cost(node), _rate(report, run, node), _rest(share, spent)),
        advice=_advice(static, node, spent, options, run),
        evidence=_evidence(report, run, path, unit, share, spent, options),
        paths=(path,),
        weight=spent if spent is not None else share or 0.0,
        computed=bool(options) and not (spent is not None and spent < MEDIUM),
    )


def _severity(spent: float | None) -> Severity:
    if spent is None or spent >= HIGH:
        return "high"
    return "medium" if spent >= MEDIUM else "low"


def _amount(counted: ModuleNode | StaticCount, static: StaticCount) -> int:
    return counted.forward.macs if static.forward.macs > 0 else counted.forward.flops


def _by_work(static: StaticCount | None) -> tuple[str, float] | None:
    if static is None or _amount(static, static) <= 0:
        return None
    working = [node for node in static.modules if node.path not in PSEUDO_PATHS and _amount(node, static) > 0]
    if len(working) < 2:
        return None
    top = max(working, key=lambda node: _amount(node, static))
    return top.path, _amount(top, static) / _amount(static, static)


def _by_time(run: ConfigRun | None) -> tuple[str, float] | None:
    if run is None or not run.device_ns:
        return None
    times = [(path, ns) for path, ns in time_by_path(run).most_common() if path not in PSEUDO_PATHS]
    return (times[0][0], times[0][1] / run.device_ns) if len(times) > 1 else None


def _title(path: str, unit: str, share: float | None, spent: float | None) -> str:
    parts = []
    if share is not None:
        parts.append(f"does {percent(share)} of the forward pass's {unit}")
    if spent is not None:
        parts.append(f"takes {percent(spent)} of the measured time")
    # work without time is no reason to act: say it as the contrast it is
    joint = " but " if spent is not None and spent < MEDIUM else " and "
    return f"{opening(path)} {joint.join(parts)}"


def _cost(node: ModuleNode | None) -> str:
    conv = convolution_of(node) if node is not None else None
    if node is None:
        return ""
    if conv is None:
        return f"It asks for {work(node.forward.macs, 'MACs')} in the forward pass of one step ({node.class_name})."
    return (
        f"It makes {conv.channels_out} channels of {conv.channels_in} by a {by(conv.kernel)} kernel at {by(conv.grid)} "
        f"positions: {work(node.forward.macs, 'MACs')} forward. That is {conv.product()} = {conv.macs_per_image:,} "
        f"multiply-accumulates (MACs) for each of {plural(conv.images, 'image')}."
    )


def _rate(report: Report, run: ConfigRun | None, node: ModuleNode | None) -> str:
    found = efficiency(report, run, node.path, "forward") if run is not None and node is not None else None
    return f"Its forward pass {found.sentence()}" if found is not None else ""


def _rest(share: float | None, spent: float | None) -> str:
    known = spent if spent is not None else share
    if known is None:
        return ""
    left = max(0.0, 1.0 - known)
    if spent is not None and spent < MEDIUM:
        return f"The time is elsewhere: {percent(left)} of it is not this layer's."
    what = "the measured time" if spent is not None else "the work"
    if known < HIGH:
        return f"Everything else together is {percent(left)} of {what}."
    return f"Everything else together is {percent(left)} of {what}, so nothing else is worth changing first."


_Option = tuple[Change, StepBounds | None]


def _options(report: Report, run: ConfigRun | None, node: ModuleNode | None) -> list[_Option]:
    """The changes of the convolution that `node` is, with what the step would take."""
    conv = convolution_of(node) if node is not None else None
    if node is None or conv is None or report.static is None or node.path == "":
        return []
    return [(change, step_bounds(report, run, node, change)) for change in changes(node, conv)]


def _after(static: StaticCount, node: ModuleNode, change: Change) -> int:
    """The forward MACs of the whole model with the change."""
    return static.forward.macs - node.forward.macs + change.layer_macs


def _advice(
    static: StaticCount | None,
    node: ModuleNode | None,
    spent: float | None,
    options: list[_Option],
    run: ConfigRun | None,
) -> str:
    if spent is not None and spent < MEDIUM:
        return (
            f"Look at the layers that take the time before this one: if it took no time at all, the step would be "
            f"at most {times(1.0 / (1.0 - spent))} as fast."
        )
    first = " first" if spent is None or spent >= HIGH else ""
    if node is not None and node.path == "":
        return f"Look{first} at what the model's forward calls itself, outside its submodules."
    if node is None or static is None or convolution_of(node) is None:
        return f"Change this layer{first}: fewer channels or features, a smaller input, or fewer calls of it."
    if not options:
        return f"Change this layer{first}: fewer channels, or a smaller input for it."
    whole = static.forward.macs
    short = [
        f"{times(whole / _after(static, node, change))}{' fewer MACs' if i == 0 else ''} by {change.what.partition(' (')[0]}"
        for i, (change, _) in enumerate(options)
    ]
    long = [
        f"{change.what} leaves {work(_after(static, node, change), 'MACs')} of {work(whole, 'MACs')} "
        f"({times(whole / _after(static, node, change))} fewer){_step_words(bounds, run)}"
        for change, bounds in options
    ]
    return (
        f"Change this layer{first}: {', '.join(short)}. For the whole forward pass, computed from the counts, not measured: "
        f"{'; '.join(long)}. Each changes what the model computes, so train it again and check its quality."
    )


def _step_words(bounds: StepBounds | None, run: ConfigRun | None) -> str:
    if bounds is None or run is None or run.step_ns is None:
        return ""
    now = text(run.step_ns.median, "ns")
    if bounds.low_ns is None:
        return f", and a step of {text(bounds.high_ns, 'ns')} instead of {now} if it stays as efficient"
    low, high = text(bounds.low_ns, "ns"), text(bounds.high_ns, "ns")
    return f", and a step of {low} (at the roof) to {high} (as efficient as now) instead of {now}"


def _evidence(
    report: Report,
    run: ConfigRun | None,
    path: str,
    unit: str,
    share: float | None,
    spent: float | None,
    options: list[_Option],
) -> Iterator[Evidence]:
    if share is not None:
        yield Evidence(name=f"share of forward {unit}", value=100.0 * share, unit="percent", where=path)
    if spent is not None and run is not None:
        where = f"{path}, {run.config.name}"
        yield Evidence(name="share of measured time", value=100.0 * spent, unit="percent", where=where)
    node = node_of(report.static, path)
    if report.static is None or node is None:
        return
    yield Evidence(name="forward MACs a step", value=node.forward.macs, unit="macs", where=path)
    step = ratio(node.step_cost.flops, report.static.step.flops)
    if step is not None:
        yield Evidence(name="share of the step's FLOPs", value=100.0 * step, unit="percent", where=path)
    rate = efficiency(report, run, path, "forward") if run is not None else None
    if rate is not None:
        yield from rate.evidence()
    for change, bounds in options:
        what = change.what.partition(" (")[0]
        yield from known(
            "computed",
            (f"forward MACs with {what}", _after(report.static, node, change), "macs"),
            (f"step with {what}, at most", bounds.high_ns if bounds is not None else None, "ns"),
            (f"step with {what}, at least", bounds.low_ns if bounds is not None else None, "ns"),
        )


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Fires for one module; without modules for calls with the same shapes, without shapes for kernels that run once a step."""
    found = (
        dominant_module(report, TIME_SHARE) or dominant_shape(report, TIME_SHARE) or dominant_calls(report, TIME_SHARE)
    )
    if found is None:
        return
    yield RULE.finding(
        severity=_severity(found.share),
        title=found.title,
        explanation=sentences(found.explanation, _rest(None, found.share)),
        advice=found.advice,
        evidence=found.evidence,
        paths=found.paths,
        weight=found.share,
    )


RULE = Rule("dominant_layer", DOC, check, "place", check_trace)
