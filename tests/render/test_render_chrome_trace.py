from __future__ import annotations

import gzip
import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler_kit.errors import TraceError
from profiler_kit.records.runs import Span
from profiler_kit.render.chrome_trace import COLOURS, annotate

ORIGINAL = (
    b'{"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": [\n'
    b'{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1790857026000123.457, "dur": 0.100},\n'
    b'{"ph": "f", "id": 1, "pid": 0, "tid": 7, "ts": 1.5, "cat": "ac2g", "name": "ac2g", "bp": "e"}\n'
    b'], "traceName": "a \\"traceEvents\\": [ b" }\n'
)
# https://github.com/catapult-project/catapult: tracing/tracing/base/color_scheme.html; an unknown name throws there.
KNOWN_COLOURS = {
    "thread_state_uninterruptible",
    "thread_state_iowait",
    "thread_state_running",
    "thread_state_runnable",
    "thread_state_sleeping",
    "thread_state_unknown",
    "background_memory_dump",
    "light_memory_dump",
    "detailed_memory_dump",
    "vsync_highlight_color",
    "generic_work",
    "good",
    "bad",
    "terrible",
    "black",
    "grey",
    "white",
    "yellow",
    "olive",
    "rail_response",
    "rail_animation",
    "rail_idle",
    "rail_load",
    "startup",
    "heap_dump_stack_frame",
    "heap_dump_object_type",
    "heap_dump_child_node_arrow",
}


def span(lane: str, name: str, start: int, end: int, family: str | None = None) -> Span:
    return Span(lane=lane, name=name, start_ns=start, end_ns=end, family=family)


def events(data: bytes) -> list[dict[str, Any]]:
    document = json.loads(data, parse_float=str)
    found: list[dict[str, Any]] = document["traceEvents"] if isinstance(document, dict) else document
    return found


def ours(data: bytes) -> list[dict[str, Any]]:
    return [e for e in events(data) if isinstance(e.get("pid"), int) and e["pid"] >= 1_000_000_000]


def test_the_original_stays_byte_for_byte() -> None:
    spans = [span("device: phase", "forward", 10, 20, "forward")]
    annotated = annotate(ORIGINAL, spans)
    head, tail = ORIGINAL.split(b"[", 1)
    assert annotated.startswith(head + b"[")
    assert annotated.endswith(tail)
    assert len(events(annotated)) == len(events(ORIGINAL)) + len(ours(annotated))
    assert json.loads(annotated)["traceName"] == 'a "traceEvents": [ b'


def test_nothing_to_add_changes_nothing() -> None:
    assert annotate(ORIGINAL, []) == ORIGINAL


@pytest.mark.parametrize(
    "original", [b"[]", b'{"traceEvents":[]}', b'{"traceEvents": [ \n ] }', b'[{"ph":"X","pid":1,"ts":1}]']
)
def test_empty_lists_and_bare_lists(original: bytes) -> None:
    annotated = annotate(original, [span("lane", "x", 0, 1)])
    assert [e["name"] for e in ours(annotated) if e["ph"] == "X"] == ["x"]
    assert len(events(annotated)) == len(events(original)) + len(ours(annotated))


def test_gzip_in_gzip_out_and_the_same_bytes_each_time() -> None:
    spans = [span("lane", "x", 0, 1)]
    zipped = annotate(gzip.compress(ORIGINAL), spans)
    assert gzip.decompress(zipped) == annotate(ORIGINAL, spans)
    assert zipped == annotate(gzip.compress(ORIGINAL), spans)


def test_times_keep_their_ns() -> None:
    annotated = annotate(ORIGINAL, [span("lane", "x", 1790857026000123457, 1790857026000123464)])
    box = next(e for e in ours(annotated) if e["ph"] == "X")
    assert (box["ts"], box["dur"]) == ("1790857026000123.457", "0.007")


def test_tracks_are_named_and_ordered() -> None:
    spans = [span("host: phase", "forward", 0, 5, "forward"), span("device: phase", "forward", 3, 9, "forward")]
    named = [e for e in ours(annotate(ORIGINAL, spans)) if e["ph"] == "M"]
    assert [e["args"]["name"] for e in named if e["name"] == "process_name"] == ["profiler_kit"]
    lanes = {e["tid"]: e["args"]["name"] for e in named if e["name"] == "thread_name"}
    order = {e["tid"]: e["args"]["sort_index"] for e in named if e["name"] == "thread_sort_index"}
    assert [lanes[tid] for tid in sorted(order, key=order.__getitem__)] == ["host: phase", "device: phase"]


def test_a_process_id_nobody_has() -> None:
    taken = b'{"traceEvents": [{"ph":"X","pid": 1000000000,"ts":0},{"ph":"X","pid":"1000000001","ts":0}]}'
    box = next(e for e in events(annotate(taken, [span("lane", "x", 0, 1)])) if e.get("name") == "x")
    assert box["pid"] == 1_000_000_002


@pytest.mark.parametrize(
    "name", ['a"b', "back\\slash", "<script>alert(1)</script>", "line\nbreak", "Ünïcode 層", "\ud800", '"@ns:1.000"']
)
def test_names_are_escaped(name: str) -> None:
    annotated = annotate(ORIGINAL, [span(name, name, 0, 1, name)])
    box = next(e for e in ours(annotated) if e["ph"] == "X")
    assert (box["name"], box["args"]["family"]) == (name, name)
    assert name in [e["args"].get("name") for e in ours(annotated) if e["ph"] == "M"]


def test_colours_are_ones_that_the_viewers_know() -> None:
    assert set(COLOURS.values()) <= KNOWN_COLOURS
    spans = [span("lane", f, i, i + 1, f) for i, f in enumerate([*COLOURS, "conv:fft", "no such phase"])]
    boxes = {e["name"]: e for e in ours(annotate(ORIGINAL, spans)) if e["ph"] == "X"}
    assert boxes["forward"]["cname"] == COLOURS["forward"]
    assert "cname" not in boxes["conv:fft"]
    assert "cname" not in boxes["no such phase"]


drawn_spans = st.lists(
    st.builds(
        lambda lane, start, duration: span(lane, f"{start}", start, start + duration),
        st.sampled_from(["one", "two"]),
        st.integers(0, 50),
        st.integers(0, 20),
    ),
    max_size=20,
)


@given(drawn_spans)
def test_no_track_has_boxes_that_overlap_and_none_is_lost(spans: list[Span]) -> None:
    annotated = ours(annotate(ORIGINAL, spans))
    lanes = {e["tid"]: e["args"]["name"] for e in annotated if e["name"] == "thread_name" and e["ph"] == "M"}
    tracks: dict[int, list[tuple[int, int]]] = {}
    boxes = []
    for e in annotated:
        if e["ph"] == "X":
            assert re.fullmatch(r"\d+\.\d{3}", e["ts"])
            start = int(e["ts"].replace(".", ""))
            end = start + int(e["dur"].replace(".", ""))
            tracks.setdefault(e["tid"], []).append((start, end))
            boxes.append((lanes[e["tid"]], start, end))
    assert sorted(boxes) == sorted((s.lane, s.start_ns, s.end_ns) for s in spans)
    for track in tracks.values():
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(track))
    assert {e["ph"] for e in annotated} <= {"X", "M"}  # no flow without its partner


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (ORIGINAL[:-20], "cut off"),
        (b"", "cut off or empty"),
        (gzip.compress(ORIGINAL)[:-9], "cut off"),
        (b'{"a": 1}', "no 'traceEvents'"),
        (b'hello "traceEvents": [ }', "no 'traceEvents'"),
    ],
)
def test_what_is_no_whole_trace(broken: bytes, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        annotate(broken, [span("lane", "x", 0, 1)])
