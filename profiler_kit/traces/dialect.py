"""How the writers of traces spell things: the only file that knows.

Three files hold a part of it for a reason of their own: `loose` decodes the same keys where they do not decode as they should,
`entries` the few that tell which entry to keep, and `sparse` has the keys of columns that are asked for by name.

Kineto has written the Chrome trace format since 2021, and renamed most categories once (``Kernel`` to ``kernel``); its
categories are the names of its activities. Before it, and still by `torch.autograd.profiler`, events had no category and
said what they are by their process.

Times are decimal µs in all of them: whole until March 2024, then with three digits of ns, which other programs that write the
file again cut down to those that are not zero. ``"displayTimeUnit": "ns"`` tells viewers how to show times, and nothing about
the file. `baseTimeNanoseconds` is what they count from since April 2024, so that floats hold them.

Source: pytorch/kineto, libkineto/include/ActivityType.h and libkineto/src/output_json.cpp; their commits dfd563dd, 327ac505.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from profiler_kit.traces import table
from profiler_kit.traces.table import NONE, Kind

KINDS: Final[Mapping[str, Kind]] = {
    "cpu_op": Kind.OPERATOR,
    "Operator": Kind.OPERATOR,
    "user_annotation": Kind.ANNOTATION,
    "python_function": Kind.PYTHON,
    "Python": Kind.PYTHON,
    "cuda_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.RUNTIME,
    "Runtime": Kind.RUNTIME,
    "hip_runtime": Kind.RUNTIME,
    "xpu_runtime": Kind.RUNTIME,
    "xpu_driver": Kind.RUNTIME,
    "mtia_runtime": Kind.RUNTIME,
    "glow_runtime": Kind.RUNTIME,
    "hpu_op": Kind.RUNTIME,
    "privateuse1_runtime": Kind.RUNTIME,
    "privateuse1_driver": Kind.RUNTIME,
    "kernel": Kind.KERNEL,
    "Kernel": Kind.KERNEL,
    "mtia_ccp_events": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "Memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
    "Memset": Kind.MEMSET,
    "cuda_sync": Kind.SYNC,
    "xpu_sync": Kind.SYNC,
    "gpu_user_annotation": Kind.MIRROR,
    "cpu_instant_event": Kind.INSTANT,
    # Known, and no work of the program: what the profiler cost, its span, marks without duration, samples.
    "overhead": Kind.OTHER,
    "Trace": Kind.OTHER,
    "cuda_event": Kind.OTHER,
    "cuda_profiler_range": Kind.OTHER,
    "external_correlation": Kind.OTHER,
    "collective_comm": Kind.OTHER,
    "mtia_insight": Kind.OTHER,
    "mtia_counters": Kind.OTHER,
    "hardware_counters": Kind.OTHER,
    "xpu_scope_profiler": Kind.OTHER,
}
# Events without a category: torch.autograd.profiler's own export names what they are in the process.
PROCESS_KINDS: Final[Mapping[str, Kind]] = {"CPU functions": Kind.OPERATOR, "CUDA functions": Kind.KERNEL}
COUNTERS_OF_KERNELS: Final = "cuda_profiler_range"  # a kernel run by itself, with counters: no place on the timeline
MEMORY_NAME: Final = "[memory]"

EVENTS_KEY: Final = "traceEvents"  # of the list of events, where the file is an object
COMPLETE, BEGIN, END, METADATA, COUNTER = b"XBEMC"
INSTANTS: Final = b"iI"
FLOWS: Final = b"stf"

HEADER_KEYS: Final = (
    "distributedInfo",
    "deviceProperties",
    "baseTimeNanoseconds",
    "displayTimeUnit",
    "record_shapes",
    "with_stack",
    "profile_memory",
)

NO_NUMBER: Final = -(2**63)  # in a column that few events have: this one has none
NO_TEXT: Final = msgspec.Raw()
NO_ARGUMENTS: Final = msgspec.Raw(b"{}")
NOT_SAID: Final = float("nan")


class AnyEvent(msgspec.Struct, gc=False):
    """An entry of the list but for its start. What is missing is told from what is there."""

    ph: str = ""
    cat: str = ""
    name: str | None = None
    pid: int | str = ""
    tid: int | str = ""
    dur: float = 0.0
    args: msgspec.Raw = NO_ARGUMENTS


class Event(AnyEvent, gc=False):
    """With its start as a float."""

    ts: float = NOT_SAID


class ExactEvent(AnyEvent, gc=False):
    """With its start as text: for times that a float does not hold."""

    ts: msgspec.Raw = NO_TEXT


class Times(msgspec.Struct, gc=False):
    """Both times of an event as text."""

    ts: msgspec.Raw = NO_TEXT
    dur: msgspec.Raw = NO_TEXT


def key(spelling: str, default: Any = NO_NUMBER) -> Any:
    """A field of arguments that a trace spells so."""
    return msgspec.field(default=default, name=spelling)


class Arguments(msgspec.Struct, gc=False):
    """What an event says of itself beside its name and times: the fields of its kind."""


class LinkArguments(Arguments, gc=False):
    """What joins events. The second spelling is that of 2021."""

    correlation: int | None = NONE
    external: int | None = key("External id", NONE)
    external_2021: int | None = key("external id", NONE)


class CollectiveArguments(LinkArguments, gc=False):
    """What an operator or kernel of a collective says of it."""

    collective: msgspec.Raw = key(table.COLLECTIVE_NAME, NO_TEXT)
    group_name: msgspec.Raw = key(table.GROUP_NAME, NO_TEXT)
    group: msgspec.Raw = key("Process Group Description", NO_TEXT)
    ranks: msgspec.Raw = key(table.GROUP_RANKS, NO_TEXT)
    dtype: msgspec.Raw = key(table.DTYPE, NO_TEXT)
    in_elements: int | None = key(table.IN_ELEMENTS)
    out_elements: int | None = key("Out msg nelems")
    group_size: int | None = key("Group size")


class HostArguments(CollectiveArguments, gc=False):
    """Of operators and annotations."""

    sequence: int | None = key("Sequence number", NONE)
    forward_thread: int | None = key("Fwd thread id", 0)
    shapes: msgspec.Raw = key("Input Dims", NO_TEXT)
    shapes_2021: msgspec.Raw = key("Input dims", NO_TEXT)
    inputs: msgspec.Raw = key("Concrete Inputs", NO_TEXT)
    stack: msgspec.Raw = key(table.CALL_STACK, NO_TEXT)
    modules: msgspec.Raw = key("Module Hierarchy", NO_TEXT)


class PythonArguments(Arguments, gc=False):
    """Of Python and nn.Module calls."""

    python: int | None = key("Python id")
    parent: int | None = key("Python parent id")
    module: int | None = key("Python module id")


class DeviceArguments(CollectiveArguments, gc=False):
    """Of kernels, copies, fills."""

    device: int | str | None = None
    stream: int | str | None = None
    bytes: int | None = NO_NUMBER
    bandwidth: float | None = key("memory bandwidth (GB/s)", NOT_SAID)
    grid: msgspec.Raw = NO_TEXT
    block: msgspec.Raw = NO_TEXT
    registers: int | None = key("registers per thread")
    shared_memory: int | None = key("shared memory")
    blocks_per_sm: float | None = key("blocks per SM", NOT_SAID)
    warps_per_sm: float | None = key("warps per SM", NOT_SAID)
    occupancy: float | None = key("est. achieved occupancy %", NOT_SAID)
    queued: int | None = NO_NUMBER


class SyncArguments(LinkArguments, gc=False):
    """Of the device's waits."""

    sync_kind: msgspec.Raw = key("cuda_sync_kind", NO_TEXT)
    wait_stream: int | None = key("wait_on_stream")
    wait_record: int | None = key("wait_on_cuda_event_record_corr_id")
    wait_event: int | None = key("wait_on_cuda_event_id")
    device: int | None = NO_NUMBER
    stream: int | None = NO_NUMBER


class MemoryArguments(Arguments, gc=False):
    """Of allocations and releases."""

    address: int | None = key("Addr")
    bytes: int | None = key("Bytes")
    device_id: int | None = key(table.DEVICE_ID)
    device_type: int | None = key(table.DEVICE_TYPE)
    allocated: int | None = key(table.ALLOCATED)
    reserved: int | None = key(table.RESERVED)


ARGUMENTS: Final[Mapping[Kind, type[Arguments]]] = {
    Kind.OTHER: LinkArguments,
    Kind.RUNTIME: LinkArguments,
    Kind.MIRROR: LinkArguments,
    Kind.INSTANT: LinkArguments,
    Kind.OPERATOR: HostArguments,
    Kind.ANNOTATION: HostArguments,
    Kind.PYTHON: PythonArguments,
    Kind.KERNEL: DeviceArguments,
    Kind.MEMCPY: DeviceArguments,
    Kind.MEMSET: DeviceArguments,
    Kind.SYNC: SyncArguments,
    Kind.MEMORY: MemoryArguments,
}
# What every event of these kinds may have has a column of its own in the table; the rest is kept for the events that have it.
NUMBER_COLUMNS: Final = ("correlation", "external", "sequence", "forward_thread")
TEXT_COLUMNS: Final = ("shapes", "inputs")
OLDER: Final = {"external": "external_2021", "shapes": "shapes_2021"}  # fields for the same thing, spelled as it was
DENSE: Final = {*NUMBER_COLUMNS, *TEXT_COLUMNS, *OLDER.values()}


class Field(NamedTuple):
    """A field of arguments that few events have: `name` here, `spelling` in traces, `form` "int", "float" or "text"."""

    name: str
    spelling: str
    form: str


def sparse_fields(arguments: type[Arguments]) -> tuple[Field, ...]:
    """The fields of `arguments` with no column of their own."""
    placed = {*DENSE, "device", "stream"} if issubclass(arguments, DeviceArguments) else DENSE
    return tuple(
        Field(
            info.name,
            info.encode_name,
            "text" if info.type is msgspec.Raw else "int" if info.default == NO_NUMBER else "float",
        )
        for info in msgspec.structs.fields(arguments)
        if info.name not in placed
    )


COLLECTIVE_FIELDS: Final = sparse_fields(CollectiveArguments)
