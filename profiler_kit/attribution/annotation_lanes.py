"""Lanes of an annotated trace: phases, modules, idle causes and kernel families, on the clocks of device and host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profiler_kit.attribution import annotation_counters
from profiler_kit.attribution.busy_time import BusyPieces, busy_pieces, event_devices
from profiler_kit.attribution.device_time import Gaps, device_time
from profiler_kit.attribution.host_only import host_timeline
from profiler_kit.attribution.host_time import innermost
from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.totals import messages
from profiler_kit.records.counts import TRACE_PHASES
from profiler_kit.records.families import family_name
from profiler_kit.records.lanes import COLLECTIVES, DEVICE, PHASES, ROOT_NAME, UNATTRIBUTED, Annotation, CounterTrack
from profiler_kit.records.runs import Span, SpanKind
from profiler_kit.records.traces import IDLE_CAUSES
from profiler_kit.traces.kernels import classify
from profiler_kit.traces.table import NONE, Ids, Ints, Mask

MAX_MODULE_LANES: Final = 6  # levels of modules with a lane; deeper modules are part of their ancestor's box
MAX_MERGED_GAP_NS: Final = 100_000  # shorter gaps are merged into a box; a longer gap is worth showing
MAX_HOST_THREADS: Final = 4  # with a lane of phases: the training loop's, autograd's, and two more


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Work:
    """Intervals of one device or thread, in order and without overlap. The columns are those of `Device`."""

    start: Ints
    end: Ints
    phase: Ids
    module: Ids
    step: Ids


def build_annotation(attribution: Attribution) -> Annotation:
    """Return the lanes and counters of a trace: of each device's work, and of the host threads that ran operators.

    Each busy instant of computation appears once, for the work that started first, as in the summary. Communication
    has its own lane, which shows each collective in full, including the time in which other work runs. Adjacent
    intervals of one phase (module, family) and step are merged into one box, with gaps of up to `MAX_MERGED_GAP_NS`
    between them. The idle lane shows those gaps too.
    """
    modules = _Modules(attribution)
    spans = [*_host_lanes(attribution, modules)]
    counters: list[CounterTrack] = []
    # Idle time of all devices together, as in the summary.
    idle_gaps = device_time(attribution).gaps if len(attribution.device.rows) else None
    device, names = event_devices(attribution)
    is_collective = attribution.device.collective
    for number in np.unique(device).tolist():
        title = DEVICE if len(names) == 1 else f"{DEVICE} {names[number]}"
        on_device = device == number
        pieces = busy_pieces(attribution, on_device & ~is_collective)
        work = _work(attribution, pieces)
        spans += _phase_lane(title + PHASES, work)
        spans += modules.lanes(title, work)
        spans += _family_lane(
            f"{title}: kernels",
            work,
            attribution.table.name[attribution.device.rows[pieces.position]],
            attribution.table.names,
        )
        spans += _communication_lane(
            title + COLLECTIVES, attribution, busy_pieces(attribution, on_device & is_collective)
        )
        spans += (
            _idle_lane(f"{title}: idle", idle_gaps, on_device, attribution.device.step) if idle_gaps is not None else ()
        )
        tracks = (
            annotation_counters.running_events(attribution, on_device),
            annotation_counters.queue_depth(attribution, on_device),
        )
        prefix = "" if len(names) == 1 else f"{title}: "
        counters += [CounterTrack(name=prefix + c.name, points=c.points) for c in tracks if c is not None]
    counters += annotation_counters.memory_tracks(attribution)
    return Annotation(spans=tuple(spans), counters=tuple(counters))


def _work(attribution: Attribution, pieces: BusyPieces) -> _Work:
    """Return the device work in `pieces`."""
    device, position = attribution.device, pieces.position
    return _Work(
        start=pieces.start,
        end=pieces.end,
        phase=device.phase[position].astype(np.int32),
        module=device.module[position],
        step=device.step[position],
    )


def _host_lanes(attribution: Attribution, modules: _Modules) -> Iterator[Span]:
    """Yield the phases on the host, by thread; in a trace without device work, the modules too."""
    table, host = attribution.table, attribution.host
    has_phase = host.phase != NONE
    if not has_phase.any():
        return
    thread = table.thread[host.rows]
    events = np.bincount(thread[has_phase], minlength=1)
    busiest = [n for n in np.argsort(-events, kind="stable")[:MAX_HOST_THREADS].tolist() if events[n]]
    # The training loop's thread starts first.
    for number in sorted(busiest, key=lambda n: host.start_ns[has_phase & (thread == n)].min()):
        work = _innermost(attribution, np.flatnonzero(thread == number).astype(np.int32))
        name = table.threads[number]
        title = f"host thread {name.thread}"
        yield from _phase_lane(title + PHASES, work, unattributed=False)
        if not len(attribution.device.rows):
            yield from modules.lanes(title, work)
    if not len(attribution.device.rows):
        yield from _operator_lane(attribution)


def _operator_lane(attribution: Attribution) -> Iterator[Span]:
    """Yield families of operators. Each instant counts once, as in the summary."""
    host, timeline = attribution.host, host_timeline(attribution)
    nonempty = timeline.piece > 0
    entries = timeline.entry[nonempty]
    position = timeline.work.position[entries]
    work = _Work(
        start=(timeline.end - timeline.piece)[nonempty],
        end=timeline.end[nonempty],
        phase=timeline.work.phase[entries].astype(np.int32),
        module=timeline.work.module[entries],
        step=host.step[position],
    )
    operator = host.operator[position]
    yield from _family_lane(
        "host operators", work, attribution.table.name[host.rows[operator]], attribution.table.names
    )


def _innermost(attribution: Attribution, positions: Ids) -> _Work:
    """Return the time of one thread as intervals, each of the innermost event that covers it."""
    host = attribution.host
    start, end, event = innermost(host.start_ns[positions], host.end_ns[positions], positions, host.parent[positions])
    return _Work(
        start=start, end=end, phase=host.phase[event].astype(np.int32), module=host.module[event], step=host.step[event]
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
        for depth in range(1, min(MAX_MODULE_LANES, max(map(len, paths), default=0)) + 1):
            prefixes: dict[tuple[str, ...], int] = {}
            labels = [
                prefixes.setdefault(path[:depth], len(prefixes)) if len(path) >= depth else NONE for path in paths
            ]
            # Boxes nest like calls, so the last part of a path is enough.
            self._names.append(tuple(prefix[-1] for prefix in prefixes))
            self._labels.append(np.array([*labels, NONE], dtype=np.int32))  # index NONE (-1) selects the last entry

    def lanes(self, title: str, work: _Work) -> Iterator[Span]:
        """Yield a lane per depth, outer modules first. A box has the color of its phase."""
        phases = (*TRACE_PHASES, UNATTRIBUTED)
        for depth, (names, labels) in enumerate(zip(self._names, self._labels, strict=True), start=1):
            module_label = labels[work.module]
            label = np.where(module_label == NONE, NONE, module_label * len(phases) + work.phase % len(phases))
            labels_and_phases = [(name, phase) for name in names for phase in phases]
            lane = f"{title}: module" if depth == 1 else f"{title}: module, level {depth}"
            yield from _lane(
                lane, work, label, [name for name, _ in labels_and_phases], [phase for _, phase in labels_and_phases]
            )


def _idle_lane(lane: str, gaps: Gaps, device_mask: Mask, steps: Ids) -> Iterator[Span]:
    """Yield each gap under its largest cause. It belongs to the step (`steps`, by device event) of the work that ends it."""
    on_device = device_mask[gaps.ended_by]
    cause = gaps.ns.argmax(axis=0)[on_device]
    start, end = gaps.start[on_device], gaps.end[on_device]
    ended_by = gaps.ended_by[on_device]
    step = np.where(ended_by == NONE, NONE, steps[ended_by])
    for begin, stop, number, index in zip(start.tolist(), end.tolist(), cause.tolist(), step.tolist(), strict=True):
        name = IDLE_CAUSES[number]
        yield Span(lane=lane, name=name, start_ns=begin, end_ns=stop, family=name, kind="idle", step=_step(index))


def _communication_lane(lane: str, attribution: Attribution, pieces: BusyPieces) -> Iterator[Span]:
    """Yield collectives by kind, one box each."""
    device, position = attribution.device, pieces.position
    kinds = messages(attribution, device.rows[position], device.launch[position]).kinds
    steps = device.step[position].tolist()
    for start, end, kind, step in zip(pieces.start.tolist(), pieces.end.tolist(), kinds, steps, strict=True):
        yield Span(lane=lane, name=kind, start_ns=start, end_ns=end, family="communication", step=_step(step))


def _step(index: int) -> int | None:
    return index if index != NONE else None


def _family_lane(lane: str, work: _Work, name: Ids, names: Sequence[str]) -> Iterator[Span]:
    families: dict[str, int] = {}
    used = np.unique(name)
    of_name = np.full(len(names), NONE, dtype=np.int32)
    of_name[used] = [families.setdefault(classify(names[i]).family, len(families)) for i in used.tolist()]
    yield from _lane(lane, work, of_name[name], [family_name(family) for family in families], list(families), "work")


def _lane(
    lane: str,
    work: _Work,
    label: NDArray[np.integer],
    names: Sequence[str],
    families: Sequence[str],
    kind: SpanKind = "phase",
) -> Iterator[Span]:
    """Yield a span per run of neighbors with equal label and step and no long gap between them.

    Label NONE is not drawn.
    """
    if not len(label):
        return
    starts_box = np.diff(label, prepend=label[0] - 1) != 0
    starts_box |= np.diff(work.step, prepend=work.step[0]) != 0
    starts_box[1:] |= work.start[1:] - work.end[:-1] > MAX_MERGED_GAP_NS
    first = np.flatnonzero(starts_box)
    last = np.append(first[1:], len(label)) - 1
    columns = (label[first], work.start[first], work.end[last], work.step[first])
    for number, start, end, step in zip(*(column.tolist() for column in columns), strict=True):
        if number != NONE:
            yield Span(
                lane=lane, name=names[number], start_ns=start, end_ns=end, family=families[number], kind=kind, step=_step(step)
            )  # fmt: skip
