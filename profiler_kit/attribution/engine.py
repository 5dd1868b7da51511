"""The attribution engine: a trace's columns to step, phase and module of every host event and of all device work.

Work on the device belongs to what was around its launch on the host, whenever it ran. `result.Evidence` lists the evidence for a
phase in the order in which it is asked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.events import Role, host_events
from profiler_kit.attribution.links import Links, Nodes, join_nodes, link_launches
from profiler_kit.attribution.modules import COMPILED_CLASS, host_modules
from profiler_kit.attribution.nesting import in_time
from profiler_kit.attribution.phases import OTHER, find_steps, host_phases
from profiler_kit.attribution.result import PHASE_NUMBERS, Attribution, Device, Evidence, Host, Module
from profiler_kit.records.counts import COMMUNICATION_PATH
from profiler_kit.traces.names import COLLECTIVE_KERNEL, HOST_TO_DEVICE
from profiler_kit.traces.table import DEVICE_KINDS, NONE, Bytes, Ids, Ints, Kind, Mask, Table


class _Work(NamedTuple):
    """The device's events in order of time."""

    rows: Ids
    start_ns: Ints
    end_ns: Ints


def attribute(table: Table) -> Attribution:
    """Step, phase and module of the work in `table`; NONE where there is no evidence."""
    rows = np.flatnonzero(table.of(*DEVICE_KINDS)).astype(np.int32)
    start, end = table.times(rows)
    order = in_time(start, end)
    work = _Work(rows[order], start[order], end[order])
    rows = work.rows
    events = host_events(table)
    steps = find_steps(table, events)
    step = steps.at(events.start_ns)
    nodes = join_nodes(table, events, np.append(steps.start_ns, np.int64(-(1 << 62)))[step])
    links = link_launches(table, events, rows)
    copies = (table.kind[rows] == Kind.MEMCPY) & table.named(rows, HOST_TO_DEVICE) & (links.source != NONE)
    phases = host_phases(table, events, nodes, steps, links.source[copies])
    called = host_modules(table, events, nodes, phases, step)
    host = Host(
        rows=events.rows,
        start_ns=events.start_ns,
        end_ns=events.recorded_end_ns,
        thread=events.thread,
        parent=events.parent,
        operator=events.operator,
        node=events.node,
        python=events.python,
        phase=phases.phase,
        module=called.module,
        step=step,
    )
    collective = table.named(rows, COLLECTIVE_KERNEL)
    device = _device(table, host, work, links, phases.evidence)
    modules = called.modules
    if collective.any():
        # A collective is launched in some module's call, and is not that module's work.
        device.phase[collective], device.evidence[collective] = PHASE_NUMBERS["communication"], Evidence.NAME
        device.module[collective] = len(modules)
        modules = (*modules, Module(COMMUNICATION_PATH, ""))
    launches = device.launch[device.launch != NONE]
    attribution = Attribution(
        table=table,
        host=host,
        device=device,
        modules=modules,
        steps=steps.steps,
        nodes=nodes.positions,
        node_forward=np.where(nodes.exact, nodes.forward, NONE),
        node_redone=called.node_redone,
        graph_launches=int((np.bincount(launches) > 1).sum()) if len(launches) else 0,
        compiled=events.has(Role.REGION) or any(module.class_name == COMPILED_CLASS for module in modules),
        notes=(),
    )
    return replace(attribution, notes=_notes(attribution, nodes, bool(called.modules), steps.inferred))


def _device(table: Table, host: Host, work: _Work, links: Links, evidence_of: Bytes) -> Device:
    """The device's events, each with what was around its launch."""
    rows, source = work.rows, links.source
    linked = source != NONE
    # What has no launch takes the entry behind the last one.
    phase = np.append(host.phase, np.int8(NONE))[source]
    module, step, operator = (
        np.append(column, np.int32(NONE))[source] for column in (host.module, host.step, host.operator)
    )
    evidence = np.append(evidence_of, np.int8(Evidence.NONE))[source]
    phase[linked & (phase == NONE)] = OTHER
    same = align(table.name[rows], table.stream[rows], step, linked)
    aligned = same != NONE
    phase[aligned], module[aligned] = phase[same[aligned]], module[same[aligned]]
    evidence[aligned] = Evidence.ALIGNED
    return Device(
        rows=rows,
        start_ns=work.start_ns,
        end_ns=work.end_ns,
        launch=links.launch,
        operator=operator,
        phase=phase,
        within=phase.copy(),
        module=module,
        step=step,
        evidence=evidence,
        aligned=same,
    )


def _notes(attribution: Attribution, nodes: Nodes, has_calls: bool, inferred: bool) -> tuple[str, ...]:
    """Short sentences on what is not known; none where there is nothing to say."""
    notes = []
    device = attribution.device
    lost = int((device.launch == NONE).sum())
    if lost:
        notes.append(
            f"{lost} of {len(device.rows)} device events have no launch in the trace; "
            f"{int((device.evidence == Evidence.ALIGNED).sum())} were attributed by matching another step"
        )
    forward = nodes.forward[~nodes.unnumbered]
    missing = int((forward == NONE).sum())
    if missing:
        notes.append(f"{missing} of {len(forward)} backward nodes have no forward operator in the trace: no module")
    if not has_calls and attribution.table.of(Kind.OPERATOR).any():
        notes.append("no module calls in the trace: record with with_stack=True to see modules")
    if attribution.compiled:
        notes.append("regions of torch.compile have a phase, but no modules inside")
    if attribution.graph_launches:
        notes.append(
            f"{attribution.graph_launches} launches have several kernels each (CUDA graphs): "
            "all are attributed to the launch"
        )
    if inferred:
        notes.append("no step is marked: a step is taken to end with an optimizer's step")
    elif not attribution.steps:
        notes.append("no step is marked: call profiler.step() after each")
    return tuple(notes)


# ---- device work whose launch came before the trace did: the same kernels in the same order of another step


SHORTEST: Final = 3  # names in a row must be the same at the least
FOLLOWING: Final = 8  # how far what comes after is compared
BEHIND: Final = 64  # how far what came before is compared to choose a place
APART: Final = 24  # names that may be left out, in both together, where two steps differ
AGAIN: Final = 4  # names that must agree after that
# Bounds for traces in which nearly nothing has a launch or nearly nothing is the same.
REFERENCE: Final = 1 << 16
PLACES: Final = 1 << 12
TRIALS: Final = 1024


class _Known(NamedTuple):
    """Events of one stream whose launch is known: their names, themselves, and whether each is the last of its step there."""

    names: Ids
    events: Ids
    last: Mask


def align(name: Ids, stream: Ids, step: Ids, known: Mask) -> Ids:
    """For each event that is not `known` the known one that is the same work of another step, or NONE.

    Events are in order of start. A stretch of unknown events on a stream ends where a step's known work begins, mostly: it is
    laid on the known work of the stream so that what follows fits, then compared backwards. Where names differ, as steps do
    in places, the nearest place is sought at which they agree again.
    """
    aligned = np.full(len(name), NONE, dtype=np.int32)
    if known.all():
        return aligned
    trials = _Trials()
    order = np.argsort(stream, kind="stable").astype(np.int32)
    lost_streams = np.unique(stream[~known])
    bounds = np.searchsorted(stream[order], lost_streams), np.searchsorted(stream[order], lost_streams, side="right")
    for low, high in zip(*(bound.tolist() for bound in bounds), strict=True):
        events = order[low:high]
        here = known[events]
        of_stream = events[here]
        if len(of_stream) < SHORTEST:
            continue
        last = np.append(step[of_stream[1:]] != step[of_stream[:-1]], True)
        before = np.cumsum(here)  # of each event, how many known ones there are up to it
        edges = np.flatnonzero(np.diff(np.concatenate(([True], here, [True])).astype(np.int8)))
        for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            if not trials.left:
                break
            lost, after = events[begin:end], events[end : end + FOLLOWING]
            after = after[known[after]]
            at = int(before[begin])
            near = slice(max(0, min(at, len(of_stream) - REFERENCE)), at + REFERENCE)
            reference = _Known(name[of_stream[near]], of_stream[near], last[near])
            border = len(after) == 0 or at == 0 or bool(last[at - 1])
            aligned[lost] = _lay(name[lost], name[after], border, reference, trials)
    return aligned


class _Trials:
    """How often a place may still be sought."""

    def __init__(self) -> None:
        self.left = TRIALS

    def take(self) -> bool:
        """Whether there is one left; it is taken."""
        self.left -= self.left > 0
        return self.left > 0


def _lay(lost: Ids, following: Ids, border: bool, known: _Known, trials: _Trials) -> Ids:
    """For each name in `lost` one of the `known` events or NONE. `border`: a step ends with the last of `lost`."""
    aligned = np.full(len(lost), NONE, dtype=np.int32)
    left = len(lost)
    while left and trials.take():
        end = _best_end(lost[:left], following, border and left == len(lost), known)
        # One that fits nowhere is passed over: the one before it may fit.
        left = left - 1 if end == NONE else _match_back(lost, left, end, known, aligned, trials)
        following = lost[left : left + FOLLOWING]
    return aligned


def _best_end(lost: Ids, following: Ids, border: bool, known: _Known) -> int:
    """Behind which of the known events the last of `lost` fits best, by what comes before and what follows; or NONE."""
    at = np.flatnonzero(known.names == lost[-1])[:PLACES]
    if not len(at):
        return NONE
    ahead = _run(known.names, at + 1, following, 1)
    behind = 1 + _run(known.names, at - 1, lost[-2 : -2 - BEHIND : -1], -1)
    # A step's end decides where all names are the same, as collectives' are.
    score = 2 * behind + 8 * ahead + (known.last[at] & border)
    fits = behind + ahead >= min(SHORTEST, len(lost))
    if not fits.any():
        return NONE
    return int(at[np.argmax(np.where(fits, score, NONE))]) + 1


def _run(names: Ids, at: Ints, wanted: Ids, direction: int) -> Ints:
    """For each place how many of `wanted` stand there, one after the other in `direction`."""
    length = np.zeros(len(at), dtype=np.int64)
    going = np.arange(len(at))
    for step, name in enumerate(wanted.tolist()):
        place = at[going] + direction * step
        inside = (place >= 0) & (place < len(names))
        going, place = going[inside], place[inside]
        going = going[names[place] == name]
        if not len(going):
            break
        length[going] += 1
    return length


def _match_back(lost: Ids, left: int, end: int, known: _Known, aligned: Ids, trials: _Trials) -> int:
    """Matches `lost[:left]` with the known up to `end` from the back, and returns how many of `lost` are left to match."""
    names = known.names
    while left and end:
        count = min(left, end)
        differ = np.flatnonzero(lost[left - count : left] != names[end - count : end])
        equal = count - (int(differ[-1]) + 1 if len(differ) else 0)
        aligned[left - equal : left] = known.events[end - equal : end]
        left, end = left - equal, end - equal
        if not left or not end or not trials.take():
            break
        skip = _agree_again(lost, left, names, end)
        if skip is None:
            break
        left, end = left - skip[0], end - skip[1]
    return left


def _agree_again(lost: Ids, left: int, names: Ids, end: int) -> tuple[int, int] | None:
    """How many to pass over in both until the names agree again, the fewest in all; None if they do not soon."""
    for apart in range(1, APART):
        for in_lost in range(max(0, apart - end), min(apart, left) + 1):
            a, b = left - in_lost, end - (apart - in_lost)
            rest = min(AGAIN, a)
            if rest and b >= rest and np.array_equal(lost[a - rest : a], names[b - rest : b]):
                return in_lost, apart - in_lost
    return None
