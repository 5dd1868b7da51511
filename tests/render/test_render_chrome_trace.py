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
from profiler_kit.records.lanes import Annotation, CounterTrack
from profiler_kit.records.runs import Span
from profiler_kit.records.traces import IDLE_CAUSES
from profiler_kit.render.chrome_trace import (
    GAP_NS,
    IDLE_COLORS,
    MIN_END_DISTANCE_NS,
    PHASE_COLORS,
    annotate,
    event_lines,
)

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
    events: list[dict[str, Any]] = document["traceEvents"] if isinstance(document, dict) else document
    return events


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
    trace = b'{"traceEvents": [{"ph":"X","pid": 1000000000,"ts":0},{"ph":"X","pid":"1000000001","ts":0}]}'
    box = next(e for e in events(annotate(trace, [span("lane", "x", 0, 1)])) if e.get("name") == "x")
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
    assert {*PHASE_COLORS.values(), *IDLE_COLORS.values()} <= KNOWN_COLOURS
    assert set(IDLE_COLORS) == set(IDLE_CAUSES)
    assert len(set(IDLE_COLORS.values())) == len(IDLE_COLORS)
    names = [*PHASE_COLORS, "conv:fft", "no such phase"]
    spans = [span("lane", f, i * 9_000, i * 9_000 + 9_000, f) for i, f in enumerate(names)]
    colored = {e["name"]: e for e in ours(annotate(ORIGINAL, spans)) if e["ph"] == "X"}
    assert colored["forward"]["cname"] == PHASE_COLORS["forward"]
    assert "cname" not in colored["conv:fft"]
    assert "cname" not in colored["no such phase"]
    told_apart = [PHASE_COLORS[phase] for phase in PHASE_COLORS if phase not in ("other", "unattributed")]
    assert len(set(told_apart)) == len(told_apart)


drawn_spans = st.lists(
    st.builds(
        lambda lane, start, duration: span(lane, f"{start}+{duration}", start, start + duration),
        st.sampled_from(["one", "two"]),
        st.integers(0, 50_000),
        st.integers(0, 5_000),
    ),
    max_size=20,
)


def boxes(annotated: bytes) -> dict[tuple[str, int], list[tuple[str, int, int]]]:
    """Name, start and end in ns of each track's boxes, by lane and track id."""
    lanes = {e["tid"]: e["args"]["name"] for e in ours(annotated) if e["name"] == "thread_name" and e["ph"] == "M"}
    tracks: dict[tuple[str, int], list[tuple[str, int, int]]] = {}
    for e in ours(annotated):
        if e["ph"] == "X":
            assert re.fullmatch(r"\d+\.\d{3}", e["ts"])
            start = int(e["ts"].replace(".", ""))
            end = start + int(e["dur"].replace(".", ""))
            tracks.setdefault((lanes[e["tid"]], e["tid"]), []).append((e["name"], start, end))
    return tracks


@given(drawn_spans)
def test_no_track_has_boxes_that_overlap_or_end_together(spans: list[Span]) -> None:
    annotated = annotate(ORIGINAL, spans)
    for track in boxes(annotated).values():
        assert all(a[2] + GAP_NS <= b[1] or a[2] == a[1] == b[1] for a, b in itertools.pairwise(track))
        assert all(b[2] - a[2] >= MIN_END_DISTANCE_NS - GAP_NS for a, b in itertools.pairwise(track))
    assert {e["ph"] for e in ours(annotated)} <= {"X", "M"}  # no flow without its partner


@given(drawn_spans)
def test_what_is_long_enough_has_a_box_and_the_rest_is_inside_one(spans: list[Span]) -> None:
    drawn_boxes = [(lane, *box) for (lane, _), track in boxes(annotate(ORIGINAL, spans)).items() for box in track]
    for s in spans:
        assert any(
            lane == s.lane and start <= s.start_ns and s.end_ns <= end + GAP_NS for lane, _, start, end in drawn_boxes
        )
        if s.end_ns - s.start_ns >= MIN_END_DISTANCE_NS:
            # Its own name; neighbors too short to be drawn lengthen it by less than that, on either side.
            assert any(
                (lane, name) == (s.lane, s.name)
                and 0 <= s.start_ns - start < 2 * MIN_END_DISTANCE_NS
                and -GAP_NS <= end - s.end_ns < MIN_END_DISTANCE_NS
                for lane, name, start, end in drawn_boxes
            )


def test_spans_too_short_to_be_drawn_join_the_longest_beside_them() -> None:
    spans = [
        span("lane", "conv", 0, 9_000),
        span("lane", "alloc", 9_000, 9_400),
        span("lane", "view", 9_400, 9_600),
        span("lane", "pool", 9_600, 20_000),
        span("lane", "alloc", 20_000, 20_300),
        span("lane", "norm", 30_000, 30_100),
    ]
    (track,) = boxes(annotate(ORIGINAL, spans)).values()
    assert track == [("conv", 0, 9_000 - GAP_NS), ("pool", 9_000, 20_300), ("norm", 30_000, 30_100)]
    joined = [e.get("args") for e in ours(annotate(ORIGINAL, spans)) if e["ph"] == "X"]
    assert joined == [None, {"joined spans": 4}, None]


def test_boxes_stay_in_one_row_of_a_viewer_that_rounds_to_microseconds() -> None:
    """The rule by which chrome://tracing finds children (catapult: TimedEvent.bounds), in its own arithmetic."""
    since_1970 = 1790857026000123457
    lengths = (700, 300, 1_100, 10, 2_600, 499, 501, 1_500, 90, 7_001)
    edges = list(itertools.accumulate(lengths * 40, initial=since_1970))
    spans = [span("lane", f"{a}", a, b) for a, b in itertools.pairwise(edges)]
    our_boxes = [e for e in json.loads(annotate(ORIGINAL, spans))["traceEvents"] if e["pid"] >= 1e9 and e["ph"] == "X"]
    first = our_boxes[0]["ts"] / 1000
    times = [(e["ts"] / 1000 - first, e["dur"] / 1000) for e in our_boxes]
    ends = [round((start + length) * 1000) for start, length in times]
    assert len(our_boxes) > 100
    assert all(a < b for a, b in itertools.pairwise(ends))


def test_boxes_that_touch_do_not_overlap_in_floats() -> None:
    """As speedscope adds (floats) and older Perfettos read (cut to ns), in times as torch.profiler writes them."""
    near_the_end_of_its_base_time = 8 * 10**15 + 123_457
    edges = [near_the_end_of_its_base_time + 1_501 * i + i % 7 * 133 for i in range(2_000)]
    spans = [span("lane", f"{a}", a, b) for a, b in itertools.pairwise(edges)]
    our_boxes = [e for e in json.loads(annotate(ORIGINAL, spans))["traceEvents"] if e["pid"] >= 1e9 and e["ph"] == "X"]
    assert len(our_boxes) > 1_000
    for a, b in itertools.pairwise(our_boxes):
        assert a["ts"] + a["dur"] <= b["ts"]
        assert int(a["ts"] * 1000.0) + int(a["dur"] * 1000.0) <= int(b["ts"] * 1000.0)


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (ORIGINAL[:-20], "truncated"),
        (b"", "truncated or empty"),
        (gzip.compress(ORIGINAL)[:-9], "truncated"),
        (b'{"a": 1}', "no 'traceEvents'"),
        (b'hello "traceEvents": [ }', "no 'traceEvents'"),
    ],
)
def test_what_is_no_whole_trace(broken: bytes, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        annotate(broken, [span("lane", "x", 0, 1)])


def test_lines_are_what_annotate_draws() -> None:
    spans = (span("one", "a", 0, 5_000, "forward"), span("two", "b", 1, 9_000))
    drawn_boxes = [json.loads(line, parse_float=str) for line in event_lines(Annotation(spans=spans), frozenset())]
    assert drawn_boxes == ours(annotate(ORIGINAL, spans))


def test_counters_stand_in_a_process_of_their_own_and_keep_their_ns() -> None:
    counter = CounterTrack(name='queue "depth"', points=((1790857026000123457, 2), (1790857026000123999, 0.5)))
    annotation = Annotation(spans=(span("lane", "x", 0, 1),), counters=(counter,))
    drawn_boxes = [json.loads(line, parse_float=str) for line in event_lines(annotation, {"1000000000", "1000000002"})]
    points = [e for e in drawn_boxes if e["ph"] == "C"]
    assert [(e["name"], e["ts"], e["args"]["value"]) for e in points] == [
        ('queue "depth"', "1790857026000123.457", 2), ('queue "depth"', "1790857026000123.999", "0.5"),
    ]  # fmt: skip
    assert {e["pid"] for e in drawn_boxes if e["ph"] == "X"} == {1_000_000_001}
    assert {e["pid"] for e in points} == {1_000_000_003}
    assert [e["args"]["name"] for e in drawn_boxes if e["name"] == "process_name"] == [
        "profiler_kit",
        "profiler_kit: counters",
    ]


def test_nothing_to_show_is_no_line() -> None:
    assert list(event_lines(Annotation(spans=()), frozenset())) == []
