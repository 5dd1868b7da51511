"""Where the program launches device work: the user's function, the operator and the phase of each launch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.events import outermost_enclosing
from profiler_kit.attribution.host_activity import user_calls
from profiler_kit.attribution.result import Attribution, phase_name
from profiler_kit.records.traces import TracePhase
from profiler_kit.traces.intervals import union
from profiler_kit.traces.names import NODE_PREFIX
from profiler_kit.traces.table import NONE, Ids, Ints, Kind

# A function that encloses nearly all launches of a step is the step: what it launches itself is no place in the program.
LOOP_LAUNCH_SHARE: Final = 0.98


class Site(NamedTuple):
    """A place that launches work. `source`: the user's function, as ``train.py(12): step``; "" where no stacks are recorded.

    Work of backward has the place of its forward operator. `operator`: the outermost operator, or the node of autograd.
    """

    source: str
    operator: str
    phase: TracePhase | str


class Sites(NamedTuple):
    """The sites of a trace, and the number of each host event's site, or NONE."""

    sites: tuple[Site, ...]
    number: Ids


def loop_functions(attribution: Attribution, sites: Sequence[Site], launches: Ids | Ints) -> frozenset[str]:
    """Return the functions of `sites` during whose calls nearly all `launches` are made: the loop's own, not places in it.

    `launches`: positions in `Attribution.host`, of all threads.
    """
    table, host = attribution.table, attribution.host
    times, is_python = np.sort(host.start_ns[launches]), table.kind[host.rows] == Kind.PYTHON
    loops = set()
    for source in {site.source for site in sites if site.source}:
        named = np.flatnonzero(is_python & table.named(host.rows, re.compile(re.escape(source) + r"\Z")))
        calls = union(host.start_ns[named], host.end_ns[named])
        inside = np.searchsorted(times, calls.end, side="right") - np.searchsorted(times, calls.start, side="left")
        if len(times) and int(inside.sum()) >= LOOP_LAUNCH_SHARE * len(times):
            loops.add(source)
    return frozenset(loops)


def launch_sites(attribution: Attribution, events: Ids) -> Sites:
    """Return the sites of `events`, which are positions in `Attribution.host` or NONE."""
    table, host = attribution.table, attribution.host
    launches = np.flatnonzero(events != NONE)
    at = events[launches]
    outermost = outermost_enclosing(host.parent, host.operator)[at]
    node = host.node[at]
    operator_of = np.where(node != NONE, node, outermost)
    forward = attribution.forward_of(node)
    source_of = user_calls(attribution, np.where(forward != NONE, forward, at).astype(np.int32))
    names = np.append(table.name[host.rows], np.int32(NONE))
    keys = np.stack([names[source_of], names[operator_of], host.phase[at].astype(np.int32)], axis=1)
    unique, number = np.unique(keys, axis=0, return_inverse=True) if len(keys) else (keys, np.zeros(0, np.int64))
    sites = tuple(
        Site(
            source=table.names[source] if source != NONE else "",
            operator=table.names[operator].removeprefix(NODE_PREFIX) if operator != NONE else "",
            phase=phase_name(phase),
        )
        for source, operator, phase in unique.tolist()
    )
    result = np.full(len(events), NONE, np.int32)
    result[launches] = number.reshape(-1)
    return Sites(sites, result)
