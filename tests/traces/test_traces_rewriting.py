from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import examples
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler_kit.errors import TraceError
from profiler_kit.traces import source
from profiler_kit.traces.entries import (
    FLOW_END,
    FLOW_START,
    METADATA,
    UNREAD,
    Entries,
    scan_entries,
    without_unmatched_flows,
)
from profiler_kit.traces.splitting import Run, rewrite_trace, split
from profiler_kit.traces.table import Kind

HEAD = b'{"schemaVersion": 1, "traceName": "a \\"traceEvents\\": [ b", "traceEvents": [\n'
BOX = b'  {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1790857026000123.457, "dur": 0.100}'
TAIL = b'\n  ], "after": [{"x": "]"}]}\n'


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    return path


def copied(path: Path, ours: Iterable[bytes] = (), keep: Iterable[bool] | None = None) -> bytes:
    out = io.BytesIO()
    mask = np.ones(len(scan_entries(path)), dtype=np.bool_) if keep is None else np.array(list(keep), dtype=np.bool_)
    assert rewrite_trace(path, out, ours, mask) == len(out.getvalue())
    return out.getvalue()


def box(name: str, start: float, end: float, tid: int | str = 7, cat: str = "kernel") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": tid, "ts": start, "dur": end - start, "args": {}}


def flow(ph: str, number: int, at: float, tid: int | str = 7) -> dict[str, Any]:
    return {"ph": ph, "id": number, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": tid, "ts": at}


def scanned(tmp_path: Path, events: list[dict[str, Any]]) -> Entries:
    return scan_entries(written(tmp_path, json.dumps({"traceEvents": events}).encode()))


def left(tmp_path: Path, events: list[dict[str, Any]]) -> list[int]:
    entries = scanned(tmp_path, events)
    return np.flatnonzero(without_unmatched_flows(entries, np.ones(len(entries), dtype=np.bool_))).tolist()


@pytest.mark.parametrize(
    "data",
    [
        HEAD + BOX + b",\n" + BOX + TAIL,
        HEAD + BOX + TAIL,
        HEAD + TAIL,
        b"[]",
        b" [ {} , 1, null ] ",
        b'{"traceEvents":[]}',
        HEAD + b'{"name": "\\\\"}, {"name": "a\\\\\\"}, {"}, "text, with [ and {", [1, {"a": []}]' + TAIL,
    ],
)
def test_with_nothing_left_out_the_copy_is_the_file(tmp_path: Path, data: bytes) -> None:
    assert copied(written(tmp_path, data)) == data


@pytest.mark.parametrize("data", [HEAD + BOX + b",\n" + BOX + TAIL, HEAD + TAIL, b"[]", b'[{"ph": "X"}]'])
def test_our_events_come_first_and_the_rest_stays_byte_for_byte(tmp_path: Path, data: bytes) -> None:
    ours = [b'{"ph":"M","name":"one"}', b'{"ph":"M","name":"two"}']
    copy = copied(written(tmp_path, data), ours)
    head, tail = data.split(b"[\n" if b"[\n" in data else b"[", 1)
    assert copy.startswith(head)
    assert copy.endswith(tail)
    before, after = json.loads(data), json.loads(copy)
    events, copies = (each["traceEvents"] if isinstance(each, dict) else each for each in (before, after))
    assert copies == [{"ph": "M", "name": "one"}, {"ph": "M", "name": "two"}, *events]


@pytest.mark.parametrize("ours", [[], [b'{"name": "ours"}']])
@pytest.mark.parametrize("keep", ["".join(k) for k in ("000", "100", "010", "001", "101", "110", "011", "111")])
def test_any_events_can_be_left_out(tmp_path: Path, keep: str, ours: list[bytes]) -> None:
    data = HEAD + b' {"name": "0"},\n {"name": "1"}  ,{"name": "2"} ' + TAIL
    is_kept = [letter == "1" for letter in keep]
    events = json.loads(copied(written(tmp_path, data), ours, is_kept))["traceEvents"]
    expected = [str(i) for i, mask in enumerate(is_kept) if mask]
    assert [event["name"] for event in events] == (["ours"] if ours else []) + expected


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
def test_blocks_may_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    data = HEAD + b',\n{"name": "\\\\\\" ] }"}, '.join([BOX] * 5) + TAIL
    events = [bytes(part.data[b:e]) for part in split(written(tmp_path, data)) if isinstance(part, Run)
             for b, e in zip(part.starts, part.ends, strict=True)]  # fmt: skip
    read = source.Source.__init__

    def small(self: source.Source, path: Path, **given: Any) -> None:
        read(self, path, **{**given, "block_bytes": block})

    monkeypatch.setattr(source.Source, "__init__", small)
    path = written(tmp_path, data)
    assert copied(path) == data
    pieces = [bytes(part.data[b:e]) for part in split(path) if isinstance(part, Run)
              for b, e in zip(part.starts, part.ends, strict=True)]  # fmt: skip
    assert [p.strip() for p in pieces] == [w.strip() for w in events]
    assert len(pieces) == 9


@pytest.mark.parametrize("bare", [False, True])
def test_a_file_that_was_cut_off_ends_as_a_list_ought_to(tmp_path: Path, bare: bool) -> None:
    data = (b"[" if bare else HEAD) + BOX + b",\n" + BOX + b',\n  {"ph": "X", "cat": "ker'
    path = written(tmp_path, data)
    assert scan_entries(path).cut_off
    document = json.loads(copied(path, [b"{}"]))
    assert len(document if bare else document["traceEvents"]) == 3


def test_a_gzip_stream_that_was_cut_off_gives_its_whole_events(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    events = b",\n".join(b'{"ph": "X", "name": "%d"}' % n for n in rng.integers(0, 10**9, 5000))
    path = written(tmp_path, gzip.compress(HEAD + events + TAIL)[:-20_000])
    result = json.loads(copied(path))["traceEvents"]
    assert 100 < len(result) < 5000
    assert result == json.loads(b"[" + events + b"]")[: len(result)]


@pytest.mark.parametrize("data", [b"", b"hello", b'{"a": 1}', b'"traceEvents": [', b"\x1f\x8bnonsense"])
def test_what_is_no_trace_is_told_so(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(TraceError):
        scan_entries(written(tmp_path, data))


def test_another_file_in_its_place_is_noticed(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + BOX + TAIL)
    with pytest.raises(TraceError, match="changed"):
        rewrite_trace(path, io.BytesIO(), [], np.ones(2, dtype=np.bool_))


@settings(max_examples=examples.count(60))
@given(st.lists(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=8,
), max_size=6), st.data())  # fmt: skip
def test_any_json_is_split_where_its_elements_end(
    tmp_path_factory: pytest.TempPathFactory, elements: list[Any], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("any") / "trace.json"
    path.write_text(json.dumps({"traceEvents": elements, "end": {}}, ensure_ascii=False), encoding="utf-8")
    keep = data.draw(st.lists(st.booleans(), min_size=len(elements), max_size=len(elements)))
    assert len(scan_entries(path)) == len(elements)
    assert json.loads(copied(path, (), keep))["traceEvents"] == [e for e, k in zip(elements, keep, strict=True) if k]


def test_entries_say_what_each_event_is(tmp_path: Path) -> None:
    entries = scanned(tmp_path, [
        {**box("k", 1.5, 2.0), "args": {"correlation": 5}}, box("aten::mm", 1, 3, cat="cpu_op"),
        flow("s", 1, 1.0), flow("f", 1, 2.0),
        {"ph": "M", "name": "process_name", "pid": 3, "args": {"name": "x"}}, 7,
        {"ph": "X", "ts": "soon"}, {**box("k", 1, 2), "args": [1]},
    ])  # type: ignore[list-item]  # fmt: skip
    assert entries.kind.tolist() == [Kind.KERNEL, Kind.OPERATOR, FLOW_START, FLOW_END, METADATA, UNREAD, UNREAD, UNREAD]
    assert entries.correlation[0] == 5
    assert entries.pids == {"0", "3", "None"}
    assert (entries.start_us[0], entries.end_us[0]) == (1.5, 2.0)
    assert entries.size.sum() + entries.outside == (tmp_path / "trace.json").stat().st_size + 1


def test_an_arrow_needs_both_ends_in_order_on_boxes(tmp_path: Path) -> None:
    boxes = [box("launch", 0, 10, tid=1), box("kernel", 20, 30)]
    events = [flow("s", 1, 5, tid=1), flow("f", 1, 25)]
    alone = [
        flow("f", 2, 25),  # no start
        flow("s", 3, 5, tid=1),  # no end
        flow("f", 4, 2, tid=1), flow("s", 4, 25),  # ends before it starts
        flow("s", 5, 15, tid=1), flow("f", 5, 25),  # starts where no box is
        flow("s", 6, 5, tid=1), flow("f", 6, 25, tid=9),  # ends on an empty thread
    ]  # fmt: skip
    assert left(tmp_path, boxes + events + alone) == [0, 1, 2, 3]
    assert left(tmp_path, alone + events[::-1] + boxes) == [8, 9, 10, 11]


def test_of_several_ends_the_first_is_the_arrow(tmp_path: Path) -> None:
    boxes = [box("launch", 0, 10, tid=1), box("kernel", 20, 30), box("kernel", 40, 50)]
    graph = [flow("f", 1, 45), flow("f", 1, 25), flow("s", 1, 5, tid=1)]
    assert left(tmp_path, boxes + graph) == [0, 1, 2, 4, 5]


def test_an_arrow_of_three_parts_stays_whole_or_goes(tmp_path: Path) -> None:
    boxes = [box("a", 0, 10), box("b", 20, 30), box("c", 40, 50)]
    assert left(tmp_path, [*boxes, flow("s", 1, 5), flow("t", 1, 25), flow("f", 1, 45)]) == [0, 1, 2, 3, 4, 5]
    assert left(tmp_path, [*boxes, flow("s", 1, 5), flow("t", 1, 25), flow("t", 2, 25), flow("f", 2, 45)]) == [0, 1, 2]


def test_numbers_of_threads_may_be_quoted_here_and_not_there(tmp_path: Path) -> None:
    events = [box("launch", 0, 10, tid="1"), box("kernel", 20, 30), flow("s", 1, 5, tid=1), flow("f", 1, 25, tid="7")]
    assert left(tmp_path, events) == [0, 1, 2, 3]


def test_an_arrow_goes_with_the_box_it_ends_on(tmp_path: Path) -> None:
    entries = scanned(
        tmp_path, [box("launch", 0, 10, tid=1), box("kernel", 20, 30), flow("s", 1, 5, tid=1), flow("f", 1, 25)]
    )
    keep = np.array([True, False, True, True])
    assert without_unmatched_flows(entries, keep).tolist() == [True, False, False, False]
