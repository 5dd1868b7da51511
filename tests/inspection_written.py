"""Traces written by hand with their attribution, times in ns; and the sums that hold for any summary."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from profiler_kit.attribution.result import PHASE_NUMBERS, Attribution, Device, Evidence, Host, Module, Step
from profiler_kit.records.counts import TRACE_PHASES
from profiler_kit.records.traces import TraceSummary
from profiler_kit.traces.table import NONE, Kind, Sparse, Stream, Table, Thread


@dataclass
class Event:
    name: str
    start: int
    end: int
    kind: Kind
    lane: int  # a thread or a stream
    phase: str | None = None
    module: int = NONE
    launch: Event | None = None
    more: dict[str, str | int] = field(default_factory=dict)
    evidence: Evidence = Evidence.NONE


class Written:
    """A trace in the making. What is not given is inherited from the enclosing event, or for work from its launch."""

    def __init__(self) -> None:
        self.hosts: list[Event] = []
        self.works: list[Event] = []
        self.marks: list[Step] = []
        self.modules: tuple[Module, ...] = ()
        self.streams: tuple[Stream, ...] = ()
        self.memory: list[tuple[int, int]] = []  # device type, bytes allocated

    def op(self, name: str, start: int, end: int, *, thread: int = 0, phase: str | None = None) -> Event:
        return self.host(name, start, end, Kind.OPERATOR, thread=thread, phase=phase)

    def host(
        self,
        name: str,
        start: int,
        end: int,
        kind: Kind,
        *,
        thread: int = 0,
        phase: str | None = None,
        module: int = NONE,
    ) -> Event:
        self.hosts.append(Event(name, start, end, kind, thread, phase, module))
        return self.hosts[-1]

    def call(self, name: str, start: int, end: int, *, thread: int = 0) -> Event:
        return self.host(name, start, end, Kind.RUNTIME, thread=thread)

    def launch(self, start: int, end: int, *, thread: int = 0) -> Event:
        return self.call("cudaLaunchKernel", start, end, thread=thread)

    def work(
        self,
        start: int,
        end: int,
        launch: Event | None = None,
        *,
        name: str = "a_kernel",
        stream: int = 0,
        kind: Kind = Kind.KERNEL,
        phase: str | None = None,
        module: int = NONE,
        evidence: Evidence = Evidence.NONE,
        **more: str | int,
    ) -> Event:
        self.works.append(Event(name, start, end, kind, stream, phase, module, launch, more, evidence))
        return self.works[-1]

    def step(self, number: int, start: int, end: int) -> None:
        self.marks.append(Step(number, start, end))

    def attribution(self) -> Attribution:
        hosts = sorted(self.hosts, key=lambda e: (e.lane, e.start, e.start - e.end))
        works = sorted(self.works, key=lambda e: (e.start, e.start - e.end))
        events = hosts + works
        names = tuple(dict.fromkeys(e.name for e in events))
        place = {id(e): i for i, e in enumerate(hosts)}
        columns: dict[str, list[int]] = {
            k: [NONE] * len(hosts) for k in ("parent", "operator", "node", "python", "phase", "module")
        }
        steps = [self._step(e.start) for e in hosts]
        stack: list[Event] = []
        for i, event in enumerate(hosts):
            stack = [e for e in stack if e.lane == event.lane and e.end > event.start]
            if stack:
                above = place[id(stack[-1])]
                for column in columns.values():
                    column[i] = column[above]
                columns["parent"][i] = above
            if event.phase is not None:
                columns["phase"][i] = PHASE_NUMBERS[event.phase]  # type: ignore[index]
            if event.module != NONE:
                columns["module"][i] = event.module
            if event.kind == Kind.OPERATOR:
                columns["operator"][i] = i
                if event.name.startswith("autograd::"):
                    columns["node"][i] = i
            if event.kind == Kind.PYTHON:
                columns["python"][i] = i
            if event.kind != Kind.RUNTIME:
                stack.append(event)
        launch = [place[id(e.launch)] if e.launch is not None else NONE for e in works]

        def inherited(column: str) -> list[int]:
            return [columns[column][at] if at != NONE else NONE for at in launch]

        within = inherited("phase")
        phase = [PHASE_NUMBERS[e.phase] if e.phase else p for e, p in zip(works, within, strict=True)]  # type: ignore[index]
        module = [e.module if e.module != NONE else m for e, m in zip(works, inherited("module"), strict=True)]
        threads = max((e.lane for e in hosts), default=0) + 1
        streams = max((e.lane for e in works), default=0) + 1
        more = {
            key: _sparse({len(hosts) + i: e.more[key] for i, e in enumerate(works) if key in e.more})
            for key in dict.fromkeys(key for e in works for key in e.more)
        }
        if self.memory:
            more["Total Allocated"] = _sparse({i: size for i, (_, size) in enumerate(self.memory)})
            more["Device Type"] = _sparse({i: device for i, (device, _) in enumerate(self.memory)})
        empty = np.full(len(events), NONE)
        table = Table(
            file="written.json",
            start_ns=np.array([e.start for e in events], np.int64),
            duration_ns=np.array([e.end - e.start for e in events], np.int64),
            kind=np.array([e.kind for e in events], np.int8),
            name=np.array([names.index(e.name) for e in events], np.int32),
            category=np.zeros(len(events), np.int32),
            thread=np.array([e.lane for e in hosts] + [NONE] * len(works), np.int32),
            stream=np.array([NONE] * len(hosts) + [e.lane for e in works], np.int32),
            correlation=np.array(
                [i if e.kind == Kind.RUNTIME else NONE for i, e in enumerate(hosts)] + launch, np.int64
            ),
            external=empty.astype(np.int64),
            sequence=empty.astype(np.int64),
            forward_thread=np.zeros(len(events), np.int64),
            shapes=empty.astype(np.int32),
            inputs=empty.astype(np.int32),
            names=names,
            categories=("",),
            threads=tuple(Thread("1", str(i)) for i in range(threads)),
            streams=self.streams or tuple(Stream("0", str(i)) for i in range(streams)),
            texts=(),
            more=more,
            events=len(events),
        )
        start, end = table.times(np.arange(len(events)))
        nodes = np.unique([node for node in columns["node"] if node != NONE]).astype(np.int32)
        return Attribution(
            table=table,
            host=Host(
                rows=np.arange(len(hosts), dtype=np.int32),
                start_ns=start[: len(hosts)],
                end_ns=end[: len(hosts)],
                thread=table.thread[: len(hosts)],
                step=np.array(steps, np.int32),
                **{k: np.array(v, np.int8 if k == "phase" else np.int32) for k, v in columns.items()},
            ),
            device=Device(
                rows=np.arange(len(hosts), len(events), dtype=np.int32),
                start_ns=start[len(hosts) :],
                end_ns=end[len(hosts) :],
                launch=np.array(launch, np.int32),
                operator=np.array(inherited("operator"), np.int32),
                phase=np.array(phase, np.int8),
                within=np.array(within, np.int8),
                module=np.array(module, np.int32),
                step=np.array([self._step(e.launch.start) if e.launch is not None else NONE for e in works], np.int32),
                evidence=np.array([e.evidence for e in works], np.int8),
                aligned=np.full(len(works), NONE, np.int32),
            ),
            modules=self.modules,
            steps=tuple(self.marks),
            nodes=nodes,
            node_forward=np.full(len(nodes), NONE, np.int32),
            node_redone=np.full(len(nodes), NONE, np.int32),
            graph_launches=0,
            compiled=False,
            notes=(),
        )

    def _step(self, at: int) -> int:
        return next((i for i, step in enumerate(self.marks) if step.start_ns <= at < step.end_ns), NONE)


def _sparse(values: dict[int, str | int]) -> Sparse:
    rows = np.array(list(values), np.int32)
    if any(isinstance(value, str) for value in values.values()):
        texts = tuple(dict.fromkeys(str(value) for value in values.values()))
        return Sparse(rows=rows, values=np.array([texts.index(str(v)) for v in values.values()], np.int64), texts=texts)
    return Sparse(rows=rows, values=np.array(list(values.values()), np.int64))


# ---- traces that hypothesis writes

phases = st.none() | st.sampled_from(TRACE_PHASES)
times = st.tuples(st.integers(-500, 500), st.integers(-3, 90)).map(lambda pair: (pair[0], pair[0] + pair[1]))
host_names = {
    Kind.OPERATOR: ["aten::mm", "aten::item", "autograd::engine::evaluate_function: A"],
    Kind.ANNOTATION: ["enumerate(DataLoader)#_Iter", "nccl:all_reduce"],
    Kind.PYTHON: ["train.py(3): step"],
}
calls = ["cudaLaunchKernel", "cudaStreamSynchronize", "cudaMemcpyAsync", "cudaStreamWaitEvent", "hipMemcpyWithStream"]


@st.composite
def written(draw: st.DrawFn) -> Written:
    """Any trace: events may overlap, precede their launch, end before they start, and lie outside the steps."""
    trace = Written()
    trace.modules = (Module("", "Net"), Module("conv1", "Conv2d"))
    for kind in draw(st.lists(st.sampled_from(list(host_names)), max_size=8)):
        start, end = draw(times)
        name = draw(st.sampled_from(host_names[kind]))
        trace.host(
            name, start, end, kind, thread=draw(st.integers(0, 2)), phase=draw(phases), module=draw(st.integers(-1, 1))
        )
    events = [
        trace.call(draw(st.sampled_from(calls)), *draw(times), thread=draw(st.integers(0, 2)))
        for _ in range(draw(st.integers(0, 8)))
    ]
    for _ in range(draw(st.integers(0, 10))):
        trace.work(
            *draw(times),
            draw(st.sampled_from([None, *events])),
            name=draw(st.sampled_from(["ncclDevKernel_AllReduce", "sgemm", "Memcpy DtoH (Device -> Pageable)"])),
            stream=draw(st.integers(0, 2)),
            kind=draw(st.sampled_from([Kind.KERNEL, Kind.MEMCPY])),
            phase=draw(phases),
            module=draw(st.integers(-1, 1)),
        )
    for number in range(draw(st.integers(0, 3))):
        trace.step(number, -300 + 200 * number, -100 + 200 * number)
    return trace


def assert_sums_hold(summary: TraceSummary) -> None:
    assert summary.busy_ns + summary.idle_ns == summary.span_ns
    assert min(summary.busy_ns, summary.idle_ns, summary.overlap_ns, summary.unattributed_ns) >= 0
    assert sum(phase.kernel_ns for phase in summary.phases) + summary.unattributed_ns == summary.busy_ns
    assert sum(module.kernel_ns for module in summary.modules) + summary.unattributed_ns == summary.busy_ns
    for module in summary.modules:
        assert sum(kernel.kernel_ns for kernel in module.kernels) == module.kernel_ns
        assert sum(kernel.calls for kernel in module.kernels) == module.events
    assert sum(kernel.kernel_ns for kernel in summary.unattributed) == summary.unattributed_ns
    assert sum(entry.ns for entry in summary.idle) == summary.idle_ns
    assert all(entry.ns > 0 and entry.gaps > 0 for entry in summary.idle)
    for phase in summary.phases:
        assert sum(entry.ns for entry in summary.idle if entry.phase == phase.phase) == phase.idle_ns
        assert 0 <= phase.kernel_ns <= phase.sum_ns
    for wait in summary.syncs:
        assert sum(part.ns for part in wait.waited_for) == wait.wait_ns > 0
        assert all(part.ns > 0 for part in wait.waited_for)
    assert summary.recorded_ns == summary.before_ns + summary.wall_ns + summary.after_ns
    assert all(entry.ns > 0 for entry in (*summary.before, *summary.after))
    if summary.clock == "device":
        assert sum(account.busy_ns for account in summary.accounts) == summary.busy_ns
        assert sum(account.idle_ns for account in summary.accounts) == summary.idle_ns
        assert sum(account.events for account in summary.accounts) == summary.device_events
        assert sum(kernel.kernel_ns for kernel in summary.kernels) == summary.busy_ns
        assert sum(kernel.sum_ns for kernel in summary.kernels) == summary.sum_ns
        assert sum(kernel.calls for kernel in summary.kernels) == summary.device_events
        assert sum(stream.events for stream in summary.streams) == summary.device_events
        assert max(stream.busy_ns for stream in summary.streams) <= summary.busy_ns
        assert summary.busy_ns <= sum(stream.busy_ns for stream in summary.streams) <= summary.sum_ns
        assert summary.unlinked_ns + summary.moduleless_ns <= summary.busy_ns
        assert summary.aligned_ns <= summary.unlinked_ns
    if summary.communication is not None:
        result = summary.communication
        assert 0 <= result.exposed_ns <= result.union_ns <= result.sum_ns
        assert sum(kind.sum_ns for kind in result.by_kind) == result.sum_ns
