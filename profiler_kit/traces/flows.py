"""Removal of flow arrows without both ends.

Kineto writes arrow ends without a start (launches before the recording) and several ends for one start (kernels of
one graph launch). Viewers report an error for each; chrome://tracing reports thousands per file.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from profiler_kit.traces.entries import FLOW_END, FLOW_START, FLOW_STEP, Entries
from profiler_kit.traces.table import NONE, Mask


def without_unmatched_flows(entries: Entries, keep: Mask) -> Mask:
    """Return `keep` without the flow events that would not be part of an arrow among the kept entries.

    Arrows are paired as in chrome://tracing: by time, then by file order. A start opens its id, the next end closes
    it. Both must lie inside a box of their thread.
    """
    is_flow = (entries.kind >= FLOW_START) & (entries.kind <= FLOW_END)
    flows = np.flatnonzero(keep & is_flow)
    flows = flows[within_boxes(entries, keep, flows)]
    # By id, then time, so that pairs are adjacent. Both sorts are stable and keep the file order of equal times.
    flows = flows[np.argsort(entries.start_us[flows], kind="stable")]
    flows = flows[np.argsort(entries.flow[flows], kind="stable")]
    matched = flows[_paired(entries.flow[flows], entries.kind[flows])]
    result = keep & ~is_flow
    result[matched] = True
    return result


def _paired(flow: NDArray[np.int32], kind: NDArray[np.int8]) -> Mask:
    """Return which of the flow events, ordered by id and time, are part of an arrow with start and end."""
    is_start = kind == FLOW_START
    is_end = kind == FLOW_END
    paired = np.zeros(len(flow), dtype=np.bool_)
    if len(flow) < 2:
        return paired
    same_flow = flow[1:] == flow[:-1]
    if not (kind == FLOW_STEP).any():
        # A start followed by another start has no end. An end must directly follow a start.
        arrow = np.flatnonzero(same_flow & is_start[:-1] & is_end[1:])
        paired[arrow] = paired[arrow + 1] = True
        return paired
    # Arrows with intermediate steps are rare, and Kineto writes none. They are paired one by one.
    open_parts: list[int] = []
    for i, (number, part) in enumerate(zip(flow.tolist(), kind.tolist(), strict=True)):
        if open_parts and flow[open_parts[-1]] != number:
            open_parts = []
        if part == FLOW_START:
            open_parts = [i]
        elif open_parts:
            open_parts.append(i)
            if part == FLOW_END:
                paired[open_parts] = True
                open_parts = []
    return paired


def within_boxes(entries: Entries, visible: Mask, flows: NDArray[np.intp]) -> Mask:
    """Return which of `flows` lie inside a `visible` box of their own thread."""
    boxes = np.flatnonzero(visible & entries.sliced & (entries.thread != NONE) & ~np.isnan(entries.start_us))
    order = np.lexsort((entries.start_us[boxes], entries.thread[boxes]))
    boxes = boxes[order]
    thread = entries.thread[boxes]
    start = entries.start_us[boxes]
    end = entries.end_us[boxes]
    is_inside = np.zeros(len(flows), dtype=np.bool_)
    first = np.searchsorted(thread, np.arange(int(thread[-1]) + 2)) if len(thread) else np.zeros(1, dtype=np.intp)
    flow_thread = entries.thread[flows]
    by_thread = np.argsort(flow_thread, kind="stable")
    bounds = np.flatnonzero(np.diff(flow_thread[by_thread], prepend=-2))
    for group in np.split(by_thread, bounds[1:]) if len(by_thread) else ():
        number = int(flow_thread[group[0]])
        if number + 1 >= len(first) or first[number] == first[number + 1]:
            continue
        on_thread = slice(int(first[number]), int(first[number + 1]))
        latest_end = np.maximum.accumulate(end[on_thread])
        flow_time = entries.start_us[flows[group]]
        before = np.searchsorted(start[on_thread], flow_time, side="right") - 1
        is_inside[group] = (before >= 0) & (latest_end[np.maximum(before, 0)] >= flow_time)
    return is_inside
