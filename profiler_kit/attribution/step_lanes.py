"""The lanes of one step for a chart: those of an annotated trace, and the events of each thread and stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

import numpy as np

from profiler_kit.attribution.annotation_lanes import build_annotation
from profiler_kit.attribution.busy_time import event_devices
from profiler_kit.attribution.device_time import device_time
from profiler_kit.attribution.events import outermost_enclosing
from profiler_kit.attribution.host_activity import user_calls
from profiler_kit.attribution.result import Attribution, phase_name
from profiler_kit.records.lanes import DEVICE, ROOT_NAME, UNATTRIBUTED, EventSpan, HostCall, StepTimeline
from profiler_kit.records.runs import Span, SpanKind
from profiler_kit.traces.kernels import classify
from profiler_kit.traces.names import NODE_PREFIX
from profiler_kit.traces.table import NONE, Ids, Kind

MAX_TIMELINE_SPANS: Final = 12_000  # more boxes make a page slow and large
MAX_CALLS: Final = 2_000  # of the tree of calls
MAX_PYTHON_LANES: Final = 4  # levels of the user's functions; deeper ones are part of their caller's box


def middle_step(attribution: Attribution) -> StepTimeline | None:
    """Return the lanes of the middle step of a trace. Those of steps of which nothing runs at this time are not made."""
    steps, device = attribution.steps, attribution.device
    if steps:
        index = (len(steps) - 1) // 2
        start, end = steps[index].start_ns, steps[index].end_ns
        end = int(device.end_ns[device.step == index].max(initial=end))
        work = device.step[(device.start_ns < end) & (device.end_ns > start) & (device.step != NONE)]
        first, last = max(int(work.min(initial=index)) - 1, 0), min(int(work.max(initial=index)) + 1, len(steps) - 1)
        attribution = attribution.between(steps[first].start_ns, max(end, steps[last].end_ns))
    return step_timeline(attribution, build_annotation(attribution).spans)


def step_timeline(attribution: Attribution, spans: Sequence[Span]) -> StepTimeline | None:
    """Return the lanes of the middle step of a trace, of which `spans` are the lanes; None if none of them is in it.

    The last step may lack the device's work, and the first may start slowly. A trace without steps is one step.
    """
    if not spans:
        return None
    number, index, steps = None, None, attribution.steps
    start, end = min(span.start_ns for span in spans), max(span.end_ns for span in spans)
    if steps:
        index = (len(steps) - 1) // 2
        number, start, end = steps[index].number, steps[index].start_ns, steps[index].end_ns
    host_end, device_ns = end, None
    if index is not None and (is_work := attribution.device.step == index).any():
        device_ns = int(attribution.device.start_ns[is_work].min()), int(attribution.device.end_ns[is_work].max())
        end = max(end, device_ns[1])
    events = _Events(attribution, start, end)
    inside = [span for span in spans if span.start_ns < end and span.end_ns > start]
    inside = [*events.replacing(inside), *events.lanes()]
    shown = sorted(inside, key=lambda span: span.start_ns - span.end_ns)[:MAX_TIMELINE_SPANS]
    if not shown:
        return None
    kept = {id(span) for span in shown}
    return StepTimeline(
        step=number,
        index=index,
        start_ns=start,
        end_ns=end,
        host_end_ns=host_end,
        device_ns=device_ns,
        spans=tuple(_grouped([span for span in inside if id(span) in kept], _autograd_threads(attribution))),
        omitted=len(inside) - len(shown),
        calls=events.calls(),
    )


def _grouped(spans: Sequence[Span], titles: Mapping[str, str]) -> list[Span]:
    """Return `spans` with the lanes of each thread and device beside each other, and with the `titles` of some of these."""
    groups: dict[str, list[Span]] = {}
    for span in spans:
        title, separator, lane = span.lane.partition(":")
        if title in titles:
            span = replace(span, lane=titles[title] + separator + lane)
        groups.setdefault(title, []).append(span)
    return [span for group in groups.values() for span in group]


def _autograd_threads(attribution: Attribution) -> dict[str, str]:
    """Return the titles of the threads that run backward and not the loop."""
    threads = np.unique(attribution.host.thread[attribution.nodes]).tolist()
    names = [attribution.table.threads[i].thread for i in threads if i != attribution.main_thread]
    return {f"host thread {name}": f"autograd thread {name}" for name in names}


class _CallTree:
    """Calls by thread and place, added in the order of their starts, callers before what they call."""

    def __init__(self) -> None:
        self._below: dict[int, dict[str, int]] = {}  # the nodes below each node, -1 for the threads, by name
        self._names: list[str] = []
        self._ns: list[int] = []
        self._open: dict[
            int, list[tuple[int, int]]
        ] = {}  # of each thread, the nodes that have not ended, and their ends

    def add(self, thread: str, name: str, start_ns: int, end_ns: int) -> None:
        """Add a call of `name`."""
        root = self._node(-1, thread)
        around = self._open.setdefault(root, [])
        while around and around[-1][1] <= start_ns:
            around.pop()
        if not around:
            self._ns[root] += end_ns - start_ns
        node = self._node(around[-1][0] if around else root, name)
        self._ns[node] += end_ns - start_ns
        around.append((node, end_ns))

    def _node(self, parent: int, name: str) -> int:
        siblings = self._below.setdefault(parent, {})
        if name not in siblings:
            siblings[name] = len(self._names)
            self._names.append(name)
            self._ns.append(0)
        return siblings[name]

    def calls(self) -> tuple[HostCall, ...]:
        """Return the calls in pre-order, those that take longest first, without the shortest of too many."""
        least = sorted(self._ns, reverse=True)[: MAX_CALLS + 1][MAX_CALLS:] or [0]
        ordered: list[HostCall] = []
        pending = [(root, -1) for root in self._longest_last(-1)]
        while pending:
            node, parent = pending.pop()
            if self._ns[node] <= least[0]:
                continue
            ordered.append(HostCall(name=self._names[node], parent=parent, ns=self._ns[node]))
            pending += [(child, len(ordered) - 1) for child in self._longest_last(node)]
        return tuple(ordered)

    def _longest_last(self, node: int) -> list[int]:
        return sorted(self._below.get(node, {}).values(), key=self._ns.__getitem__)


class _Events:
    """The events of a trace between two times, as lanes."""

    def __init__(self, attribution: Attribution, start_ns: int, end_ns: int) -> None:
        self._attribution = attribution
        host, device = attribution.host, attribution.device
        self._host = np.flatnonzero((host.start_ns < end_ns) & (host.end_ns > start_ns)).astype(np.int32)
        self._device = np.flatnonzero((device.start_ns < end_ns) & (device.end_ns > start_ns)).astype(np.int32)
        self._start_ns, self._end_ns = start_ns, end_ns
        self._sources = self._sources_of_host()

    def lanes(self) -> Iterator[EventSpan]:
        """Yield the spans of threads and streams."""
        yield from self._thread_lanes()
        yield from self._stream_lanes()

    def calls(self) -> tuple[HostCall, ...]:
        """Return the user's functions, operators and runtime calls as trees, calls of one name at one place together."""
        host = self._attribution.host
        tree, titles = _CallTree(), _autograd_threads(self._attribution)
        for position in self._called().tolist():
            thread = f"host thread {self._attribution.table.threads[int(host.thread[position])].thread}"
            start = max(int(host.start_ns[position]), self._start_ns)
            end = min(int(host.end_ns[position]), self._end_ns)
            tree.add(titles.get(thread, thread), self._name(position).removeprefix(NODE_PREFIX), start, end)
        return tree.calls()

    def _called(self) -> Ids:
        """Return the events of the host that are the program's: no libraries' Python functions, and no marks.

        A thread whose calls all last longer than the step only waits, such as that of a progress bar.
        """
        kind = self._attribution.table.kind[self._attribution.host.rows[self._host]]
        is_user = user_calls(self._attribution, self._host) == self._host
        is_called = (kind == Kind.OPERATOR) | (kind == Kind.RUNTIME) | ((kind == Kind.PYTHON) & is_user)
        called: Ids = self._host[is_called]
        host = self._attribution.host
        is_inside = (host.start_ns[called] > self._start_ns) | (host.end_ns[called] < self._end_ns)
        working: Ids = called[np.isin(host.thread[called], host.thread[called[is_inside]])]
        return working

    def replacing(self, spans: Iterable[Span]) -> Iterator[Span]:
        """Yield `spans` without merged kernels, which the streams have one by one; idle ones have the work that ends them."""
        for span in spans:
            if span.kind == "idle":
                yield self._with_end(span)
            elif span.kind != "work" or not len(self._device):
                yield span

    def _sources_of_host(self) -> dict[int, str]:
        """Return the user's line of each launch and outermost operator. Work of backward has that of its forward operator."""
        attribution, host = self._attribution, self._attribution.host
        launches = attribution.device.launch[self._device]
        at = np.unique(np.concatenate([launches[launches != NONE], self._host]))
        forward = attribution.forward_of(host.node[at])
        calls = user_calls(attribution, np.where(forward != NONE, forward, at).astype(np.int32))
        return {
            position: self._name(call)
            for position, call in zip(at.tolist(), calls.tolist(), strict=True)
            if call != NONE
        }

    def _name(self, position: int) -> str:
        table = self._attribution.table
        return table.names[int(table.name[self._attribution.host.rows[position]])]

    def _thread_lanes(self) -> Iterator[EventSpan]:
        """Yield the user's functions, the outermost operators and the calls of the device's runtime, by thread."""
        table, host = self._attribution.table, self._attribution.host
        kind = table.kind[host.rows[self._host]]
        outermost = outermost_enclosing(host.parent, host.operator)[self._host]
        is_call = (kind == Kind.PYTHON) & (user_calls(self._attribution, self._host) == self._host)
        # Functions that enclose all that is shown, such as main(), tell nothing.
        is_call &= (host.start_ns[self._host] > self._start_ns) | (host.end_ns[self._host] < self._end_ns)
        calls = self._host[is_call]
        for position, depth in self._depths(calls):
            level = "Python" if depth == 1 else f"Python, level {depth}"
            yield self._host_span(position, level)
        for position in self._host[outermost == self._host].tolist():
            yield self._host_span(position, "operators")
        for position in self._host[kind == Kind.RUNTIME].tolist():
            yield self._host_span(position, "launches")

    def _depths(self, calls: Ids) -> Iterator[tuple[int, int]]:
        """Yield each of `calls`, in order of their starts, and the number of them that it is inside of, with itself."""
        host = self._attribution.host
        ends: dict[int, list[int]] = {}
        for position in calls.tolist():
            around = ends.setdefault(int(host.thread[position]), [])
            while around and around[-1] <= host.start_ns[position]:
                around.pop()
            around.append(int(host.end_ns[position]))
            if len(around) <= MAX_PYTHON_LANES:
                yield position, len(around)

    def _host_span(self, position: int, lane: str) -> EventSpan:
        attribution, host = self._attribution, self._attribution.host
        operator, phase = int(host.operator[position]), phase_name(int(host.phase[position]))
        thread = attribution.table.threads[int(host.thread[position])].thread
        return EventSpan(
            lane=f"host thread {thread}: {lane}",
            name=self._name(position).removeprefix(NODE_PREFIX),
            start_ns=int(host.start_ns[position]),
            end_ns=int(host.end_ns[position]),
            family=phase or UNATTRIBUTED,
            step=_step(int(host.step[position])),
            operator=self._name(operator) if operator not in (NONE, position) else "",
            module=self._module(int(host.module[position])),
            source=self._sources.get(position, ""),
        )

    def _module(self, index: int) -> str:
        return self._attribution.modules[index].path or ROOT_NAME if index != NONE else ""

    def _stream_lanes(self) -> Iterator[EventSpan]:
        """Yield the work of each stream: kernels, copies, fills and collectives."""
        table, device = self._attribution.table, self._attribution.device
        numbers, names = event_devices(self._attribution)
        streams = [stream.stream for stream in table.streams]
        of_event = table.stream[device.rows]
        for position in sorted(self._device.tolist(), key=lambda i: (len(streams[of_event[i]]), streams[of_event[i]])):
            title = DEVICE if len(names) == 1 else f"{DEVICE} {names[numbers[position]]}"
            name, stream = table.names[int(table.name[device.rows[position]])], streams[of_event[position]]
            family = "communication" if device.collective[position] else classify(name).family
            yield self._device_span(
                position,
                lane=f"{title}: stream {stream}",
                name=name,
                start_ns=int(device.start_ns[position]),
                end_ns=int(device.end_ns[position]),
                family=family,
                kind="phase" if device.collective[position] else "work",
            )

    def _device_span(
        self, position: int, *, lane: str, name: str, start_ns: int, end_ns: int, family: str, kind: SpanKind
    ) -> EventSpan:
        host, device = self._attribution.host, self._attribution.device
        launch, operator = int(device.launch[position]), int(device.operator[position])
        return EventSpan(
            lane=lane,
            name=name,
            start_ns=start_ns,
            end_ns=end_ns,
            family=family,
            kind=kind,
            step=_step(int(device.step[position])),
            operator=self._name(operator) if operator != NONE else "",
            module=self._module(int(device.module[position])),
            source=self._sources.get(launch, ""),
            launch=self._name(launch) if launch != NONE else "",
            launch_ns=int(host.start_ns[launch]) if launch != NONE else None,
        )

    def _with_end(self, span: Span) -> Span:
        """Return an idle interval with the work that ends it, for whose launch the device waited."""
        position = self._ended_by.get((span.start_ns, span.end_ns), NONE)
        if position == NONE:
            return span
        fields = {name: getattr(span, name) for name in ("lane", "name", "start_ns", "end_ns", "kind")}
        return replace(self._device_span(position, family=span.family or span.name, **fields), step=span.step)

    @cached_property
    def _ended_by(self) -> dict[tuple[int, int], int]:
        """The device event that ends each idle interval."""
        gaps = device_time(self._attribution).gaps
        return dict(zip(zip(gaps.start.tolist(), gaps.end.tolist(), strict=True), gaps.ended_by.tolist(), strict=True))


def _step(index: int) -> int | None:
    return index if index != NONE else None
