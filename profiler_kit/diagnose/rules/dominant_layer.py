"""One layer that the work, or the time, is all about."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnose.convolution import Convolution, by, convolution_of
from profiler_kit.diagnose.efficiency import efficiency
from profiler_kit.diagnose.rule import Rule
from profiler_kit.diagnose.timing import ratio, time_by_path
from profiler_kit.diagnose.words import opening, percent, plural, sentences, threshold, times, work
from profiler_kit.records.counts import PSEUDO_PATHS, ModuleNode, StaticCount
from profiler_kit.records.report import Evidence, Finding, Report, Severity
from profiler_kit.records.runs import ConfigRun

# With four fifths of the work in one place, making all the rest free saves a fifth (Amdahl): there is one place to look.
WORK_SHARE: Final = 0.80
# Time is spread by memory-bound neighbours (activations, normalisation) even where one layer has all the work.
TIME_SHARE: Final = 0.60
# Half of the measured time: making this layer free makes the step twice as fast, and no other layer can do as much.
HIGH: Final = 0.50
# A quarter: free, it makes the step a third faster; below it the time is somewhere else, however much work the layer has.
MEDIUM: Final = 0.25
# Halving a smaller kernel leaves no neighbourhood to look at (3 -> 1).
LEAST_KERNEL_TO_HALVE: Final = 5

DOC = f"""
One module does at least {threshold(WORK_SHARE)} of the forward pass's multiply-accumulates (FLOPs where it has none), or takes at
least {threshold(TIME_SHARE)} of the baseline's device time. A model with a single working layer is left alone: that one layer
dominates is no news.

How grave it is goes by time where that was measured, since only time can be saved: `high` from {threshold(HIGH)}, `medium` from
{threshold(MEDIUM)}, else `low`: the layer has the work and does it fast, so changing it gains little. Without a
measurement it is `high`.

For a convolution the count is given as its product, input channels x output channels x kernel x output grid, and two
changes are worked out: half the kernel size, and stride 2 before the layer (a quarter of the output grid in 2-d). What they
would save is **computed from the counts, not measured**, and both change what the model computes.
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
    share, spent = _work_share(report.static, path), _time_share(run, path)
    node = _node(report.static, path)
    yield Finding(
        rule=RULE.name,
        severity=_severity(spent),
        title=_title(report.static, path, share, spent),
        explanation=sentences(_cost(node), _rate(report, run, node), _rest(share, spent)),
        advice=_advice(report.static, node, spent),
        evidence=_evidence(report, run, node, path, share, spent),
        paths=(path,),
        weight=min(1.0, spent if spent is not None else share or 0.0),
    )


def _severity(spent: float | None) -> Severity:
    if spent is None or spent >= HIGH:
        return "high"
    return "medium" if spent >= MEDIUM else "low"


def _amount(node: ModuleNode, static: StaticCount) -> int:
    return node.forward.macs if static.forward.macs > 0 else node.forward.flops


def _whole(static: StaticCount) -> int:
    return static.forward.macs or static.forward.flops


def _by_work(static: StaticCount | None) -> tuple[str, float] | None:
    if static is None or _whole(static) <= 0:
        return None
    working = [node for node in static.modules if node.path not in PSEUDO_PATHS and _amount(node, static) > 0]
    if len(working) < 2:
        return None
    top = max(working, key=lambda node: _amount(node, static))
    return top.path, _amount(top, static) / _whole(static)


def _by_time(run: ConfigRun | None) -> tuple[str, float] | None:
    if run is None or not run.device_ns:
        return None
    times = [(path, ns) for path, ns in time_by_path(run).most_common() if path not in PSEUDO_PATHS]
    return (times[0][0], times[0][1] / run.device_ns) if len(times) > 1 else None


def _node(static: StaticCount | None, path: str) -> ModuleNode | None:
    return next((node for node in static.modules if node.path == path), None) if static is not None else None


def _work_share(static: StaticCount | None, path: str) -> float | None:
    node = _node(static, path)
    return ratio(_amount(node, static), _whole(static)) if node is not None and static is not None else None


def _time_share(run: ConfigRun | None, path: str) -> float | None:
    return ratio(time_by_path(run)[path], run.device_ns) if run is not None else None


def _unit_of(static: StaticCount | None) -> str:
    return "MACs" if static is not None and static.forward.macs > 0 else "FLOPs"


def _title(static: StaticCount | None, path: str, share: float | None, spent: float | None) -> str:
    parts = []
    if share is not None:
        parts.append(f"does {percent(share)} of the forward pass's {_unit_of(static)}")
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


def _advice(static: StaticCount | None, node: ModuleNode | None, spent: float | None) -> str:
    if spent is not None and spent < MEDIUM:
        return (
            f"Look at the layers that take the time before this one: if it took no time at all, the step would be "
            f"at most {times(1.0 / (1.0 - spent))} as fast."
        )
    first = " first" if spent is None or spent >= HIGH else ""
    conv = convolution_of(node) if node is not None else None
    if node is not None and node.path == "":
        return f"Look{first} at what the model's forward calls itself, outside its submodules."
    if node is None or static is None or conv is None:
        return f"Change this layer{first}: fewer channels or features, a smaller input, or fewer calls of it."
    changes = list(_changes(static, node, conv))
    short = [
        f"{times(static.forward.macs / after)}{' fewer MACs' if i == 0 else ''} by {what.partition(' (')[0]}"
        for i, (what, after) in enumerate(changes)
    ]
    options = [
        f"{what} leaves {work(after, 'MACs')} of {work(static.forward.macs, 'MACs')} "
        f"({times(static.forward.macs / after)} fewer)"
        for what, after in changes
    ]
    if not options:
        return f"Change this layer{first}: fewer channels, or a smaller input for it."
    return (
        f"Change this layer{first}: {', '.join(short)}. For the whole forward pass, computed from the counts, not measured: "
        f"{'; '.join(options)}. Either changes what the model computes, so train it again and check its quality."
    )


def _changes(static: StaticCount, node: ModuleNode, conv: Convolution) -> Iterator[tuple[str, int]]:
    rest = static.forward.macs - node.forward.macs
    if min(conv.kernel) >= LEAST_KERNEL_TO_HALVE:
        half = tuple(size // 2 for size in conv.kernel)
        less = node.forward.macs * math.prod(half) // math.prod(conv.kernel)
        yield f"half the kernel size ({by(half)}, same output size)", rest + less
    if min(conv.grid) > 1:
        grid = tuple(-(-size // 2) for size in conv.grid)
        less = node.forward.macs * math.prod(grid) // math.prod(conv.grid)
        yield f"stride 2 before it (so that it works at {by(grid)} positions)", rest + less


def _evidence(
    report: Report, run: ConfigRun | None, node: ModuleNode | None, path: str, share: float | None, spent: float | None
) -> tuple[Evidence, ...]:
    found: list[Evidence] = []
    macs = report.static is not None and report.static.forward.macs > 0
    if share is not None:
        name = "share of forward MACs" if macs else "share of forward FLOPs"
        found.append(Evidence(name=name, value=100.0 * share, unit="percent", where=path))
    if spent is not None and run is not None:
        found.append(
            Evidence(
                name="share of measured time", value=100.0 * spent, unit="percent", where=f"{path}, {run.config.name}"
            )
        )
    if node is not None:
        found.append(Evidence(name="forward MACs a step", value=node.forward.macs, unit="macs", where=path))
        step = ratio(node.step_cost.flops, report.static.step.flops) if report.static is not None else None
        if step is not None:
            found.append(Evidence(name="share of the step's FLOPs", value=100.0 * step, unit="percent", where=path))
        rate = efficiency(report, run, path, "forward") if run is not None else None
        if rate is not None:
            found.extend(rate.evidence())
        conv = convolution_of(node)
        if conv is not None and report.static is not None:
            found.extend(
                Evidence(
                    name=f"forward MACs with {what.partition(' (')[0]}", value=after, unit="macs", where="computed"
                )
                for what, after in _changes(report.static, node, conv)
            )
    return tuple(found)


RULE = Rule("dominant_layer", DOC, check, "place")
