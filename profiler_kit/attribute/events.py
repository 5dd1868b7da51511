"""A trace file to typed events. The only file that knows how torch.profiler spells things.

What is read here is the Chrome trace JSON that Kineto writes: complete events (``"ph": "X"``) of the host (operators,
annotations, calls of the device's runtime) and of the device (kernels, copies, fills). Everything else in the file
(flows, counters, metadata, mirrored annotations) says nothing that these don't, and is skipped.

Times leave this file as integer ns. The file holds µs as decimal text, and a float would not do: µs since 1970 have
sixteen digits before any fraction is kept.
"""

from __future__ import annotations

import gc
import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from enum import Enum
from math import floor
from pathlib import Path
from typing import Any, Final, NamedTuple

from profiler_kit.errors import TraceError


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


# Category as written -> kind. Kineto has renamed most of them once (2021: Operator, Runtime, Kernel, Memcpy, Memset).
# gpu_user_annotation is missing on purpose: it mirrors host annotations onto the device's timeline and is no work.
HOST_KINDS: Final = {
    "cpu_op": HostKind.OPERATOR,
    "Operator": HostKind.OPERATOR,
    "user_annotation": HostKind.ANNOTATION,
    "cuda_runtime": HostKind.RUNTIME,
    "cuda_driver": HostKind.RUNTIME,
    "Runtime": HostKind.RUNTIME,
    "hip_runtime": HostKind.RUNTIME,
    "xpu_runtime": HostKind.RUNTIME,
    "privateuse1_runtime": HostKind.RUNTIME,
}
DEVICE_KINDS: Final = {
    "kernel": DeviceKind.KERNEL,
    "Kernel": DeviceKind.KERNEL,
    "gpu_memcpy": DeviceKind.MEMCPY,
    "Memcpy": DeviceKind.MEMCPY,
    "gpu_memset": DeviceKind.MEMSET,
    "Memset": DeviceKind.MEMSET,
}
_NODE_PREFIX: Final = "autograd::engine::evaluate_function: "
_ACCUMULATE: Final = "torch::autograd::AccumulateGrad"
_GZIP_MAGIC: Final = b"\x1f\x8b"
_HINT_AGAIN: Final = "record the trace again; a run that was stopped leaves its last file unfinished"
_HINT_WHAT: Final = "give a .json or .json.gz file that torch.profiler exported"


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
        return self.is_node and self.name.endswith(_ACCUMULATE)


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
    where = str(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror}", where=where, hint=_HINT_WHAT) from error
    return parse_trace(data, where)


def parse_trace(data: bytes, where: str) -> Trace:
    """The typed events in a trace file's bytes; `where` names it in errors. Raises TraceError."""
    if data[:2] == _GZIP_MAGIC:
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise TraceError(
                f"the gzip stream is cut off or damaged: {error}", where=where, hint=_HINT_AGAIN
            ) from error
    if not data.strip():
        raise TraceError("the file is empty", where=where, hint=_HINT_AGAIN)
    with _no_garbage_collection():
        return _typed(_events(_decode(data, where), where), where)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """The cyclic collector off: it walks millions of fresh, acyclic objects again and again, for half of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _decode(data: bytes, where: str) -> Any:
    # Names may hold anything the user's program did, broken UTF-8 and control characters included.
    text = data.decode("utf-8", errors="replace")
    try:
        return json.loads(text, parse_float=str, strict=False)
    except json.JSONDecodeError as error:
        if not text.rstrip().endswith(("}", "]")) or error.pos >= len(text.rstrip()) - 1:
            raise TraceError(
                f"the JSON is cut off after {len(data):,} bytes (line {error.lineno})", where=where, hint=_HINT_AGAIN
            ) from error
        raise TraceError(f"not JSON: {error}", where=where, hint=_HINT_WHAT) from error
    except RecursionError as error:
        raise TraceError("not a trace: nested too deeply", where=where, hint=_HINT_WHAT) from error


def _events(document: Any, where: str) -> list[Any]:
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise TraceError("not a trace: no 'traceEvents' list", where=where, hint=_HINT_WHAT)
    if not events:
        raise TraceError("the trace holds no event", where=where, hint=_HINT_AGAIN)
    if not any(isinstance(event, dict) and "ph" in event for event in events):
        raise TraceError("not a trace: nothing in 'traceEvents' has a 'ph'", where=where, hint=_HINT_WHAT)
    return events


def _typed(events: list[Any], where: str) -> Trace:
    host: list[HostEvent] = []
    device: list[DeviceEvent] = []
    threads: dict[tuple[Any, Any], Thread] = {}
    malformed = 0
    for event in events:
        if not isinstance(event, dict):
            malformed += 1
            continue
        if event.get("ph") != "X":
            continue
        category = event.get("cat")
        try:
            host_kind = HOST_KINDS.get(category)  # type: ignore[arg-type]
            if host_kind is not None:
                host.append(_host_event(host_kind, event, threads))
                continue
            device_kind = DEVICE_KINDS.get(category)  # type: ignore[arg-type]
            if device_kind is not None:
                device.append(_device_event(device_kind, event))
        except (AttributeError, KeyError, TypeError, ValueError):  # a field is missing or of another type
            malformed += 1
    # Kineto rounds both ends to ns, so a child may begin with its parent: the longer one, then the one written first, encloses.
    host.sort(key=lambda e: (e.start_ns, -e.end_ns))
    device.sort(key=lambda e: (e.start_ns, -e.end_ns))
    return Trace(file=where, host=tuple(host), device=tuple(device), malformed=malformed)


def _host_event(kind: HostKind, event: dict[str, Any], threads: dict[tuple[Any, Any], Thread]) -> HostEvent:
    args = event.get("args") or {}
    name = str(event["name"])
    start, end = _interval(event)
    key = (event["pid"], event["tid"])
    thread = threads.get(key)
    if thread is None:
        thread = threads[key] = Thread(str(key[0]), str(key[1]))
    if kind is HostKind.RUNTIME:
        return HostEvent(kind, name, thread, start, end, correlation=_integer(args.get("correlation")))
    if kind is HostKind.ANNOTATION:
        return HostEvent(kind, name, thread, start, end)
    sequence = _integer(args.get("Sequence number"))
    forward_thread = _integer(args.get("Fwd thread id")) or 0
    is_node = name.startswith(_NODE_PREFIX) or name == _ACCUMULATE or (forward_thread != 0 and sequence is not None)
    if sequence is not None and sequence < 0:  # the profiler writes -1 for "none"
        sequence = None
    return HostEvent(kind, name, thread, start, end, sequence, forward_thread, None, is_node)


def _device_event(kind: DeviceKind, event: dict[str, Any]) -> DeviceEvent:
    args = event.get("args") or {}
    start, end = _interval(event)
    return DeviceEvent(
        kind=kind,
        name=str(event["name"]),
        device=str(args.get("device", event.get("pid"))),
        stream=str(args.get("stream", event.get("tid"))),
        start_ns=start,
        end_ns=end,
        correlation=_integer(args.get("correlation")),
    )


def _interval(event: dict[str, Any]) -> tuple[int, int]:
    start = nanoseconds(event["ts"])
    duration = nanoseconds(event.get("dur", 0))
    if duration < 0:
        raise ValueError("negative duration")
    return start, start + duration


def nanoseconds(microseconds: int | str) -> int:
    """`microseconds`, an integer or decimal text as the file holds it, in whole ns, rounded half up, without a float.

    Raises: ValueError for text that is no finite number.
    """
    if isinstance(microseconds, int):
        return microseconds * 1000
    whole, _, fraction = microseconds.partition(".")
    if len(fraction) == 3 and fraction.isdecimal() and whole.isdecimal():  # what Kineto writes, and nearly every event
        return int(whole) * 1000 + int(fraction)
    try:
        return floor(Decimal(microseconds) * 1000 + Decimal("0.5"))
    except (InvalidOperation, OverflowError, ValueError) as error:
        raise ValueError(f"{microseconds!r} is no time") from error


def _integer(value: Any) -> int | None:
    """An id as an int; some writers quote their numbers."""
    if isinstance(value, bool) or value is None:
        return None
    return int(value)
