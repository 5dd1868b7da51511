"""Small hand-written traces in every dialect."""

from __future__ import annotations

import dataclasses
import gc
import gzip
import json
import pickle
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

import examples
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler_kit.errors import TraceError
from profiler_kit.traces import dialect
from profiler_kit.traces.entries import scan_entries
from profiler_kit.traces.reader import read
from profiler_kit.traces.rows import Rows
from profiler_kit.traces.table import Kind, Stream, Table, Thread

Event = dict[str, Any]
DEEP = b"[" * 100_000
FIRST_SHAPES = {"Input Dims": [[1, 2], []], "Concrete Inputs": ["", "1"]}


def save(folder: Path, document: Any) -> Path:
    path = folder / "trace.json"
    path.write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())
    return path


def table(folder: Path, *events: Any, block_bytes: int = 1 << 20, **header: Any) -> Table:
    result = read(save(folder, {**header, "traceEvents": list(events)}), block_bytes=block_bytes)
    assert adds_up(result)
    return result


def adds_up(found: Table) -> bool:
    counted = found.pairs + found.flows + found.metadata + found.unpaired + found.malformed
    return len(found) + counted == found.events


def x(
    cat: str, name: str = "n", ts: float | str = 1, dur: float | str = 1, pid: Any = 1, tid: Any = 1, **args: Any
) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def sparse(found: Table, spelling: str) -> dict[int, Any]:
    column = found.more[spelling]
    values = [column.texts[v] for v in column.values.tolist()] if column.texts else column.values.tolist()
    return dict(zip(column.rows.tolist(), values, strict=True))


def test_a_new_profilers_category_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = x("npu_kernel", "k", ts=5, device=0, stream=7, correlation=3)
    assert table(tmp_path, x("cpu_op"), work).kind.tolist() == [Kind.OPERATOR, Kind.OTHER]
    monkeypatch.setattr(dialect, "KINDS", {**dialect.KINDS, "npu_kernel": Kind.KERNEL})
    result = table(tmp_path, x("cpu_op"), work)
    assert result.kind.tolist() == [Kind.OPERATOR, Kind.KERNEL]
    assert result.streams[result.stream[1]] == Stream("0", "7")
    assert result.correlation[1] == 3
    assert scan_entries(tmp_path / "trace.json").kind.tolist() == [Kind.OPERATOR, Kind.KERNEL]


@pytest.mark.parametrize(
    ("kind", "categories"),
    [
        (Kind.OPERATOR, ["cpu_op", "Operator"]),
        (Kind.ANNOTATION, ["user_annotation"]),
        (Kind.PYTHON, ["python_function"]),
        (Kind.RUNTIME, ["cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "xpu_runtime", "xpu_driver", "mtia_runtime",
                        "privateuse1_runtime", "privateuse1_driver", "glow_runtime"]),
        (Kind.KERNEL, ["kernel", "Kernel", "mtia_ccp_events"]),
        (Kind.MEMCPY, ["gpu_memcpy", "Memcpy"]),
        (Kind.MEMSET, ["gpu_memset", "Memset"]),
        (Kind.SYNC, ["cuda_sync", "xpu_sync"]),
        (Kind.MIRROR, ["gpu_user_annotation"]),
        (Kind.OTHER, ["overhead", "Trace", "cuda_profiler_range", "what nobody has met", "external_correlation"]),
    ],
)  # fmt: skip
def test_categories_of_all_years(tmp_path: Path, kind: Kind, categories: list[str]) -> None:
    result = table(tmp_path, x("cpu_op"), *(x(category) for category in categories))
    assert result.kind[1:].tolist() == [kind] * len(categories)
    assert [result.categories[i] for i in result.category[1:].tolist()] == categories


def test_phases(tmp_path: Path) -> None:
    result = table(
        tmp_path,
        x("cpu_op"),
        {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "ts": 2, "args": {"Bytes": -512}},
        {"ph": "i", "name": "[memory]", "ts": 2, "args": {"Bytes": 7}},  # as in 2021
        {"ph": "I", "name": "Record Window End", "ts": 3, "pid": "", "tid": ""},
        {"ph": "C", "name": "gpu", "ts": 3, "args": {"util": 50.5, "power": 300}},
        {"ph": "b", "cat": "cpu_op", "name": "async", "id": 1, "ts": 3},
        {"ph": "M", "name": "process_name", "args": {"name": "python"}},
        {"ph": "s", "id": 1, "ts": 1, "cat": "ac2g"},
        {"ph": "f", "id": 1, "ts": 1, "cat": "ac2g", "bp": "e"},
        {"ph": "☃", "name": "snowman", "ts": 5},
        {"name": "no phase", "ts": 5},
    )
    assert [Kind(k) for k in result.kind.tolist()] == [
        Kind.OPERATOR, Kind.MEMORY, Kind.MEMORY, Kind.INSTANT, Kind.COUNTER, Kind.OTHER, Kind.OTHER
    ]  # fmt: skip
    assert (result.events, result.flows, result.metadata, result.malformed) == (11, 2, 1, 1)
    assert sparse(result, "Bytes") == {1: -512, 2: 7}
    assert sparse(result, "counter util") == {4: 50.5}
    assert sparse(result, "counter power") == {4: 300.0}
    assert result.info.profile_memory


def test_what_joins_events_in_the_spelling_of_2021_and_now(tmp_path: Path) -> None:
    result = table(
        tmp_path,
        x("cpu_op", **{"External id": 5, "Sequence number": 7, "Fwd thread id": 2}, **FIRST_SHAPES),
        x("Operator", **{"External id": "6", "Sequence number": "-1", "Input dims": [[3]]}),
        x("Runtime", **{"correlation": 9, "external id": 6}),
        x("cuda_runtime", **{"correlation": "10", "External id": 5}),
        x("kernel", pid=0, tid=7, correlation=10, device=1, stream=20),
        x("Kernel", pid=0, tid="stream 7", correlation=None),
        x("cpu_op"),
    )  # fmt: skip
    assert result.external.tolist() == [5, 6, 6, 5, -1, -1, -1]
    assert result.correlation.tolist() == [-1, -1, 9, 10, 10, -1, -1]
    assert result.sequence.tolist() == [7, -1, -1, -1, -1, -1, -1]
    assert result.forward_thread.tolist() == [2, 0, 0, 0, 0, 0, 0]
    assert [result.texts[i] if i >= 0 else None for i in result.shapes.tolist()][:2] == ["[[1, 2], []]", "[[3]]"]
    assert [result.texts[i] if i >= 0 else None for i in result.inputs.tolist()][:2] == ['["", "1"]', None]
    assert [result.streams[i] if i >= 0 else None for i in result.stream.tolist()[4:]] == [
        Stream("1", "20"), Stream("0", "stream 7"), None
    ]  # fmt: skip
    assert result.info.record_shapes


def test_ids_that_do_not_fit_or_are_no_numbers_are_none(tmp_path: Path) -> None:
    result = table(
        tmp_path,
        x("kernel", correlation=2**63 - 1), x("kernel", correlation=2**64), x("kernel", correlation=-(2**70)),
        x("kernel", correlation="five"), x("kernel", correlation=[5]), {**x("kernel"), "args": 7}, {**x("kernel"), "args": None},
    )  # fmt: skip
    assert result.correlation.tolist() == [2**63 - 1, -1, -1, -1, -1, -1, -1]
    assert (result.malformed, result.lost_device_events) == (0, 0)


@pytest.mark.parametrize(
    "value", ["inf", "-inf", "nan", "-nan(ind)", "NaN", "Infinity", "1.#INF", "undefined", "None", "0x1f", ".5", "+3"]
)
@pytest.mark.parametrize("place", ["event", "args"])
def test_a_value_that_json_does_not_have_costs_itself_only(tmp_path: Path, value: str, place: str) -> None:
    kernel = json.dumps({**x("kernel", "a, inf: nan", correlation=3, device=1, stream=7), "extra": "HERE"})
    if place == "args":
        kernel = json.dumps(x("kernel", "a, inf: nan", correlation=3, device=1, stream=7, extra="HERE"))
    text = f"[{kernel.replace(json.dumps('HERE'), value)},{json.dumps(x('cpu_op', 'next'))}]"
    result = read(save(tmp_path, text.encode()))
    assert [result.names[i] for i in result.name.tolist()] == ["a, inf: nan", "next"]
    assert (result.correlation[0], result.streams) == (3, (Stream("1", "7"),))
    assert (result.malformed, result.lost_device_events) == (0, 0)


@pytest.mark.parametrize(("cat", "lost"), [("cpu_op", 0), ("kernel", 1), ("user_annotation", 0)])
@pytest.mark.parametrize("times", [{"dur": 1e9}, {"ts": 1e9}, {"ts": -1e9}])
def test_times_far_outside_the_span_of_the_profiler_are_errors(
    tmp_path: Path, cat: str, lost: int, times: dict[str, float]
) -> None:
    usual = [x(category, ts=100 * i, dur=50) for i in range(30) for category in ("cpu_op", "kernel")]
    recording = x("Trace", "PyTorch Profiler (0)", ts=0, dur=4000)
    result = table(tmp_path, *usual, {**x(cat, "late"), **times}, recording)
    assert (len(result), result.malformed, result.lost_device_events) == (61, 1, lost)
    assert "late" not in {result.names[i] for i in result.name.tolist()}


def test_a_long_wait_is_inside_the_recording(tmp_path: Path) -> None:
    work = [x("cuda_runtime", "cudaLaunchKernel"), x("kernel", ts=10, dur=1e9), x("cuda_runtime", ts=20, dur=1e9)]
    result = table(tmp_path, *work)
    assert (len(result), result.malformed) == (3, 0)


def test_lost_device_events_are_counted(tmp_path: Path) -> None:
    invalid = '{"ph": "X", "cat": "gpu_memcpy", "name": "copy" "ts": 1}'
    without_times = [{**x(category), "ts": None} for category in ("kernel", "Kernel", "gpu_memset", "cpu_op")]
    text = f"[{','.join([*map(json.dumps, [x('kernel'), *without_times]), invalid])}]"
    result = read(save(tmp_path, text.encode()))
    assert (len(result), result.malformed, result.lost_device_events) == (1, 5, 4)


GARBAGE = (
    7,
    None,
    "text",
    [1],
    {"correlation": "five"},
    {"Python id": "five"},
    {"grid": "five"},
    {"bytes": [5]},
    {"stream": 7},
)


def test_reading_without_details_differs_in_sparse_columns_alone(tmp_path: Path) -> None:
    events = [
        {**x(category, f"{category} {i}", ts=i), "args": a} for i, a in enumerate(GARBAGE) for category in dialect.KINDS
    ]
    path = save(tmp_path, {"traceEvents": events})
    detailed, brief = read(path), read(path, details=False)
    assert adds_up(brief)
    for field in dataclasses.fields(Table):
        if field.name != "more":
            assert np.array_equal(getattr(detailed, field.name), getattr(brief, field.name)), field.name
    assert set(brief.more) < set(detailed.more)
    assert {"Python id", "grid"} & set(brief.more) == set()


def test_a_python_call_needs_no_valid_details(tmp_path: Path) -> None:
    result = table(tmp_path, {**x("python_function"), "args": 7}, x("python_function", **{"Python id": 5}))
    assert result.malformed == 0
    assert sparse(result, "Python id") == {1: 5}


def test_details_of_few_events(tmp_path: Path) -> None:
    collective = {
        "Collective name": "allreduce", "In msg nelems": 10, "Out msg nelems": 20, "Group size": 2, "dtype": "Float",
        "Process Group Name": "0", "Process Group Ranks": "[0, 1]",
    }  # fmt: skip
    result = table(
        tmp_path,
        x("kernel", grid=[1, 2, 3], queued=0, **{"registers per thread": 32, "est. achieved occupancy %": 12.5}),
        x("gpu_memcpy", **{"bytes": 4096, "memory bandwidth (GB/s)": 1.5}),
        x("kernel", "ncclDevKernel", **collective),
        x("cpu_op", "record_param_comms", **{**collective, "Process Group Ranks": [0, 1]}),
        x("python_function", **{"Python id": 3, "Python parent id": None, "Python module id": 1}),
        x("cuda_sync", cuda_sync_kind="Stream Sync", wait_on_stream=7, wait_on_cuda_event_record_corr_id=12),
        x("kernel", bytes="a lot", grid=None),
    )  # fmt: skip
    assert sparse(result, "grid")[0] == "[1, 2, 3]"
    assert sparse(result, "registers per thread") == {0: 32}
    assert sparse(result, "est. achieved occupancy %") == {0: 12.5}
    assert sparse(result, "bytes") == {1: 4096}
    assert sparse(result, "memory bandwidth (GB/s)") == {1: 1.5}
    assert sparse(result, "Collective name") == {2: "allreduce", 3: "allreduce"}
    assert sparse(result, "Out msg nelems") == {2: 20, 3: 20}
    assert sparse(result, "Process Group Ranks") == {2: "[0, 1]", 3: "[0, 1]"}
    assert sparse(result, "Python id") == {4: 3}
    assert "Python parent id" not in result.more
    assert sparse(result, "cuda_sync_kind") == {5: "Stream Sync"}
    assert sparse(result, "wait_on_stream") == {5: 7}
    assert result.info.with_stack
    for column in result.more.values():
        assert (column.rows[1:] > column.rows[:-1]).all()


def test_the_header_may_stand_before_and_after_the_events(tmp_path: Path) -> None:
    result = table(
        tmp_path, x("cpu_op"), schemaVersion=1, deviceProperties=[{"id": 0, "name": "H100"}, {"id": 1, "name": "A100"}],
        distributedInfo={"rank": 3, "world_size": "8", "backend": "nccl"},
    )  # fmt: skip
    assert (result.info.rank, result.info.world_size, result.info.backend) == (3, 8, "nccl")
    assert result.info.devices == ("H100", "A100")
    after = {"traceEvents": [x("cpu_op")], "baseTimeNanoseconds": 17, "with_stack": 1, "distributedInfo": {"rank": 1}}
    info = read(save(tmp_path, after)).info
    assert (info.base_ns, info.with_stack, info.rank, info.world_size) == (17, True, 1, None)
    broken = {
        "traceEvents": [x("cpu_op")],
        "distributedInfo": [1],
        "deviceProperties": {"a": 1},
        "baseTimeNanoseconds": "x",
    }
    info = read(save(tmp_path, broken)).info
    assert (info.rank, info.devices, info.base_ns) == (None, (), 0)


def test_threads_have_pytorchs_name_of_them(tmp_path: Path) -> None:
    def named(name: str) -> Event:
        return {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": name}}

    for order in (("thread 2 (pt_autograd_0)", "thread 2 (python)"), ("thread 2 (python)", "thread 2 (pt_autograd_0)")):
        result = table(tmp_path, x("cpu_op", tid="2"), x("cpu_op", tid=3), *map(named, order))
        assert result.threads == (Thread("1", "2", "thread 2 (pt_autograd_0)"), Thread("1", "3"))


def test_events_without_categories_say_in_the_process_what_they_are(tmp_path: Path) -> None:
    """As torch.autograd.profiler writes them."""
    bare = {"ph": "X", "name": "aten::add", "ts": 1.5, "dur": 2, "tid": 0, "args": {}}
    path = save(tmp_path, [{**bare, "pid": "CPU functions"}, {**bare, "pid": "CUDA functions"}, {**bare, "pid": 7}])
    assert [Kind(k) for k in read(path).kind.tolist()] == [Kind.OPERATOR, Kind.KERNEL, Kind.OTHER]


@pytest.mark.parametrize("block_bytes", [7, 64, 1 << 20])
def test_pairs_are_rows_where_they_begin(tmp_path: Path, block_bytes: int) -> None:
    def half(ph: str, ts: int, name: str | None = None, tid: int = 1) -> Event:
        return {"ph": ph, "cat": "cpu_op", "pid": 1, "tid": tid, "ts": ts, **({"name": name} if name else {})}

    result = table(
        tmp_path,
        half("B", 1, "outer"), half("B", 2, "inner"), half("B", 2, "elsewhere", tid=2), half("E", 3), half("E", 9), half("E", 10),
        x("cpu_op", "complete", **{"Input Dims": [[1]], "Call stack": "a"}), half("B", 11, "backwards"), half("E", 10),
        half("B", 12, "never ends"), half("E", 20, tid=2), x("kernel", "k", bytes=8),
        block_bytes=block_bytes,
    )  # fmt: skip
    rows = [(result.names[n], s, d) for n, s, d in zip(result.name, result.start_ns, result.duration_ns, strict=True)]
    assert rows == [
        ("outer", 1000, 8000), ("inner", 2000, 1000), ("elsewhere", 2000, 18000), ("complete", 1000, 1000), ("k", 1000, 1000),
    ]  # fmt: skip
    assert (result.pairs, result.unpaired, result.malformed, result.events) == (3, 2, 2, 12)
    assert sparse(result, "Call stack") == {3: "a"}
    assert sparse(result, "bytes") == {4: 8}


@given(
    st.lists(
        st.tuples(
            st.decimals(allow_nan=False, allow_infinity=False, min_value=0, max_value=10**15, places=4).map(str)
            | st.integers(0, 2**61).map(lambda ns: f"{ns // 1000}.{ns % 1000:03d}")
            | st.integers(0, 2**50).map(str),
            st.decimals(allow_nan=False, allow_infinity=False, min_value=0, max_value=10**9, places=4).map(str),
        ),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([3, 200, 1 << 20]),
    st.booleans(),
)
@settings(max_examples=examples.count(60))
def test_times_are_exact(
    tmp_path_factory: pytest.TempPathFactory, times: list[tuple[str, str]], block: int, quoted: bool
) -> None:
    quote = '"' if quoted else ""
    event = '{{"ph":"X","cat":"cpu_op","name":"n","pid":1,"tid":1,"ts":{q}{}{q},"dur":{q}{}{q}}}'
    text = ",".join(event.format(*pair, q=quote) for pair in times)
    result = read(save(tmp_path_factory.mktemp("t"), f"[{text}]".encode()), block_bytes=block)
    exact = [tuple(floor(Fraction(t) * 1000 + Fraction(1, 2)) for t in pair) for pair in times]
    assert list(zip(result.start_ns.tolist(), result.duration_ns.tolist(), strict=True)) == exact


def test_times_are_microseconds_whatever_unit_is_displayed(tmp_path: Path) -> None:
    event = b'{"ph":"X","cat":"cpu_op","name":"n","ts":1712166695000000.125,"dur":2}'
    result = read(save(tmp_path, b'{"displayTimeUnit":"ns","traceEvents":[%s]}' % event))
    assert (result.start_ns.tolist(), result.duration_ns.tolist()) == ([1712166695000000125], [2000])


@pytest.mark.parametrize(
    "broken",
    [
        *("nothing", 7, None, [], {}, {"ph": "X"}),
        *({**x("kernel"), "ts": ts} for ts in ("soon", None, True, 1e300)),
        *({**x("kernel"), "dur": dur} for dur in (-1, "long")),
        *({**x("kernel"), "name": name} for name in (None, {"a": 1})),
        {**x("kernel"), "ph": 5},
        {**x("kernel"), "cat": ["kernel"]},
    ],
)
@pytest.mark.parametrize("block_bytes", [11, 1 << 20])
def test_a_malformed_event_costs_itself_only(tmp_path: Path, broken: object, block_bytes: int) -> None:
    result = table(
        tmp_path, broken, x("kernel", "good", bytes=1), broken, x("cpu_op", "better"), block_bytes=block_bytes
    )
    assert [result.names[n] for n in result.name.tolist()] == ["good", "better"]
    assert result.malformed == 2
    assert sparse(result, "bytes") == {0: 1}


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (b"a\xffb", "a\N{REPLACEMENT CHARACTER}b"),
        (b"a\x01\nb", "a\x01\nb"),
        (b"\\ud800!", "?!"),
        (b"\\u2603", "☃"),
        (b"a\\\\", "a\\"),
    ],
)
def test_names_may_hold_anything(tmp_path: Path, written: bytes, name: str) -> None:
    text = b'{"traceEvents": [{"ph":"X","cat":"cpu_op","name":"%s","pid":1,"tid":1,"ts":1,"dur":1,"args":{"a":"%s"}}]}'
    result = read(save(tmp_path, text % (written, written)))
    assert [result.names[n] for n in result.name.tolist()] == [name]
    name.encode()


def test_numbers_that_json_does_not_have(tmp_path: Path) -> None:
    args = b'{"est. achieved occupancy %":NaN,"bytes":Infinity,"queued":1}'
    text = b'[{"ph":"X","cat":"kernel","name":"n","ts":1,"dur":1,"args":%s}]' % args
    result = read(save(tmp_path, text))
    assert (len(result), list(result.more)) == (1, ["queued"])


def test_keys_that_are_there_twice(tmp_path: Path) -> None:
    first = b'{"ph":"M","ph":"X","cat":"kernel","name":"n","ts":9,"ts":1,"dur":1}'
    second = b'{"ph":"X","cat":"cpu_op","name":"m","ts":2,"dur":1}'
    result = read(save(tmp_path, b'{"traceEvents":[%s],"a":1,"traceEvents":[%s]}' % (first, second)))
    assert result.start_ns.tolist() == [1000, 2000]
    assert any("2 event lists" in note for note in result.notes)


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("zipped", [False, True])
def test_cut_off_files_give_what_was_whole(tmp_path: Path, kept: float, zipped: bool) -> None:
    text = json.dumps(
        {"traceEvents": [x("cpu_op", f"op {i * 7919 % 1000}") for i in range(2000)], "traceName": "x"}
    ).encode()
    data = gzip.compress(text, mtime=0) if zipped else text
    path = save(tmp_path, data[: int(kept * len(data))])
    result = read(path)
    assert result.cut_off
    assert adds_up(result)
    assert 0.8 * kept * 2000 < len(result) <= 2000
    assert [result.names[n] for n in result.name.tolist()] == [f"op {i * 7919 % 1000}" for i in range(len(result))]
    assert any("cut off" in note and f"{len(result):,} events" in note for note in result.notes)
    with pytest.raises(TraceError, match="cut off"):
        read(path, partial=False)


def test_gzip_is_told_by_its_bytes_and_may_have_several_members(tmp_path: Path) -> None:
    text = json.dumps([x("cpu_op", f"op {i}") for i in range(100)]).encode()
    path = save(tmp_path, gzip.compress(text[:500]) + gzip.compress(b"") + gzip.compress(text[500:]) + b"\0" * 100)
    assert (len(read(path)), read(path, partial=False).cut_off) == (100, False)
    damaged = save(tmp_path, gzip.compress(text) + b"more")
    assert (len(read(damaged)), read(damaged).cut_off) == (100, True)


def test_limits_can_be_set_and_lifted(tmp_path: Path) -> None:
    event = b'{"ph":"X","cat":"cpu_op","name":"n","ts":1},' + b" " * 1_000_000
    path = save(tmp_path, gzip.compress(b"[" + event * 80 + b"{}]", 9))
    with pytest.raises(TraceError, match="expands to more than 400 times its size") as caught:
        read(path)
    assert "limit_bytes" in str(caught.value.hint)
    small = save(tmp_path, [x("cpu_op")] * 100)
    with pytest.raises(TraceError, match="1000 B"):
        read(small, limit_bytes=1000)
    assert len(read(small, limit_bytes=10**6)) == 100


@pytest.mark.parametrize(
    ("content", "says"),
    [
        *((content, "empty") for content in (b"", b"  \n")),
        *(
            (content, "not JSON")
            for content in (b"this is no JSON", b"17", b'{"traceEvents": [{"ph": }]}', DEEP + b"]" * len(DEEP))
        ),
        *((content, "no 'traceEvents'") for content in (b'{"a": 1}', b'{"traceEvents": {}}')),
        *((content, "no event") for content in (b"[]", b'{"traceEvents": []}')),
        *((content, "has a 'ph'") for content in (b"[1, 2]", b'{"traceEvents": [{"name": "x"}]}')),
        *((content, "cut off") for content in (DEEP, b"\x1f\x8b\x08\x00garbage")),
        (pickle.dumps({"segments": []}), "a pickle, such as torch.cuda.memory"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (b"PK\x03\x04\x14\x00", "zip archive"),
        ("[]".encode("utf-16"), "UTF-16"),
        (b'\x18\0\0\0\0\0\0\0\xa3\x7fK"\t\0\0\0\0\0\0\xd8A\x1a\rbrain.Event:2', "TensorBoard"),
        (b"[[-1, 1, 37888, 7], [-1, 1, 512, 7]]", "raw memory timeline"),
        (b"[[0.5, 1.5], [[1, 2]]]", "memory timeline"),
        (b'{"segments": [], "device_traces": []}', "memory snapshot"),
        (b'{"schema": "1.0", "nodes": []}', "execution trace"),
        (b'{"schema": 1, "tool": {"name": "profiler_kit"}}', "profiler-kit show"),
        (b'{"kind": "comparison", "schema": 1, "a": {}}', "profiler-kit show"),
        (b"main;f;g 17\nmain;h 3\n", "folded stacks"),
        (b'[{"ph":"X","cat":"blink","name":"n","ts":1}]', "not of PyTorch.*blink"),
    ],
)
def test_no_trace_is_one_sentence(tmp_path: Path, content: bytes, says: str) -> None:
    path = save(tmp_path, content)
    for partial in (False, True):
        with pytest.raises(TraceError, match=says) as caught:
            read(path, partial=partial)
        assert caught.value.where == str(path)
        assert caught.value.hint
        assert "\n" not in caught.value.message
    with pytest.raises(TraceError) as caught:
        read(path, name="rank 3")
    assert caught.value.where == "rank 3"


@pytest.mark.parametrize(("entry", "says"), [("{}", "has a 'ph'"), ("1", "has a 'ph'"), ('{"ph":1}', "are malformed")])
def test_a_list_of_anything_else_is_given_up_early(
    tmp_path: Path, entry: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = json.dumps(x("cpu_op")) if "are" in says else entry
    path = save(tmp_path, f"[{good},{(entry + ',') * 500_000}{entry}]".encode())
    counts: list[int] = []
    add = Rows.add
    monkeypatch.setattr(Rows, "add", lambda rows, run: (add(rows, run), counts.append(rows.events))[0])
    with pytest.raises(TraceError, match=says):
        read(path, block_bytes=100_000)
    assert max(counts, default=0) < 250_000  # of half a million, and a file may be a thousand times as large


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(TraceError, match="cannot be read"):
            read(path)


def test_hardware_counters_are_said_to_be_no_timeline(tmp_path: Path) -> None:
    result = table(tmp_path, x("cpu_op"), x("cuda_profiler_range", "kernel", **{"smsp__inst.sum": 5}))
    assert not result.of(Kind.KERNEL).any()
    assert any("hardware counters" in note for note in result.notes)


def test_the_garbage_collector_is_as_before(tmp_path: Path) -> None:
    for on in (True, False):
        (gc.enable if on else gc.disable)()
        try:
            table(tmp_path, x("cpu_op"))
            with pytest.raises(TraceError):
                read(tmp_path / "none")
            assert gc.isenabled() is on
        finally:
            gc.enable()
