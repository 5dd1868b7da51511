"""A trace in the dialect of torch-tb-profiler 0.4.3, the PyTorch profiler tab of TensorBoard, with our attribution.

The plugin reads traces of 2021. On later ones it shows no device time of operators and modules, ignores the user's ranges,
counts each step twice and joins no forward operator with its backward node. Events here have the form that it expects:

- a launch has the `External id` of the operator around it, and a kernel the `correlation` of its launch, both numbered anew;
- times are multiples of 1/1024 µs from the start of the trace. Floats hold them and their sums exactly, so that events nest;
- steps, ranges of the user and of the DataLoader are operators; marks of ours become steps and module calls;
- a module has one `Python id` for all of its calls, so that the plugin's tree shows it once;
- an operator has a `Call stack`: its Python calls, or else the path of its module.

Events with a category that the plugin does not know (`call`, `range`) are on its timeline only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

import numpy as np

from profiler_kit.attribution.plugin_links import BackwardLinks, CallStacks, ModuleCalls, backward_links, sparse_texts
from profiler_kit.attribution.result import Attribution
from profiler_kit.records import marks
from profiler_kit.records.lanes import ROOT_NAME
from profiler_kit.traces.names import MODULE_PREFIX, STEP_PREFIX
from profiler_kit.traces.table import (
    ALLOCATED,
    CALL_STACK,
    DEVICE_ID,
    DEVICE_TYPE,
    INPUT_TYPES,
    NONE,
    RESERVED,
    Ids,
    Kind,
    Table,
)

_MAX_DEVICES: Final = 64  # that the plugin has places for
_DEVICE_CATEGORIES: Final = {Kind.KERNEL: "kernel", Kind.MEMCPY: "gpu_memcpy", Kind.MEMSET: "gpu_memset"}
_KERNEL_DETAILS: Final = (
    "grid", "block", "registers per thread", "shared memory", "blocks per SM", "est. achieved occupancy %", "bytes",
)  # fmt: skip
_MEMORY_DETAILS: Final = ("Addr", "Bytes", DEVICE_ID, DEVICE_TYPE, ALLOCATED, RESERVED)
# Categories of host events. The plugin's tree consists of steps, operators and modules.
STEP, OPERATOR, MODULE, LAUNCH, CALL, RANGE = "user_annotation", "cpu_op", "module", "Runtime", "call", "range"
TREE: Final = (STEP, OPERATOR, MODULE)


def plugin_trace(attribution: Attribution, lanes: Callable[[int], Iterator[str]] = lambda _: iter(())) -> Iterator[str]:
    """Yield the parts of the file's text. `lanes`: more events, for a start of the trace in ns."""
    table, info = attribution.table, attribution.table.info
    header = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": i, "name": name} for i, name in enumerate(info.devices)],
        "distributedInfo": {"backend": info.backend, "rank": info.rank or 0, "world_size": info.world_size or 1},
        "traceName": PurePath(table.file).name,
    }
    # The plugin adds events before the last bracket of the file, so the list of events comes last.
    yield json.dumps(header)[:-1] + ', "traceEvents": [\n'
    writer = _Writer(attribution)
    separator = ""
    for events in (
        writer.names(),
        lanes(writer.base_ns),
        writer.host(),
        writer.links(),
        writer.device(),
        writer.memory(),
    ):
        for event in events:
            yield separator + event
            separator = ",\n"
    yield "\n]}\n"


@dataclass(frozen=True, slots=True)
class _Tree:
    """Of each host position: its category, the position above it in the plugin's tree, and its times in 1/1024 µs."""

    category: list[str]
    parent: list[int]
    start: list[int]
    end: list[int]


class _Writer:
    def __init__(self, attribution: Attribution) -> None:
        self.attribution = attribution
        self.table: Table = attribution.table
        host, device = attribution.host, attribution.device
        starts = [column for column in (host.start_ns, device.start_ns) if len(column)]
        ends = [column for column in (host.end_ns, device.end_ns) if len(column)]
        self.base_ns = min((int(column.min()) for column in starts), default=0)
        self.end = self._tick(max((int(column.max()) for column in ends), default=self.base_ns))
        self._text: dict[int, str] = {}
        self._name_of: list[int] = self.table.name[host.rows].tolist()
        self._modules = ModuleCalls(attribution)
        self._tree = self._build_tree()
        self._links: BackwardLinks = backward_links(
            attribution, self._tree.category, self._tree.parent, self._tree.start
        )
        steps = (i for i, category in enumerate(self._tree.category) if category == STEP)
        self._first_step = next(steps, len(self._name_of))  # without steps, that of `names`
        self._threads = _numbers([thread.thread for thread in self.table.threads])
        self._devices = _device_numbers(self.table)
        self._main = max(attribution.main_thread, 0)

    # ---- parts of the file

    def names(self) -> Iterator[str]:
        """Names of processes and threads, and a step around everything if the trace has none."""
        for number, name in zip(self._threads, self.table.threads, strict=True):
            yield _metadata("thread_name", "host", number, name.name or f"thread {name.thread}")
        for i, stream in enumerate(self.table.streams):
            yield _metadata("process_name", self._devices[i], 0, f"device {stream.device}")
            yield _metadata("thread_name", self._devices[i], self._stream(i), f"stream {stream.stream}")
        if STEP not in self._tree.category and self.end:
            main = self._threads[self._main] if self._threads else 0
            yield _complete(
                STEP, f'"{STEP_PREFIX}0"', '"host"', main, 0, self.end, f'"External id":{len(self._name_of) + 1}'
            )

    def host(self) -> Iterator[str]:
        """Steps, operators, modules, launches and, for the timeline alone, other calls."""
        tree, host = self._tree, self.attribution.host
        launched_from = self._launch_operators()
        shapes, types = self.table.shapes[host.rows].tolist(), sparse_texts(self.table, INPUT_TYPES)
        stacks = CallStacks(self.attribution)
        rows, thread = host.rows.tolist(), host.thread.tolist()
        for i, category in enumerate(tree.category):
            name, arguments = self._name(i), ""
            if category == MODULE and i in self._links.hidden:
                category = CALL
            if category == LAUNCH:
                arguments = f'"External id":{launched_from[i] + 1},"correlation":{i + 1}'
            elif category == MODULE:
                arguments = self._modules.arguments(i)
            elif category in (OPERATOR, STEP):
                arguments = f'"External id":{i + 1}'
                if shapes[i] != NONE:
                    arguments += f',"Input Dims":{self.table.texts[shapes[i]]}'
                if rows[i] in types:
                    arguments += f',"Input type":{types[rows[i]]}'
                if category == OPERATOR and (stack := stacks.of(i)):
                    arguments += f',"{CALL_STACK}":{stack}'
            kind = "python_function" if category == MODULE else category
            yield _complete(kind, name, '"host"', self._threads[thread[i]], tree.start[i], tree.end[i], arguments)

    def links(self) -> Iterator[str]:
        """The links from forward operators to their backward operators."""
        thread, category = self.attribution.host.thread, self._links.category
        for number, (forward, backward) in enumerate(self._links.pairs, start=1):
            for phase, i in (("s", forward), ("f", backward)):
                yield (
                    f'{{"ph":"{phase}","cat":"{category}","name":"{category}","id":{number},"pid":"host",'
                    f'"tid":{self._threads[int(thread[i])]},"ts":{_us(self._tree.start[i])},"bp":"e"}}'
                )

    def device(self) -> Iterator[str]:
        """Kernels, copies and fills, each with the number of its launch."""
        device, table = self.attribution.device, self.table
        launched_from = self._launch_operators()
        details = {key: sparse_texts(table, key) for key in _KERNEL_DETAILS}
        columns = zip(
            device.rows.tolist(), device.start_ns.tolist(), device.end_ns.tolist(), device.launch.tolist(),
            table.kind[device.rows].tolist(), table.stream[device.rows].tolist(), strict=True,
        )  # fmt: skip
        without_launch = len(self._name_of) + 2
        for i, (row, start, end, launch, kind, stream) in enumerate(columns):
            number = self._devices[stream]
            correlation = without_launch + i if launch == NONE else launch + 1
            operator = 0 if launch == NONE else launched_from[launch] + 1
            arguments = f'"External id":{operator},"correlation":{correlation},"device":{number},"stream":{self._stream(stream)}'
            for key, texts in details.items():
                if row in texts:
                    arguments += f',"{key}":{texts[row]}'
            name = self._json(int(table.name[row]))
            category = _DEVICE_CATEGORIES[Kind(kind)]
            yield _complete(
                category, name, str(number), self._stream(stream), self._tick(start), self._tick(end), arguments
            )

    def memory(self) -> Iterator[str]:
        """Allocations and releases, for the plugin's memory view."""
        table = self.table
        rows = np.flatnonzero(table.of(Kind.MEMORY))
        details = {key: sparse_texts(table, key) for key in _MEMORY_DETAILS}
        for row in rows.tolist():
            start = self._tick(int(table.start_ns[row]))
            arguments = ",".join(f'"{key}":{texts[row]}' for key, texts in details.items() if row in texts)
            if start >= 0:
                yield (
                    f'{{"ph":"i","s":"t","cat":"cpu_instant_event","name":"[memory]","pid":"host",'
                    f'"tid":{self._threads[int(table.thread[row])]},"ts":{_us(start)},"args":{{{arguments}}}}}'
                )

    # ---- parts of events

    def _build_tree(self) -> _Tree:
        host = self.attribution.host
        category = [self._category(i, kind) for i, kind in enumerate(self.table.kind[host.rows].tolist())]
        above: list[int] = []
        end: list[int] = []
        latest: dict[int, int] = {}  # the last event of the tree below each position, or of each thread
        start = [self._tick(ns) for ns in host.start_ns.tolist()]
        for i, (parent, end_ns) in enumerate(zip(host.parent.tolist(), host.end_ns.tolist(), strict=True)):
            last = self._tick(end_ns)
            while parent != NONE and category[parent] not in TREE:
                parent = above[parent]
            above.append(parent)
            end.append(last if parent == NONE else min(last, end[parent]))
            if category[i] in TREE:
                # Events of a profiler that rounds may overlap their successors, which the plugin rejects.
                group = parent if parent != NONE else -2 - int(host.thread[i])
                before = latest.get(group, NONE)
                latest[group] = i
                while before != NONE and end[before] > start[i]:
                    end[before] = start[i]
                    before = latest.get(before, NONE)
        return _Tree(category, above, start, end)

    def _category(self, i: int, kind: int) -> str:
        name = self.table.names[self._name_of[i]]
        if kind == Kind.RUNTIME:
            return LAUNCH
        if i in self._modules.number_of:
            return MODULE
        if kind == Kind.PYTHON:
            return CALL
        if name.startswith(marks.STEP if self._modules.has_marks else STEP_PREFIX):
            return STEP
        return (
            RANGE
            if name.startswith((marks.PHASE, marks.MODULE, marks.CONVOLUTION, marks.STEP, STEP_PREFIX))
            else OPERATOR
        )

    def _name(self, i: int) -> str:
        """The name of a host event as JSON."""
        name = self.table.names[self._name_of[i]]
        if i in self._links.renamed:
            return json.dumps(self._links.renamed[i])
        if name.startswith(marks.MODULE):
            return json.dumps(f"{MODULE_PREFIX}{name.removeprefix(marks.MODULE) or ROOT_NAME}")
        if name.startswith(marks.STEP):
            return json.dumps(name.replace(marks.STEP, STEP_PREFIX, 1))
        return self._json(self._name_of[i])

    def _json(self, name: int) -> str:
        if name not in self._text:
            self._text[name] = json.dumps(self.table.names[name])
        return self._text[name]

    def _launch_operators(self) -> Ids:
        """For each host position, the operator around it; without one, the range or step around it; else NONE.

        The plugin forgets launches on a thread without other events, so they belong to the first step.
        """
        host, tree = self.attribution.host, self._tree
        threads = {thread for thread, kind in zip(host.thread.tolist(), tree.category, strict=True) if kind in TREE}
        operator: Ids = host.operator.copy()
        for i in np.flatnonzero((operator == NONE) & (self.table.kind[host.rows] == Kind.RUNTIME)).tolist():
            above = tree.parent[i]
            while above != NONE and tree.category[above] == MODULE:
                above = tree.parent[above]
            operator[i] = self._first_step if above == NONE and int(host.thread[i]) not in threads else above
        return operator

    def _tick(self, ns: int) -> int:
        """`ns` on the trace's clock in 1/1024 µs from its start."""
        return ((ns - self.base_ns) * 1024 + 500) // 1000

    def _stream(self, stream: int) -> int:
        text = self.table.streams[stream].stream
        return int(text) if text.isdigit() else stream


# ---- text of events


def _complete(category: str, name: str, pid: str, tid: int, start: int, end: int, arguments: str) -> str:
    return (
        f'{{"ph":"X","cat":"{category}","name":{name},"pid":{pid},"tid":{tid},"ts":{_us(start)},'
        f'"dur":{_us(max(end - start, 0))},"args":{{{arguments}}}}}'
    )


def _metadata(key: str, pid: str | int, tid: int, name: str) -> str:
    return json.dumps({"ph": "M", "name": key, "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}})


def _us(ticks: int) -> str:
    return repr(ticks / 1024)


def _numbers(texts: list[str]) -> list[int]:
    """Each text as a number of its own: the number that it states, if no other has it."""
    numbers: list[int] = []
    for i, text in enumerate(texts):
        stated = int(text) if text.isdigit() else -1
        numbers.append(stated if 0 <= stated < 1 << 31 and stated not in numbers else (1 << 31) + i)
    return numbers


def _device_numbers(table: Table) -> list[int]:
    """The number of each stream's device, below `_MAX_DEVICES`."""
    names = sorted({stream.device for stream in table.streams}, key=lambda name: (len(name), name))
    stated = [int(name) if name.isdigit() else _MAX_DEVICES for name in names]
    numbers = stated if all(number < _MAX_DEVICES for number in stated) else list(range(len(names)))
    return [dict(zip(names, numbers, strict=True))[stream.device] for stream in table.streams]
