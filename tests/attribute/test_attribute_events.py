from __future__ import annotations

import gzip
import json
from fractions import Fraction
from pathlib import Path

import pytest
from attribute_traces import MAIN, TraceText
from hypothesis import given
from hypothesis import strategies as st

from profiler_kit.attribute.events import DeviceKind, HostKind, nanoseconds, parse_trace, read_trace
from profiler_kit.errors import TraceError

PUBLISHED = Path(__file__).parents[2].parent / "shared" / "traces"


@given(st.integers(0, 2**62), st.sampled_from(["{0}.{1:03d}", "{0}.{1:03d}000", "{0}.{1:03d}4"]))
def test_times_lose_nothing(ns: int, form: str) -> None:
    assert nanoseconds(form.format(ns // 1000, ns % 1000)) == ns


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=0, max_value=10**16, places=6))
def test_times_are_rounded_to_the_nearest_ns(microseconds: object) -> None:
    assert abs(nanoseconds(str(microseconds)) - Fraction(str(microseconds)) * 1000) <= Fraction(1, 2)


@pytest.mark.parametrize(
    ("written", "ns"),
    [(5, 5000), ("5", 5000), ("0.5", 500), ("1.5e3", 1_500_000), ("1790857026000123.457", 1790857026000123457)],
)
def test_spellings_of_a_time(written: int | str, ns: int) -> None:
    assert nanoseconds(written) == ns


@pytest.mark.parametrize("written", ["NaN", "Infinity", "", "soon"])
def test_no_time(written: str) -> None:
    with pytest.raises(ValueError, match="no time"):
        nanoseconds(written)


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


def test_numbers_may_be_quoted_and_minus_one_is_none() -> None:
    args = [
        {"Sequence number": "7", "Fwd thread id": "2"},
        {"Sequence number": -1, "Fwd thread id": 0},
        {"Sequence number": None},
    ]
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "x", "pid": 1, "tid": 1, "ts": i, "dur": 1, "args": a}
        for i, a in enumerate(args)
    ]
    read = parse_trace(json.dumps(events).encode(), "t").host
    assert [(e.sequence, e.forward_thread, e.is_node) for e in read] == [
        (7, 2, True),
        (None, 0, False),
        (None, 0, False),
    ]


def test_old_and_new_names_of_categories_read_alike() -> None:
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
        trace = parse_trace(json.dumps({"traceEvents": events}).encode(), "t")
        return [*trace.host, *trace.device]

    assert read([category for category, _ in old]) == read(new)


def test_mirrored_annotations_flows_and_metadata_are_no_events() -> None:
    events = [
        {"ph": "X", "cat": "gpu_user_annotation", "name": "pk:phase:forward", "pid": 0, "tid": 7, "ts": 1, "dur": 2},
        {"ph": "s", "cat": "ac2g", "id": 1, "pid": 1, "tid": 1, "ts": 1, "name": "ac2g"},
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "x", "ts": 0, "dur": 9},
    ]
    trace = parse_trace(json.dumps(events).encode(), "t")  # a bare list is a Chrome trace too
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
def test_a_malformed_event_costs_itself_only(broken: object) -> None:
    good = {"ph": "X", "cat": "kernel", "name": "good", "pid": 0, "tid": 7, "ts": 1, "dur": 1}
    trace = parse_trace(json.dumps({"traceEvents": [broken, good]}).encode(), "t")
    assert [event.name for event in trace.device] == ["good"]
    assert trace.malformed == 1


def test_names_may_hold_anything() -> None:
    text = b'{"traceEvents": [{"ph":"X","cat":"cpu_op","name":"a\xff\x01b","pid":1,"tid":1,"ts":1,"dur":1}]}'
    assert parse_trace(text, "t").host[0].name == "a�\x01b"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"this is no JSON", "not JSON|cut off"),
        (b'{"a": 1}', "no 'traceEvents'"),
        (b'{"traceEvents": {}}', "no 'traceEvents'"),
        (b"17", "no 'traceEvents'"),
        (b"[]", "no event"),
        (b'{"traceEvents": [{"name": "x"}]}', "has a 'ph'"),
        (b"[1, 2]", "has a 'ph'"),
        (b"[" * 100_000, "nested too deeply|cut off"),
        (b'{"traceEvents": [{"ph": }]}', "not JSON"),
        (b"\x1f\x8b\x08\x00garbage", "gzip"),
    ],
)
def test_no_trace(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=says) as caught:
        read_trace(path)
    assert caught.value.where == str(path)
    assert caught.value.hint


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(TraceError, match="cannot be read"):
            read_trace(path)


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


def test_gzip_is_told_by_its_bytes(tmp_path: Path) -> None:
    trace = TraceText()
    trace.op("aten::relu", 0, 5, tid=MAIN)
    path = tmp_path / "zipped.json"
    path.write_bytes(gzip.compress(trace.text().encode()))
    assert [event.name for event in read_trace(path).host] == ["aten::relu"]


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published traces are not beside this checkout")
@pytest.mark.parametrize("name", ["h100/convnet_v0", "hta/ns_resolution_resnet_ddp_v100", "tracelens/mi210_gpu_only"])
def test_published_traces_are_read_whole(name: str) -> None:
    path = PUBLISHED / f"{name}.json.gz"
    trace = read_trace(path)
    written = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    device = [e for e in written if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    assert len(trace.device) == len(device)
    assert trace.malformed == 0
    assert abs(sum(e.end_ns - e.start_ns for e in trace.device) - 1000 * sum(float(e["dur"]) for e in device)) < len(
        device
    )
