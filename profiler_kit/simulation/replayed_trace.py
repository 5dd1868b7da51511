"""From a trace to the replay of its steps: the step without the profiler, its places, and a model for further questions."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.result import Attribution
from profiler_kit.records.traces import TraceSummary
from profiler_kit.simulation.changes import drop_waits
from profiler_kit.simulation.from_trace import TraceGraph, trace_graph
from profiler_kit.simulation.graph import NEVER_NS, Mask, selected
from profiler_kit.simulation.host_lanes import window_of
from profiler_kit.simulation.profiler_cost import (
    LEAST,
    LEAST_CALIBRATED,
    MOST,
    MOST_CALIBRATED,
    calibrated_scale,
    cost_of,
    untraced_interval,
    untraced_reason,
)
from profiler_kit.simulation.step_model import StepModel, step_model
from profiler_kit.simulation.work_sites import work_sites
from profiler_kit.traces.table import NONE

# A replay takes 2 us for each node, and a report asks for some fifty: the steps in the middle of a long trace are enough.
MAX_NODES: Final = 8_000
MAX_STEP_NODES: Final = 50_000


class Replayed(NamedTuple):
    """The replay of a trace.

    - `summary`: with the step without the profiler, and the places without which it would be shorter.
    - `model`: for further questions; None for a trace without device work or steps, and for steps that are too long to ask often.
    - `profiler_scale`: the factor of the usual cost of the profiler with which the replay takes as long as the timed step.
    """

    summary: TraceSummary
    model: StepModel | None = None
    profiler_scale: float | None = None


def replayed(
    attribution: Attribution, summary: TraceSummary, *, timed_ns: int | None = None, own_waits: Mask | None = None
) -> Replayed:
    """Return the replay of the steps of a trace.

    `timed_ns`: the step without the profiler, where it was measured; the cost of the profiler is then the one that explains it.
    `own_waits`: which host events are waits that are no part of the program, as those at the end of a step that is timed.
    """
    if reason := untraced_reason(attribution, summary):
        return Replayed(replace(summary, untraced_reason=reason))
    cost = cost_of(attribution, summary.missing_share)
    if own_waits is None:
        attribution = _around_the_middle(attribution)
    traced = trace_graph(attribution)
    if own_waits is not None:
        nodes = np.flatnonzero(~traced.graph.is_device & (traced.event >= 0))
        traced = replace(traced, graph=drop_waits(traced.graph, nodes[own_waits[traced.event[nodes]]]))
    part = _middle_steps(traced)
    summary = replace(summary, untraced_step_ns=untraced_interval(part.graph, cost))
    scale = calibrated_scale(part.graph, cost, timed_ns) if timed_ns is not None else None
    if not part.graph.is_device.any() or len(part.graph) > MAX_STEP_NODES:
        return Replayed(summary, None, scale)
    range_ = (LEAST, MOST) if scale is None else (LEAST_CALIBRATED, MOST_CALIBRATED)
    model = step_model(attribution, part, cost if scale is None else cost.scaled(scale), range_)
    return Replayed(replace(summary, sites=work_sites(model)), model, scale)


def _around_the_middle(attribution: Attribution) -> Attribution:
    """Return the steps in the middle of a long trace that have more than `MAX_NODES` nodes.

    Device work and its launches are the least that a graph has. The graph of the rest would cost more than the replays.
    """
    steps = window_of(attribution).steps
    count = MAX_NODES * len(steps) // max(2 * len(attribution.device.rows), 1) + 3
    if 2 * count >= len(steps):
        return attribution
    count += (len(steps) - count) % 2  # so that its middle is that of the trace
    first = attribution.steps.index(steps[(len(steps) - count) // 2])
    return attribution.of_steps(first, first + count - 1)


def _middle_steps(trace: TraceGraph) -> TraceGraph:
    """Return the steps in the middle of `trace` with at most `MAX_NODES` nodes, but at least one step."""
    graph, steps = trace.graph, trace.graph.steps
    count = max(1, MAX_NODES * steps // max(len(graph), 1))
    if count >= steps:
        return trace
    first = (steps - count) // 2
    inside = np.flatnonzero((graph.step >= first) & (graph.step < first + count))
    between = np.arange(inside.min(), inside.max())
    kept = np.union1d(
        inside, between[graph.step[between] == NONE]
    )  # without them, the steps of a thread are not in sequence
    host = kept[~graph.is_device[kept]]
    ready_ns = np.full(len(graph), NEVER_NS)
    lanes_first = host[np.unique(graph.lane[host], return_index=True)[1]]
    ready_ns[lanes_first] = trace.begin_ns[lanes_first] - trace.begin_ns[host].min()
    return TraceGraph(
        graph=selected(
            replace(graph, step=np.where(graph.step == NONE, NONE, graph.step - first), ready_ns=ready_ns), kept
        ),
        begin_ns=trace.begin_ns[kept],
        end_ns=trace.end_ns[kept],
        thread=trace.thread[kept],
        event=trace.event[kept],
        origin_ns=trace.origin_ns,
    )
