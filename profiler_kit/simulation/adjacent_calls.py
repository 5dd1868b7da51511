"""Calls of the same module, one directly after the other, that one call with a larger batch can replace.

The program calls a network twice and launches nothing between both calls: the second one does not need the first one's outputs. A
network that feeds its outputs back, as a sampler or a decoder does, works on them before. Only modules that the program calls
itself count: inside of a network, layers follow each other without other work.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from profiler_kit.attribution.result import Attribution
from profiler_kit.traces.names import MODULE_PREFIX
from profiler_kit.traces.table import NONE, Ids, Ints, Mask

MIN_LAUNCHES: Final = 8  # of a call; fewer are a single layer


def later_calls(attribution: Attribution, launches: Ids) -> Mask:
    """Return the events in calls that directly follow a call of the same module in the same step, and their backward pass.

    Both calls launch as much. `launches`: of device work.
    """
    host, calls = attribution.host, _outermost_calls(attribution)
    times = np.sort(host.start_ns[launches[launches != NONE]])
    step, name = host.step[calls], attribution.table.name[host.rows[calls]]
    begin, end = (np.searchsorted(times, column[calls]) for column in (host.start_ns, host.end_ns))
    launched = end - begin
    is_later = np.zeros(len(calls), np.bool_)
    is_later[1:] = (
        (step[1:] == step[:-1]) & (name[1:] == name[:-1]) & (begin[1:] == end[:-1]) & (launched[1:] == launched[:-1])
    )
    later = calls[is_later & (launched >= MIN_LAUNCHES)]
    inside = _within(attribution, later)
    forward = np.append(attribution.forward_of(host.node), np.int32(NONE))[:-1]
    members: Mask = inside | ((forward != NONE) & inside[forward])
    return members


def _outermost_calls(attribution: Attribution) -> Ints:
    """Return the calls of modules on the main thread that no other module encloses, by start."""
    host, table = attribution.host, attribution.table
    is_module = np.array([name.startswith(MODULE_PREFIX) for name in table.names], np.bool_)[table.name[host.rows]]
    calls = np.flatnonzero(is_module & (host.thread == attribution.main_thread))
    earlier_end = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, host.end_ns[calls]))[:-1]
    return calls[host.start_ns[calls] >= earlier_end]


def _within(attribution: Attribution, calls: Ints) -> Mask:
    """Return which events of the main thread begin within `calls`, which do not overlap."""
    host = attribution.host
    at = np.searchsorted(host.start_ns[calls], host.start_ns, side="right") - 1
    end = np.append(host.end_ns[calls], np.iinfo(np.int64).min)[at]
    inside: Mask = (at >= 0) & (host.start_ns < end) & (host.thread == attribution.main_thread)
    return inside
