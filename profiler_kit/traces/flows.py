"""Which arrows of a trace have both their ends.

Kineto writes ends of arrows whose beginning it never saw (launches before the recording) and several ends for one beginning
(kernels of one graph launch). Viewers complain of each, chrome://tracing thousands of times per file.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from profiler_kit.traces.entries import FLOW_END, FLOW_START, FLOW_STEP, Entries
from profiler_kit.traces.table import NONE, Mask


def without_unmatched_flows(entries: Entries, keep: Mask) -> Mask:
    """`keep` less the flow events that would not be part of an arrow among the entries kept.

    As chrome://tracing pairs them: by time, then as in the file; a start opens its id, the next end closes it; each must
    lie within a box of its thread.
    """
    is_flow = (entries.kind >= FLOW_START) & (entries.kind <= FLOW_END)
    flows = np.flatnonzero(keep & is_flow)
    flows = flows[within_boxes(entries, keep, flows)]
    # Per id by time: pairs are what follows one another there. Both sorts keep the file's order among equals.
    flows = flows[np.argsort(entries.start_us[flows], kind="stable")]
    flows = flows[np.argsort(entries.flow[flows], kind="stable")]
    matched = flows[_paired(entries.flow[flows], entries.kind[flows])]
    kept = keep & ~is_flow
    kept[matched] = True
    return kept


def _paired(flow: NDArray[np.int32], kind: NDArray[np.int8]) -> Mask:
    """Which of the flow events, grouped by id and in order, are parts of arrows that begin and end."""
    begins = kind == FLOW_START
    ends = kind == FLOW_END
    paired = np.zeros(len(flow), dtype=np.bool_)
    if len(flow) < 2:
        return paired
    same = flow[1:] == flow[:-1]
    if not (kind == FLOW_STEP).any():
        # A start that another start follows stays without an end; an end must follow a start at once.
        arrow = np.flatnonzero(same & begins[:-1] & ends[1:])
        paired[arrow] = paired[arrow + 1] = True
        return paired
    # Arrows of several parts are rare, and none of Kineto's: one after the other.
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


def within_boxes(entries: Entries, drawn: Mask, flows: NDArray[np.intp]) -> Mask:
    """Which of `flows` lie within a box of their own thread that is among those `drawn`."""
    boxes = np.flatnonzero(drawn & entries.sliced & (entries.thread != NONE) & ~np.isnan(entries.start_us))
    order = np.lexsort((entries.start_us[boxes], entries.thread[boxes]))
    boxes = boxes[order]
    thread = entries.thread[boxes]
    start = entries.start_us[boxes]
    end = entries.end_us[boxes]
    covered = np.zeros(len(flows), dtype=np.bool_)
    first = np.searchsorted(thread, np.arange(int(thread[-1]) + 2)) if len(thread) else np.zeros(1, dtype=np.intp)
    flow_thread = entries.thread[flows]
    by_thread = np.argsort(flow_thread, kind="stable")
    bounds = np.flatnonzero(np.diff(flow_thread[by_thread], prepend=-2))
    for group in np.split(by_thread, bounds[1:]) if len(by_thread) else ():
        number = int(flow_thread[group[0]])
        if number + 1 >= len(first) or first[number] == first[number + 1]:
            continue
        mine = slice(int(first[number]), int(first[number + 1]))
        furthest = np.maximum.accumulate(end[mine])
        at = entries.start_us[flows[group]]
        before = np.searchsorted(start[mine], at, side="right") - 1
        covered[group] = (before >= 0) & (furthest[np.maximum(before, 0)] >= at)
    return covered
