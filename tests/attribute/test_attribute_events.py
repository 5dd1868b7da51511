from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from attribute_traces import TraceText

from profiler_kit.attribute.events import DeviceKind, HostKind, Trace, read_trace
from profiler_kit.errors import TraceError


def typed(folder: Path, events: list[Any]) -> Trace:
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return read_trace(path)


def test_events_are_typed_and_in_order(tmp_path: Path) -> None:
    trace = TraceText()
    trace.kernel("k", 2_000_000_000_000_500, 2_000_000_000_000_700, launched=2_000_000_000_000_200)
    trace.op("aten::inner", 2_000_000_000_000_100, 2_000_000_000_000_300)
    trace.op("aten::outer", 2_000_000_000_000_100, 2_000_000_000_000_400, sequence=7)
    trace.kernel("Memset (Device)", 2_000_000_000_000_001, 2_000_000_000_000_002, launched=None, category="gpu_memset")
    read = read_trace(trace.save(tmp_path))
    assert [e.name for e in read.host] == ["aten::outer", "aten::inner", "cudaLaunchKernel"]
    assert [e.kind for e in read.host] == [HostKind.OPERATOR, HostKind.OPERATOR, HostKind.RUNTIME]
    assert read.host[0].sequence == 7
    assert not read.host[0].is_node
    assert [(e.kind, e.start_ns, e.end_ns) for e in read.device] == [
        (DeviceKind.MEMSET, 2_000_000_000_000_001, 2_000_000_000_000_002),
        (DeviceKind.KERNEL, 2_000_000_000_000_500, 2_000_000_000_000_700),
    ]
    assert read.host[2].correlation == read.device[1].correlation


def test_numbers_may_be_quoted_and_minus_one_is_none(tmp_path: Path) -> None:
    args = [
        {"Sequence number": "7", "Fwd thread id": "2"},
        {"Sequence number": -1, "Fwd thread id": 0},
        {"Sequence number": None},
    ]
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "x", "pid": 1, "tid": 1, "ts": i, "dur": 1, "args": a}
        for i, a in enumerate(args)
    ]
    read = typed(tmp_path, events).host
    assert [(e.sequence, e.forward_thread, e.is_node) for e in read] == [
        (7, 2, True),
        (None, 0, False),
        (None, 0, False),
    ]


def test_old_and_new_names_of_categories_read_alike(tmp_path: Path) -> None:
    old = [
        ("Operator", "aten::relu"),
        ("Runtime", "cudaLaunchKernel"),
        ("Kernel", "k"),
        ("Memcpy", "Memcpy HtoD"),
        ("Memset", "m"),
    ]
    new = ["cpu_op", "cuda_runtime", "kernel", "gpu_memcpy", "gpu_memset"]

    def read(categories: list[str]) -> list[object]:
        events = [
            {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 2, "ts": i, "dur": 1, "args": {"correlation": 5}}
            for i, (cat, (_, name)) in enumerate(zip(categories, old, strict=True))
        ]
        trace = typed(tmp_path, events)
        return [*trace.host, *trace.device]

    assert read([category for category, _ in old]) == read(new)


def test_mirrored_annotations_flows_and_metadata_are_no_events(tmp_path: Path) -> None:
    events = [
        {"ph": "X", "cat": "gpu_user_annotation", "name": "pk:phase:forward", "pid": 0, "tid": 7, "ts": 1, "dur": 2},
        {"ph": "s", "cat": "ac2g", "id": 1, "pid": 1, "tid": 1, "ts": 1, "name": "ac2g"},
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "x", "ts": 0, "dur": 9},
    ]
    trace = typed(tmp_path, events)
    assert (trace.host, trace.device, trace.malformed) == ((), (), 0)


@pytest.mark.parametrize(
    "broken",
    [
        "nothing", 7, None,
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "dur": 1},
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": "soon", "dur": 1},
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": -1},
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": None, "dur": 1},
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1, "args": ["correlation"]},
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "args": {"correlation": "five"}},
        {"ph": "X", "cat": ["kernel"], "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1},
        {"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 1, "pid": 0, "tid": 0},
    ],
)  # fmt: skip
def test_a_malformed_event_costs_itself_only(tmp_path: Path, broken: object) -> None:
    good = {"ph": "X", "cat": "kernel", "name": "good", "pid": 0, "tid": 7, "ts": 1, "dur": 1}
    trace = typed(tmp_path, [broken, good])
    assert [event.name for event in trace.device] == ["good"]
    assert trace.malformed == 1


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.999])
def test_cut_off(tmp_path: Path, kept: float) -> None:
    trace = TraceText()
    for i in range(100):
        trace.kernel(f"kernel {i}", 10 * i, 10 * i + 5, launched=i)
    plain = trace.text().encode()
    for data in (plain[: int(kept * len(plain))], gzip.compress(plain)[: int(kept * len(gzip.compress(plain)))]):
        path = tmp_path / "cut.json"
        path.write_bytes(data)
        with pytest.raises(TraceError, match="cut off"):
            read_trace(path)
