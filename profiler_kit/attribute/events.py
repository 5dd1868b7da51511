"""The events of a trace that its steps' owners are found among: the host's and the device's, one by one and typed.

`traces.reader` knows how traces are spelled; this takes its columns and leaves out what says nothing of who spent the time
(flows, counters, metadata, mirrored annotations, Python's own calls).
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from profiler_kit.traces.names import ACCUMULATE, NODE_PREFIX, accumulates
from profiler_kit.traces.reader import read
from profiler_kit.traces.table import NONE, Kind, Table


class HostKind(Enum):
    """What a host event is."""

    OPERATOR = "operator"
    ANNOTATION = "annotation"
    RUNTIME = "runtime"


class DeviceKind(Enum):
    """What a device event is; all three are work."""

    KERNEL = "kernel"
    MEMCPY = "memcpy"
    MEMSET = "memset"


# What of a trace is looked at here, and what it is called.
_HOST_KINDS: Final = {
    Kind.OPERATOR: HostKind.OPERATOR,
    Kind.ANNOTATION: HostKind.ANNOTATION,
    Kind.RUNTIME: HostKind.RUNTIME,
}
_DEVICE_KINDS: Final = {
    Kind.KERNEL: DeviceKind.KERNEL,
    Kind.MEMCPY: DeviceKind.MEMCPY,
    Kind.MEMSET: DeviceKind.MEMSET,
}


class Thread(NamedTuple):
    """A host thread: process and thread ids as written."""

    process: str
    thread: str


class HostEvent(NamedTuple):
    """Something the host did.

    `sequence` is autograd's number, of the next node to be made when a forward op began or of the node being run;
    `forward_thread` is the profiler's own number of the thread that made the node, 0 outside autograd nodes.
    `correlation` joins a runtime call to the device events it enqueued. `is_node`: the engine evaluates a node here.
    """

    kind: HostKind
    name: str
    thread: Thread
    start_ns: int
    end_ns: int
    sequence: int | None = None
    forward_thread: int = 0
    correlation: int | None = None
    is_node: bool = False

    @property
    def accumulates(self) -> bool:
        """Whether this node adds a gradient to a leaf: such nodes belong to no forward op."""
        return self.is_node and accumulates(self.name)


class DeviceEvent(NamedTuple):
    """A kernel, copy or fill on a device."""

    kind: DeviceKind
    name: str
    device: str
    stream: str
    start_ns: int
    end_ns: int
    correlation: int | None = None


class Trace(NamedTuple):
    """Events of one file, each tuple by start, enclosing before enclosed. `malformed` events were left out."""

    file: str
    host: tuple[HostEvent, ...]
    device: tuple[DeviceEvent, ...]
    malformed: int = 0


def read_trace(path: Path) -> Trace:
    """The typed events of the trace at `path`, plain or gzipped (told by its first bytes, not by its name).

    Raises: TraceError for a file that is missing, empty, cut off, or no trace.
    """
    table = read(path, partial=False)
    return Trace(file=table.file, host=_host(table), device=_device(table), malformed=table.malformed)


def _host(table: Table) -> tuple[HostEvent, ...]:
    threads = [Thread(thread.process, thread.thread) for thread in table.threads]
    names, nodes = table.names, [_names_node(name) for name in table.names]
    rows = table.by_start(*_HOST_KINDS)
    return tuple(
        HostEvent(
            _HOST_KINDS[kind],
            names[name],
            threads[thread],
            start,
            start + duration,
            None if sequence == NONE else sequence,
            forward_thread,
            None if correlation == NONE else correlation,
            kind == Kind.OPERATOR and (forward_thread != 0 or nodes[name]),
        )
        for kind, name, thread, start, duration, sequence, forward_thread, correlation in zip(
            *(
                column[rows].tolist()
                for column in (
                    table.kind,
                    table.name,
                    table.thread,
                    table.start_ns,
                    table.duration_ns,
                    table.sequence,
                    table.forward_thread,
                    table.correlation,
                )
            ),
            strict=True,
        )
    )


def _device(table: Table) -> tuple[DeviceEvent, ...]:
    names, streams = table.names, table.streams
    rows = table.by_start(*_DEVICE_KINDS)
    return tuple(
        DeviceEvent(
            kind=_DEVICE_KINDS[kind],
            name=names[name],
            device=streams[stream].device,
            stream=streams[stream].stream,
            start_ns=start,
            end_ns=start + duration,
            correlation=None if correlation == NONE else correlation,
        )
        for kind, name, stream, start, duration, correlation in zip(
            *(
                column[rows].tolist()
                for column in (
                    table.kind,
                    table.name,
                    table.stream,
                    table.start_ns,
                    table.duration_ns,
                    table.correlation,
                )
            ),
            strict=True,
        )
    )


def _names_node(name: str) -> bool:
    return name.startswith(NODE_PREFIX) or name == ACCUMULATE
