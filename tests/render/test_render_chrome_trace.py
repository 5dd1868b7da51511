from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Container, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler_kit.records.counts import TRACE_PHASES
from profiler_kit.records.lanes import UNATTRIBUTED, Annotation, CounterTrack
from profiler_kit.records.runs import Span
from profiler_kit.records.traces import IDLE_CAUSES
from profiler_kit.render.chrome_trace import (
    GAP_NS,
    IDLE_COLORS,
    MIN_END_DISTANCE_NS,
    PHASE_COLORS,
    event_lines,
)

# https://github.com/catapult-project/catapult: tracing/tracing/base/color_scheme.html; an unknown name throws. RGB in the viewer.
VIEWER_COLORS = {
    "thread_state_uninterruptible": (182, 125, 143),
    "thread_state_iowait": (255, 140, 0),
    "thread_state_running": (126, 200, 148),
    "thread_state_runnable": (133, 160, 210),
    "thread_state_sleeping": (240, 240, 240),
    "thread_state_unknown": (199, 155, 125),
    "background_memory_dump": (0, 180, 180),
    "light_memory_dump": (0, 0, 180),
    "detailed_memory_dump": (180, 0, 180),
    "vsync_highlight_color": (0, 0, 255),
    "generic_work": (125, 125, 125),
    "good": (0, 125, 0),
    "bad": (180, 125, 0),
    "terrible": (180, 0, 0),
    "black": (0, 0, 0),
    "grey": (221, 221, 221),
    "white": (255, 255, 255),
    "yellow": (255, 255, 0),
    "olive": (100, 100, 0),
    "rail_response": (67, 135, 253),
    "rail_animation": (244, 74, 63),
    "rail_idle": (238, 142, 0),
    "rail_load": (13, 168, 97),
    "startup": (230, 230, 0),
    "heap_dump_stack_frame": (128, 128, 128),
    "heap_dump_object_type": (0, 0, 255),
    "heap_dump_child_node_arrow": (204, 102, 0),
}


def span(lane: str, name: str, start: int, end: int, family: str | None = None) -> Span:
    return Span(lane=lane, name=name, start_ns=start, end_ns=end, family=family)


def ours(spans: Iterable[Span], used_pids: Container[str] = frozenset()) -> list[dict[str, Any]]:
    """The events for `spans`; times as text, because a float has no ns."""
    return [json.loads(line, parse_float=str) for line in event_lines(Annotation(spans=tuple(spans)), used_pids)]


def test_times_keep_their_ns() -> None:
    annotated = ours([span("lane", "x", 1790857026000123457, 1790857026000123464)])
    box = next(e for e in annotated if e["ph"] == "X")
    assert (box["ts"], box["dur"]) == ("1790857026000123.457", "0.007")


def test_tracks_are_named_and_ordered() -> None:
    spans = [span("host: phase", "forward", 0, 5, "forward"), span("device: phase", "forward", 3, 9, "forward")]
    named = [e for e in ours(spans) if e["ph"] == "M"]
    assert [e["args"]["name"] for e in named if e["name"] == "process_name"] == ["profiler_kit"]
    lanes = {e["tid"]: e["args"]["name"] for e in named if e["name"] == "thread_name"}
    order = {e["tid"]: e["args"]["sort_index"] for e in named if e["name"] == "thread_sort_index"}
    assert [lanes[tid] for tid in sorted(order, key=order.__getitem__)] == ["host: phase", "device: phase"]


def test_the_process_id_is_unused() -> None:
    box = next(e for e in ours([span("lane", "x", 0, 1)], {"1000000000", "1000000001"}) if e["name"] == "x")
    assert box["pid"] == 1_000_000_002


@pytest.mark.parametrize(
    "name", ['a"b', "back\\slash", "<script>alert(1)</script>", "line\nbreak", "Ünïcode 層", "\ud800", '"@ns:1.000"']
)
def test_names_are_escaped(name: str) -> None:
    annotated = ours([span(name, name, 0, 1, name)])
    box = next(e for e in annotated if e["ph"] == "X")
    assert (box["name"], box["args"]["family"]) == (name, name)
    assert name in [e["args"].get("name") for e in annotated if e["ph"] == "M"]


def test_colors_are_ones_that_the_viewers_know() -> None:
    assert {*PHASE_COLORS.values(), *IDLE_COLORS.values()} <= set(VIEWER_COLORS)
    assert set(IDLE_COLORS) == set(IDLE_CAUSES)
    assert set(PHASE_COLORS) == {*TRACE_PHASES, UNATTRIBUTED}
    names = [*PHASE_COLORS, "conv:fft", "no such phase"]
    spans = [span("lane", f, i * 9_000, i * 9_000 + 9_000, f) for i, f in enumerate(names)]
    colored = {e["name"]: e for e in ours(spans) if e["ph"] == "X"}
    assert colored["forward"]["cname"] == PHASE_COLORS["forward"]
    assert "cname" not in colored["conv:fft"]
    assert "cname" not in colored["no such phase"]


def light(color: tuple[int, int, int]) -> float:
    """Relative luminance, 0 to 1 (WCAG 2)."""
    linear = [(c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4) for c in color]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("colors", [PHASE_COLORS, IDLE_COLORS], ids=["phases", "idle"])
def test_colors_differ_and_black_text_is_readable_on_them(colors: dict[str, str]) -> None:
    values = [VIEWER_COLORS[name] for name in colors.values()]
    assert min(math.dist(a, b) for a, b in itertools.combinations(values, 2)) > 50
    assert min((light(value) + 0.05) / 0.05 for value in values) > 4.5  # the least contrast of WCAG 2 for text


drawn_spans = st.lists(
    st.builds(
        lambda lane, start, duration: span(lane, f"{start}+{duration}", start, start + duration),
        st.sampled_from(["one", "two"]),
        st.integers(0, 50_000),
        st.integers(0, 5_000),
    ),
    max_size=20,
)


def boxes(annotated: list[dict[str, Any]]) -> dict[tuple[str, int], list[tuple[str, int, int]]]:
    """Name, start and end in ns of each track's boxes, by lane and track id."""
    lanes = {e["tid"]: e["args"]["name"] for e in annotated if e["name"] == "thread_name" and e["ph"] == "M"}
    tracks: dict[tuple[str, int], list[tuple[str, int, int]]] = {}
    for e in annotated:
        if e["ph"] == "X":
            assert re.fullmatch(r"\d+\.\d{3}", e["ts"])
            start = int(e["ts"].replace(".", ""))
            end = start + int(e["dur"].replace(".", ""))
            tracks.setdefault((lanes[e["tid"]], e["tid"]), []).append((e["name"], start, end))
    return tracks


@given(drawn_spans)
def test_no_track_has_boxes_that_overlap_or_end_together(spans: list[Span]) -> None:
    annotated = ours(spans)
    for track in boxes(annotated).values():
        assert all(a[2] + GAP_NS <= b[1] or a[2] == a[1] == b[1] for a, b in itertools.pairwise(track))
        assert all(b[2] - a[2] >= MIN_END_DISTANCE_NS - GAP_NS for a, b in itertools.pairwise(track))
    assert {e["ph"] for e in annotated} <= {"X", "M"}  # no flow without its partner


@given(drawn_spans)
def test_what_is_long_enough_has_a_box_and_the_rest_is_inside_one(spans: list[Span]) -> None:
    drawn_boxes = [(lane, *box) for (lane, _), track in boxes(ours(spans)).items() for box in track]
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
    (track,) = boxes(ours(spans)).values()
    assert track == [("conv", 0, 9_000 - GAP_NS), ("pool", 9_000, 20_300), ("norm", 30_000, 30_100)]
    joined = [e.get("args") for e in ours(spans) if e["ph"] == "X"]
    assert joined == [None, {"joined spans": 4}, None]


def floats(spans: Iterable[Span]) -> list[dict[str, Any]]:
    """The boxes as a viewer reads them, with times as floats."""
    lines = map(json.loads, event_lines(Annotation(spans=tuple(spans)), frozenset()))
    return [event for event in lines if event["ph"] == "X"]


def test_boxes_stay_in_one_row_of_a_viewer_that_rounds_to_microseconds() -> None:
    """The rule by which chrome://tracing finds children (catapult: TimedEvent.bounds), in its own arithmetic."""
    since_1970 = 1790857026000123457
    lengths = (700, 300, 1_100, 10, 2_600, 499, 501, 1_500, 90, 7_001)
    edges = list(itertools.accumulate(lengths * 40, initial=since_1970))
    spans = [span("lane", f"{a}", a, b) for a, b in itertools.pairwise(edges)]
    our_boxes = floats(spans)
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
    our_boxes = floats(spans)
    assert len(our_boxes) > 1_000
    for a, b in itertools.pairwise(our_boxes):
        assert a["ts"] + a["dur"] <= b["ts"]
        assert int(a["ts"] * 1000.0) + int(a["dur"] * 1000.0) <= int(b["ts"] * 1000.0)


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
