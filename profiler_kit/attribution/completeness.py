"""What a trace lacks: host events that were filtered out of its file, and the device's work.

The profiler numbers operators and ranges (``External id``) as they begin. Each thread takes blocks of 512 numbers; profilers of
2021 number all threads together. So the numbers between the first and the last event of a trace are complete, up to the ends
of the blocks that a thread enters first and leaves last. Missing numbers are events that were removed from the file.

A profiler records the host alone if the CUDA activity is off, the program may not use CUPTI, or another profiler does. Such a
trace of a device's program looks like one of a program on the CPU.

**Source**: ``ThreadLocalSubqueue::begin_op`` in torch/csrc/profiler/collection.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from profiler_kit.attribution.result import Attribution
from profiler_kit.records.traces import DeviceEvidence, DeviceRecord
from profiler_kit.traces.intervals import length, overlap, union
from profiler_kit.traces.table import DEVICE_TYPE, HOST_TYPE, NONE, Ids, Kind, Table

# Calls of CUDA, HIP, Level Zero and Unified Runtime that launch kernels, and those that copy and fill. A copy or fill of no
# bytes has no device event.
_LAUNCH: Final = re.compile(
    r"\A(cuda|cu|hip)(Ext)?(Module|Graph)?Launch(?!HostFunc)|\Aze\w*AppendLaunchKernel|\AurEnqueueKernelLaunch"
)
_COPY: Final = re.compile(r"\A(cuda|cu|hip)Mem(cpy|set)|\Aze\w*AppendMemory(Copy|Fill)|\AurEnqueueUSM(Memcpy|Fill)")
_CAPTURE: Final = re.compile(r"Stream(Begin|End)Capture")
# The dispatcher names operators after the library or the device that runs them. The attention kernels without
# ``_for_cpu`` run on devices only; ``_use_cudnn`` and ``is_acceptable`` ask on any device.
_DEVICE_OPERATOR: Final = re.compile(
    r"\A\w+::(?!.*(_use_cudnn|is_acceptable))\w*?(?<![a-z0-9])"
    r"(cudnn|miopen|cublas(lt)?|cusparse\w*|cusolver|cufft|cuda|hip|rocm|xpu|mps|mtia|hpu|npu|musa)(?![a-z0-9])|"
    r"\Aaten::_(scaled_dot_product_)?(flash|efficient|cudnn)_attention(?!.*_for_cpu)|"
    r"\A(nccl|rccl|xccl|hccl):|\Atriton_"
)
_DEVICE_INPUT: Final = re.compile(r'"(cuda|hip|xpu|mps|mtia|hpu|npu)(:\d+)?"')
_DEVICE_THREAD: Final = "pt_autograd_"  # torch/csrc/autograd/engine.cpp names the threads of devices; a CPU needs none


def device_record(attribution: Attribution) -> DeviceRecord:
    """Return how much of the device's work the trace of `attribution` holds."""
    table, launches = attribution.table, _launches(attribution)
    evidence, example = next(_evidence(attribution, launches), ("", ""))
    return DeviceRecord(
        launches=len(launches),
        unrecorded_launches=len(attribution.unrecorded_launches),
        lost_events=table.lost_device_events,
        evidence=evidence,
        example=example,
    )


def unrecorded_launches(attribution: Attribution) -> Ids:
    """Return the positions in the host events of launches whose work the trace does not hold."""
    device, launches = attribution.device, _launches(attribution)
    has_work = np.zeros(len(attribution.host.rows), np.bool_)
    has_work[device.launch[device.launch != NONE]] = True
    without: Ids = launches[~has_work[launches]]
    # Writers that leave out correlations have work whose launch is unknown. It may be that of any launch.
    uncorrelated = int(((device.launch == NONE) & (attribution.table.correlation[device.rows] <= 0)).sum())
    return without[uncorrelated:]


def _launches(attribution: Attribution) -> Ids:
    """Return the positions in the host events of calls that launch work: the outermost ones, not those captured into a graph."""
    table, host = attribution.table, attribution.host
    calls = np.flatnonzero(table.kind[host.rows] == Kind.RUNTIME).astype(np.int32)
    launches = calls[table.named(host.rows[calls], _LAUNCH)]
    marks = calls[table.named(host.rows[calls], _CAPTURE)]
    if len(marks):
        marks = marks[np.argsort(host.start_ns[marks], kind="stable")]
        begins = table.with_names(host.rows[marks], lambda name: "Begin" in name)
        opened = np.flatnonzero(begins[:-1] & ~begins[1:])
        captures = union(host.start_ns[marks[opened]], host.end_ns[marks[opened + 1]])
        inside = overlap(captures, host.start_ns[launches], host.end_ns[launches]) > 0
        launches = launches[~inside] if length(captures) else launches
    # a call of the runtime contains one of the driver with the same correlation
    _, first = np.unique(
        np.stack((table.correlation[host.rows[launches]], host.thread[launches])), axis=1, return_index=True
    )
    correlated = table.correlation[host.rows[launches]] >= 0
    result: Ids = launches[np.isin(np.arange(len(launches)), first) | ~correlated]
    return result


def _evidence(attribution: Attribution, launches: Ids) -> Iterator[tuple[DeviceEvidence, str]]:
    """Yield what shows that the program used a device, the strongest first, each with the name of an example."""
    table, host = attribution.table, attribution.host
    if table.lost_device_events:
        yield "lost events", ""
    if len(launches):
        yield "launches", _name(table, host.rows[launches])
    calls = np.flatnonzero(table.of(Kind.RUNTIME)).astype(np.int32)
    calls = calls[table.named(calls, _COPY)]
    if len(calls):
        yield "copies", _name(table, calls)
    rows = np.flatnonzero(table.of(Kind.OPERATOR, Kind.ANNOTATION)).astype(np.int32)
    rows = rows[table.named(rows, _DEVICE_OPERATOR)]
    if len(rows):
        yield "operators", _name(table, rows)
    memory = np.flatnonzero(table.of(Kind.MEMORY)).astype(np.int32)
    if (table.numbers_at(DEVICE_TYPE, memory) > HOST_TYPE).any():
        yield "memory", ""
    threads = np.unique(host.thread[attribution.nodes]).tolist()
    names = [table.threads[number].name for number in threads if number != NONE]
    if any(_DEVICE_THREAD in name for name in names):
        yield "threads", next(name for name in names if _DEVICE_THREAD in name)
    used = np.unique(table.inputs[table.inputs != NONE]).tolist()
    match = next((found for i in used if (found := _DEVICE_INPUT.search(table.texts[i]))), None)
    if match is not None:
        yield "inputs", match[0].strip('"')


def _name(table: Table, rows: Ids) -> str:
    name: str = table.names[int(table.name[rows[0]])]
    return name


_BLOCK: Final = 512


def missing_host_events(table: Table) -> int:
    """Return the number of operators and ranges that were recorded and are not in the trace."""
    is_numbered = ((table.kind == Kind.OPERATOR) | (table.kind == Kind.ANNOTATION)) & (table.external > 0)
    if not is_numbered.any():
        return 0
    number, thread = table.external[is_numbered] - 1, table.thread[is_numbered]
    block = number // _BLOCK
    thread_starts = np.flatnonzero(np.diff(thread, prepend=-2))  # few: the rows of a thread are mostly adjacent
    entered: dict[int, int] = {}
    left: dict[int, int] = {}
    lows, highs = np.minimum.reduceat(block, thread_starts), np.maximum.reduceat(block, thread_starts)
    for owner, low, high in zip(thread[thread_starts].tolist(), lows.tolist(), highs.tolist(), strict=True):
        entered[owner] = min(low, entered.get(owner, low))
        left[owner] = max(high, left.get(owner, high))
    number.sort(kind="stable")  # linear, as the numbers mostly ascend
    number = number[np.diff(number, prepend=-1) > 0]
    first_index = np.flatnonzero(np.diff(number // _BLOCK, prepend=-1))
    present = np.diff(first_index, append=len(number))
    lowest, highest = number[first_index], number[first_index + present - 1]
    blocks = lowest // _BLOCK
    start = np.where(np.isin(blocks, list(entered.values())), lowest, blocks * _BLOCK)
    end = np.where(np.isin(blocks, list(left.values())), highest, blocks * _BLOCK + _BLOCK - 1)
    return int((end - start + 1 - present).sum())
