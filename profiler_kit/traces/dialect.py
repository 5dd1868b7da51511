"""The spellings of trace files: categories, keys and times. Only this file knows them, with three exceptions.

`malformed` decodes the same keys in malformed events, `entries` reads the few keys that select entries, and `table`
defines the keys of columns that are looked up by name.

Kineto has written the Chrome trace format since 2021, and renamed most categories once (``Kernel`` to ``kernel``).
Its categories are the names of its activities. Before that, and still in exports of `torch.autograd.profiler`, events
had no category; the process id states the kind.

Times are decimal µs in all of them. They were whole until March 2024, and have had three decimals since then. Other
programs that rewrite the file drop trailing zeros. ``"displayTimeUnit": "ns"`` is for viewers and says nothing about
the file. Since April 2024, times count from `baseTimeNanoseconds`, so that a float holds them.

Source: pytorch/kineto, libkineto/include/ActivityType.h and libkineto/src/output_json.cpp; their commits dfd563dd,
327ac505.
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
    # Known, but not work of the program: the profiler's overhead and span, instant marks, samples.
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
# Events without a category: torch.autograd.profiler's own export states the kind as the process.
PROCESS_KINDS: Final[Mapping[str, Kind]] = {"CPU functions": Kind.OPERATOR, "CUDA functions": Kind.KERNEL}
# a kernel that was replayed alone, with hardware counters: it has no place on the timeline
COUNTERS_OF_KERNELS: Final = "cuda_profiler_range"
RECORDING: Final = "Trace"  # the category of the profiler's own span
MEMORY_NAME: Final = "[memory]"

EVENTS_KEY: Final = "traceEvents"  # key of the event list, if the file is an object
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

NO_NUMBER: Final = -(2**63)  # a missing value in a sparse column
NO_TEXT: Final = msgspec.Raw()
NO_ARGUMENTS: Final = msgspec.Raw(b"{}")
NO_FLOAT: Final = float("nan")


class AnyEvent(msgspec.Struct, gc=False):
    """An entry of the event list without its start time. Defaults mark missing fields."""

    ph: str = ""
    cat: str = ""
    name: str | None = None
    pid: int | str = ""
    tid: int | str = ""
    dur: float = NO_FLOAT
    args: msgspec.Raw = NO_ARGUMENTS


class Event(AnyEvent, gc=False):
    """An event with its start as a float."""

    ts: float = NO_FLOAT


class ExactEvent(AnyEvent, gc=False):
    """An event with its start as text, for times that a float does not hold."""

    ts: msgspec.Raw = NO_TEXT


class Times(msgspec.Struct, gc=False):
    """Start and duration of an event as text."""

    ts: msgspec.Raw = NO_TEXT
    dur: msgspec.Raw = NO_TEXT


def key(spelling: str, default: Any = NO_NUMBER) -> Any:
    """Return a field that is spelled `spelling` in a trace."""
    return msgspec.field(default=default, name=spelling)


class Arguments(msgspec.Struct, gc=False):
    """The arguments of an event, beside its name and times: the fields of its kind."""


class LinkArguments(Arguments, gc=False):
    """Arguments that join events. `external_2021` is the spelling of 2021."""

    correlation: int | None = NONE
    external: int | None = key("External id", NONE)
    external_2021: int | None = key("external id", NONE)


class CollectiveArguments(LinkArguments, gc=False):
    """Arguments of an operator or kernel of a collective."""

    collective: msgspec.Raw = key(table.COLLECTIVE_NAME, NO_TEXT)
    group_name: msgspec.Raw = key(table.GROUP_NAME, NO_TEXT)
    group: msgspec.Raw = key("Process Group Description", NO_TEXT)
    ranks: msgspec.Raw = key(table.GROUP_RANKS, NO_TEXT)
    dtype: msgspec.Raw = key(table.DTYPE, NO_TEXT)
    in_elements: int | None = key(table.IN_ELEMENTS)
    out_elements: int | None = key("Out msg nelems")
    group_size: int | None = key("Group size")


class HostArguments(CollectiveArguments, gc=False):
    """Arguments of operators and annotations."""

    sequence: int | None = key("Sequence number", NONE)
    forward_thread: int | None = key("Fwd thread id", 0)
    shapes: msgspec.Raw = key("Input Dims", NO_TEXT)
    shapes_2021: msgspec.Raw = key("Input dims", NO_TEXT)
    inputs: msgspec.Raw = key("Concrete Inputs", NO_TEXT)
    types: msgspec.Raw = key(table.INPUT_TYPES, NO_TEXT)
    stack: msgspec.Raw = key(table.CALL_STACK, NO_TEXT)
    modules: msgspec.Raw = key("Module Hierarchy", NO_TEXT)


class PythonArguments(Arguments, gc=False):
    """Details of Python and nn.Module calls."""

    python: int | None = key("Python id")
    parent: int | None = key("Python parent id")
    module: int | None = key("Python module id")


class DeviceArguments(CollectiveArguments, gc=False):
    """Arguments of kernels, copies and fills."""

    device: int | str | None = None
    stream: int | str | None = None


class DetailedDeviceArguments(DeviceArguments, gc=False):
    """Arguments of kernels, copies and fills, with details."""

    bytes: int | None = NO_NUMBER
    bandwidth: float | None = key("memory bandwidth (GB/s)", NO_FLOAT)
    grid: msgspec.Raw = NO_TEXT
    block: msgspec.Raw = NO_TEXT
    registers: int | None = key("registers per thread")
    shared_memory: int | None = key("shared memory")
    blocks_per_sm: float | None = key("blocks per SM", NO_FLOAT)
    warps_per_sm: float | None = key("warps per SM", NO_FLOAT)
    occupancy: float | None = key("est. achieved occupancy %", NO_FLOAT)
    queued: int | None = NO_NUMBER


class SyncArguments(LinkArguments, gc=False):
    """Arguments of the device's waits."""

    sync_kind: msgspec.Raw = key("cuda_sync_kind", NO_TEXT)
    wait_stream: int | None = key("wait_on_stream")
    wait_record: int | None = key("wait_on_cuda_event_record_corr_id")
    wait_event: int | None = key("wait_on_cuda_event_id")
    device: int | None = NO_NUMBER
    stream: int | None = NO_NUMBER


class MemoryArguments(Arguments, gc=False):
    """Arguments of allocations and releases."""

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
    Kind.KERNEL: DetailedDeviceArguments,
    Kind.MEMCPY: DetailedDeviceArguments,
    Kind.MEMSET: DetailedDeviceArguments,
    Kind.SYNC: SyncArguments,
    Kind.MEMORY: MemoryArguments,
}
_WITHOUT_DETAILS: Final[Mapping[type[Arguments], type[Arguments]]] = {DetailedDeviceArguments: DeviceArguments}
# Decoding the details takes a fifth of the time, and attribution does not use them.
ARGUMENTS_WITHOUT_DETAILS: Final[Mapping[Kind, type[Arguments]]] = {
    kind: _WITHOUT_DETAILS.get(arguments, arguments) for kind, arguments in ARGUMENTS.items() if kind is not Kind.PYTHON
}
# Fields of most events are columns of the table. The other fields are sparse: stored only for the events that have
# them.
NUMBER_COLUMNS: Final = ("correlation", "external", "sequence", "forward_thread")
TEXT_COLUMNS: Final = ("shapes", "inputs")
OLD_SPELLINGS: Final = {"external": "external_2021", "shapes": "shapes_2021"}  # the field with the old spelling
DENSE: Final = {*NUMBER_COLUMNS, *TEXT_COLUMNS, *OLD_SPELLINGS.values()}


class Field(NamedTuple):
    """A sparse field of arguments: `name` in this file, `spelling` in traces, `form` "int", "float" or "text"."""

    name: str
    spelling: str
    form: str


def sparse_fields(arguments: type[Arguments]) -> tuple[Field, ...]:
    """Return the sparse fields of `arguments`."""
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
