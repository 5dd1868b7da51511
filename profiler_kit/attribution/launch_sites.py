"""Where the program launches device work: the user's function, the operator and the phase of each launch."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.events import outermost_enclosing
from profiler_kit.attribution.host_activity import user_calls
from profiler_kit.attribution.result import PHASE_NUMBERS, Attribution, phase_name
from profiler_kit.records.counts import Phase
from profiler_kit.traces.intervals import distinct_rows, union
from profiler_kit.traces.names import NODE_PREFIX
from profiler_kit.traces.table import NONE, Ids, Ints, Kind

# A function that encloses nearly all launches of a step is the step: what it launches itself is no place in the program.
LOOP_LAUNCH_SHARE: Final = 0.98
# Work of these phases belongs to torch and the optimizer, not to the function that calls them.
_CALLED_PHASES: Final = ("backward", "optimizer")
MAX_LEVELS: Final = 32  # of calls of the user's own code around a launch


class Site(NamedTuple):
    """A place that launches work. `source`: the user's function, as ``train.py(12): step``; "" where no stacks are recorded.

    Work of backward has the place of its forward operator. `operator`: the outermost one, or the node of autograd of an unknown
    one. `call`:
    the user's function around it that the loop calls itself. `has_backward`: the work is a part of backward, or has one.
    """

    source: str
    operator: str
    phase: Phase | str
    call: str = ""
    has_backward: bool = False


class Sites(NamedTuple):
    """The sites of a trace, the number of each host event's site, or NONE, and the functions that are the loop itself."""

    sites: tuple[Site, ...]
    number: Ids
    loops: frozenset[str]


def launch_sites(attribution: Attribution, events: Ids, launches: Ids) -> Sites:
    """Return the sites of `events`, which are positions in `Attribution.host` or NONE. `launches`: those that launch work."""
    table, host = attribution.table, attribution.host
    known = np.flatnonzero(events != NONE)
    at = events[known]
    outer_operator = outermost_enclosing(host.parent, host.operator)
    outermost = outer_operator[at]
    node = host.node[at]
    forward = attribution.forward_of(node)
    operator_of = np.where(node != NONE, np.where(forward != NONE, outer_operator[forward], node), outermost)
    chain = _chain(attribution, np.where(forward != NONE, forward, at).astype(np.int32))
    names = np.append(table.name[host.rows], np.int32(NONE))
    loops = _loops(attribution, np.unique(names[np.concatenate(chain)]), launches[launches != NONE])
    has_backward = (node != NONE) | np.isin(
        outermost, outer_operator[attribution.node_forward[attribution.node_forward != NONE]]
    )
    phase = host.phase[at].astype(np.int32)
    call = _outermost(names[chain], loops)
    unique, number = distinct_rows([names[chain[0]], names[operator_of], phase, call, has_backward])
    sites = tuple(
        Site(
            source=table.names[source] if source != NONE else "",
            operator=table.names[operator].removeprefix(NODE_PREFIX) if operator != NONE else "",
            phase=phase_name(phase),
            call=table.names[call] if call != NONE else "",
            has_backward=bool(has_backward),
        )
        for source, operator, phase, call, has_backward in unique.tolist()
    )
    result = np.full(len(events), NONE, np.int32)
    result[known] = number
    return Sites(_with_repeated(sites), result, frozenset(table.names[i] for i in loops.tolist()))


def _chain(attribution: Attribution, events: Ids) -> Ids:
    """Return the user's calls around each event, a row for each level, the innermost one first; NONE beyond the outermost."""
    rows = [user_calls(attribution, events)]
    while len(rows) < MAX_LEVELS and (rows[-1] != NONE).any():
        inside = np.flatnonzero(rows[-1] != NONE)
        around = attribution.host.enclosing(attribution.host.python, rows[-1][inside])
        outer = np.full(len(events), NONE, np.int32)
        is_called = around != NONE
        outer[inside[is_called]] = user_calls(attribution, around[is_called])
        rows.append(outer)
    return _inside_phase(attribution, events, np.stack(rows))


def _inside_phase(attribution: Attribution, events: Ids, chain: Ids) -> Ids:
    """Return `chain` with NONE in place of functions that only call the backward pass or the optimizer around an event."""
    phase = np.append(attribution.host.phase, np.int8(NONE))
    is_called = np.isin(phase[events], [PHASE_NUMBERS[name] for name in _CALLED_PHASES])
    return np.where(is_called & (phase[chain] != phase[events]), np.int32(NONE), chain)


def _loops(attribution: Attribution, names: Ids, launches: Ids | Ints) -> Ids:
    """Return which functions enclose nearly all `launches`, of all threads: the loop's own, not places in it."""
    table, host = attribution.table, attribution.host
    times, called = (
        np.sort(host.start_ns[launches]),
        np.where(table.kind[host.rows] == Kind.PYTHON, table.name[host.rows], NONE),
    )
    loops = []
    for name in names[names != NONE].tolist():
        rows = np.flatnonzero(called == name)
        calls = union(host.start_ns[rows], host.end_ns[rows])
        inside = np.searchsorted(times, calls.end, side="right") - np.searchsorted(times, calls.start, side="left")
        if len(times) and int(inside.sum()) >= LOOP_LAUNCH_SHARE * len(times):
            loops.append(name)
    return np.array(loops, np.int32)


def _outermost(names: Ids, loops: Ids) -> Ids:
    """Return the outermost function of each column of `names` that is no loop, or NONE."""
    result = np.full(names.shape[1], NONE, np.int32)
    for level in names:
        result = np.where((level != NONE) & ~np.isin(level, loops), level, result)
    return result


def _with_repeated(sites: tuple[Site, ...]) -> tuple[Site, ...]:
    """Return `sites` with those as having a backward pass whose work backward repeats: checkpointed forward work."""
    repeated = {(site.source, site.operator) for site in sites if site.phase == "recompute"}
    return tuple(
        site._replace(has_backward=site.has_backward or (site.source, site.operator) in repeated) for site in sites
    )
