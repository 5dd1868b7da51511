"""Lanes of an annotated trace: phases, modules, idle causes and kernel families, on the device's clock and on the host's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profiler_kit.attribution import quantities
from profiler_kit.attribution.busy_time import BusyPieces, busy_pieces, event_devices
from profiler_kit.attribution.device_time import Gaps, device_time
from profiler_kit.attribution.host_only import host_line
from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.totals import messages
from profiler_kit.records.families import family_words
from profiler_kit.records.lanes import ROOT_NAME, UNATTRIBUTED, Annotation, CounterTrack
from profiler_kit.records.runs import Span
from profiler_kit.records.traces import IDLE_CAUSES, TRACE_PHASES
from profiler_kit.traces.kernels import classify
from profiler_kit.traces.table import NONE, Ids, Ints, Mask

MODULE_LANES: Final = 6  # levels of modules that have a lane of their own; what lies deeper stands in its parent's box
LONGEST_GAP_NS: Final = 100_000  # inside a box; a longer gap is one that a reader should see
HOST_THREADS: Final = 4  # with a lane of phases: the training loop's, autograd's, and room for two more


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Work:
    """Stretches of one device (or thread) in order, none overlapping; columns as in `Device`."""

    start: Ints
    end: Ints
    phase: Ids
    module: Ids
    step: Ids


def annotation(attribution: Attribution) -> Annotation:
    """Lanes and counters of the trace in `attribution`: of each device's work, and of the host's threads that ran operators.

    Each busy instant of computation stands once, for the work that started first, as the summary charges it; communication has a
    lane of its own, where collectives stand whole, beside the work that they run beside. Neighbours of the same phase (module,
    family) and step are one box, gaps of up to `LONGEST_GAP_NS` between them included; the idle lane shows those too.
    """
    modules = _Modules(attribution)
    spans = [*_host_lanes(attribution, modules)]
    counters: list[CounterTrack] = []
    notes: list[str] = []
    # Of all devices together, as the summary counts them.
    idle = device_time(attribution).gaps if len(attribution.device.rows) else None
    device, names = event_devices(attribution)
    communicates = attribution.device.collective
    for number in np.unique(device).tolist():
        title = "device" if len(names) == 1 else f"device {names[number]}"
        here = device == number
        pieces = busy_pieces(attribution, here & ~communicates)
        work = _work(attribution, pieces)
        spans += _phase_lane(f"{title}: phase", work)
        spans += modules.lanes(title, work)
        spans += _family_lane(
            f"{title}: kernels",
            work,
            attribution.table.name[attribution.device.rows[pieces.position]],
            attribution.table.names,
        )
        spans += _communication_lane(
            f"{title}: communication", attribution, busy_pieces(attribution, here & communicates)
        )
        spans += _idle_lane(f"{title}: idle", idle, here) if idle is not None else ()
        rate, note = quantities.rate(attribution, here)
        found = (quantities.running(attribution, here), quantities.waiting(attribution, here), rate)
        prefix = "" if len(names) == 1 else f"{title}: "
        counters += [CounterTrack(name=prefix + c.name, points=c.points) for c in found if c is not None]
        notes += [note] if note is not None else []
    counters += quantities.memory(attribution)
    return Annotation(spans=tuple(spans), counters=tuple(counters), notes=tuple(dict.fromkeys(notes)))


def _work(attribution: Attribution, pieces: BusyPieces) -> _Work:
    """The device's work in `pieces`."""
    device, of = attribution.device, pieces.position
    return _Work(
        start=pieces.start,
        end=pieces.end,
        phase=device.phase[of].astype(np.int32),
        module=device.module[of],
        step=device.step[of],
    )


def _host_lanes(attribution: Attribution, modules: _Modules) -> Iterator[Span]:
    """Phases on the host, thread by thread; modules too where there is no device to show them on."""
    table, host = attribution.table, attribution.host
    phased = host.phase != NONE
    if not phased.any():
        return
    thread = table.thread[host.rows]
    events = np.bincount(thread[phased], minlength=1)
    for number in np.argsort(-events, kind="stable")[:HOST_THREADS].tolist():
        if not events[number]:
            continue
        work = _innermost(attribution, np.flatnonzero(thread == number).astype(np.int32))
        name = table.threads[number]
        title = f"host thread {name.thread}"
        yield from _phase_lane(f"{title}: phase", work, unattributed=False)
        if not len(attribution.device.rows):
            yield from modules.lanes(title, work)
    if not len(attribution.device.rows):
        yield from _operator_lane(attribution)


def _operator_lane(attribution: Attribution) -> Iterator[Span]:
    """Families of operators, each instant under the one that the summary charges it to."""
    host, line = attribution.host, host_line(attribution)
    some = line.piece > 0
    entry = line.owner[some]
    position = line.work.position[entry]
    work = _Work(
        start=(line.end - line.piece)[some],
        end=line.end[some],
        phase=line.work.phase[entry].astype(np.int32),
        module=line.work.module[entry],
        step=host.step[position],
    )
    operator = host.operator[position]
    yield from _family_lane(
        "host operators", work, attribution.table.name[host.rows[operator]], attribution.table.names
    )


def _innermost(attribution: Attribution, positions: Ids) -> _Work:
    """One thread's time as stretches, each of the innermost event that covers it."""
    table, host = attribution.table, attribution.host
    rows = host.rows[positions]
    start, end = table.start_ns[rows], table.end_ns[rows]
    count = len(positions)
    # At its start an event takes over, at its end its parent does; of several ends at once the outermost's is the last.
    at = np.concatenate((start, end))
    taker = np.concatenate((positions, host.parent[positions]))
    rank = np.concatenate((np.arange(count) + count, count - 1 - np.arange(count)))
    order = np.lexsort((rank, at))
    at, taker = at[order], taker[order]
    stop = np.append(at[1:], at[-1:])
    used = (taker != NONE) & (stop > at)
    taker = taker[used]
    return _Work(
        start=at[used],
        end=stop[used],
        phase=host.phase[taker].astype(np.int32),
        module=host.module[taker],
        step=host.step[taker],
    )


def _phase_lane(lane: str, work: _Work, *, unattributed: bool = True) -> Iterator[Span]:
    names = (*TRACE_PHASES, UNATTRIBUTED) if unattributed else TRACE_PHASES
    label = np.where(work.phase == NONE, len(TRACE_PHASES) if unattributed else NONE, work.phase)
    yield from _lane(lane, work, label, names, names)


class _Modules:
    """The module paths of a trace, cut at each depth."""

    def __init__(self, attribution: Attribution) -> None:
        paths = [tuple(module.path.split(".")) if module.path else (ROOT_NAME,) for module in attribution.modules]
        self._names: list[tuple[str, ...]] = []
        self._labels: list[Ids] = []
        for depth in range(1, min(MODULE_LANES, max(map(len, paths), default=0)) + 1):
            prefixes: dict[tuple[str, ...], int] = {}
            labels = [
                prefixes.setdefault(path[:depth], len(prefixes)) if len(path) >= depth else NONE for path in paths
            ]
            # Boxes lie below each other like calls: a name's last part says what is not said above it.
            self._names.append(tuple(prefix[-1] for prefix in prefixes))
            self._labels.append(np.array([*labels, NONE], dtype=np.int32))  # NONE is the last one's place

    def lanes(self, title: str, work: _Work) -> Iterator[Span]:
        """A lane per depth, outer modules first; a box has its phase's colour."""
        phases = (*TRACE_PHASES, UNATTRIBUTED)
        for depth, (names, labels) in enumerate(zip(self._names, self._labels, strict=True), start=1):
            of_module = labels[work.module]
            label = np.where(of_module == NONE, NONE, of_module * len(phases) + work.phase % len(phases))
            both = [(name, phase) for name in names for phase in phases]
            lane = f"{title}: module" if depth == 1 else f"{title}: module, level {depth}"
            yield from _lane(lane, work, label, [name for name, _ in both], [phase for _, phase in both])


def _idle_lane(lane: str, idle: Gaps, here: Mask) -> Iterator[Span]:
    """Each gap under the cause of most of it."""
    mine = here[idle.ended_by]
    cause = idle.ns.argmax(axis=0)[mine]
    start, end = idle.start[mine], idle.end[mine]
    for begin, stop, number in zip(start.tolist(), end.tolist(), cause.tolist(), strict=True):
        yield Span(lane=lane, name=IDLE_CAUSES[number], start_ns=begin, end_ns=stop, family=IDLE_CAUSES[number])


def _communication_lane(lane: str, attribution: Attribution, pieces: BusyPieces) -> Iterator[Span]:
    """Collectives by kind, each a box of its own."""
    device, of = attribution.device, pieces.position
    kinds = messages(attribution, device.rows[of], device.launch[of]).kinds
    for start, end, kind in zip(pieces.start.tolist(), pieces.end.tolist(), kinds, strict=True):
        yield Span(lane=lane, name=kind, start_ns=start, end_ns=end, family="communication")


def _family_lane(lane: str, work: _Work, name: Ids, names: Sequence[str]) -> Iterator[Span]:
    families: dict[str, int] = {}
    used = np.unique(name)
    of_name = np.full(len(names), NONE, dtype=np.int32)
    of_name[used] = [families.setdefault(classify(names[i]).family, len(families)) for i in used.tolist()]
    yield from _lane(lane, work, of_name[name], [family_words(family) for family in families], list(families))


def _lane(
    lane: str, work: _Work, label: NDArray[np.integer], names: Sequence[str], families: Sequence[str]
) -> Iterator[Span]:
    """A span per run of neighbours with the same label and step and no long gap between them; NONE is no label."""
    if not len(label):
        return
    parted = np.diff(label, prepend=label[0] - 1) != 0
    parted |= np.diff(work.step, prepend=work.step[0]) != 0
    parted[1:] |= work.start[1:] - work.end[:-1] > LONGEST_GAP_NS
    new = np.flatnonzero(parted)
    last = np.append(new[1:], len(label)) - 1
    runs = zip(label[new].tolist(), work.start[new].tolist(), work.end[last].tolist(), strict=True)
    for number, start, end in runs:
        if number != NONE:
            yield Span(lane=lane, name=names[number], start_ns=start, end_ns=end, family=families[number])
