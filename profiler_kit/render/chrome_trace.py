"""Lanes and counters as events of a Chrome trace. The input is an annotation, not a document.

Perfetto and chrome://tracing both open the result. The stricter rule applies where they differ:

- boxes of a track never overlap: Perfetto drops one that does (https://github.com/google/perfetto/issues/4280);
- each box ends more than a microsecond after the box before it: chrome://tracing compares rounded ends and draws a box with
  the same end as its neighbor one row lower, as the neighbor's child;
- colors are from the list of chrome://tracing, which rejects a file with an unknown color.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from profiler_kit.records.lanes import Annotation, CounterTrack
    from profiler_kit.records.runs import Span, SpanKind

PROCESS_NAME: Final = "profiler_kit"

# Color names of chrome://tracing that are easy to tell apart and light enough for black text. Phases have fixed colors; the
# viewer colors other spans by their names.
PHASE_COLORS: Final = {
    "data": "thread_state_runnable",  # light blue
    "transfer": "background_memory_dump",  # teal
    "forward": "thread_state_running",  # light green
    "loss": "yellow",
    "backward": "thread_state_iowait",  # orange
    "recompute": "rail_animation",  # red
    "optimizer": "thread_state_uninterruptible",  # mauve
    "communication": "rail_response",
    "other": "grey",
    "unattributed": "generic_work",  # dark grey
}

# The same for the causes of idle time, which have their own lane. The frequent ones do not look like a phase.
IDLE_COLORS: Final = {
    "compilation": "rail_load",  # green
    "cold start": "yellow",
    "memory allocation": "background_memory_dump",
    "waiting for data": "thread_state_runnable",
    "synchronization": "rail_animation",
    "op dispatch": "thread_state_unknown",  # tan
    "python": "bad",  # brown
    "launch latency": "generic_work",
    "another stream": "thread_state_iowait",
    "communication": "rail_response",
    "unknown": "grey",
}

_VIEWER_COLORS: Final[dict[SpanKind, dict[str, str]]] = {"phase": PHASE_COLORS, "idle": IDLE_COLORS, "work": {}}

# Minimum time between the ends of two boxes of a track: the microsecond that chrome://tracing rounds to, plus the float error
# of times since 1970 (0.25 µs).
MIN_END_DISTANCE_NS: Final = 1_500

# A box ends this much earlier if the next one begins immediately. Viewers add `ts` and `dur` as floats or truncate them to ns,
# so adjacent boxes would overlap by a ns or two, which speedscope treats as nesting.
GAP_NS: Final = 4

_FIRST_PID: Final = 1_000_000_000  # above the process ids of operating systems, below 2**31


def event_lines(annotation: Annotation, used_pids: Container[str]) -> Iterator[bytes]:
    """One JSON event at a time: lanes as tracks of one process, counters as tracks of another.

    `used_pids`: process ids of the trace. Overlapping spans of a lane go to further tracks of the same name. Spans too short to
    draw are merged with their neighbor into one box, named after the longest. A counter keeps its value until the next point.
    """
    pid = next(pid for pid in itertools.count(_FIRST_PID) if str(pid) not in used_pids)
    if annotation.spans:
        for line in _events(annotation.spans, pid):
            yield line.encode("ascii")
    if annotation.counters:
        pid = next(free for free in itertools.count(pid + 1) if str(free) not in used_pids)
        yield _metadata("process_name", pid, 0, {"name": f"{PROCESS_NAME}: counters"}).encode("ascii")
        yield _metadata("process_sort_index", pid, 0, {"sort_index": -1}).encode("ascii")
        for counter in annotation.counters:
            yield from _counter(counter, pid)


def _counter(counter: CounterTrack, pid: int) -> Iterator[bytes]:
    name = json.dumps(counter.name)
    before = f'{{"ph":"C","cat":"{PROCESS_NAME}","name":{name},"pid":{pid},"tid":0,"ts":'
    for at_ns, value in counter.points:
        yield f'{before}{_microseconds(at_ns)},"args":{{"value":{value}}}}}'.encode("ascii")


def _events(spans: Sequence[Span], pid: int) -> Iterator[str]:
    """Events as JSON: names of the process and its tracks, then one box per span."""
    yield _metadata("process_name", pid, 0, {"name": PROCESS_NAME})
    yield _metadata("process_labels", pid, 0, {"labels": "phases and modules"})
    # -1 puts the process first in chrome://tracing, which sorts others by their ids. Perfetto may sort by activity.
    yield _metadata("process_sort_index", pid, 0, {"sort_index": -1})
    for tid, (lane, track) in enumerate(_tracks(spans), start=1):
        yield _metadata("thread_name", pid, tid, {"name": lane})
        yield _metadata("thread_sort_index", pid, tid, {"sort_index": tid})
        groups = list(_drawable(track))
        for group, following in itertools.zip_longest(groups, groups[1:]):
            latest_ns = following[0].start_ns - GAP_NS if following is not None else group[-1].end_ns
            yield _box(group, latest_ns, pid, tid)


def _tracks(spans: Sequence[Span]) -> list[tuple[str, list[Span]]]:
    """Lanes in order of appearance, each as one or more tracks without overlapping spans."""
    lanes: dict[str, list[list[Span]]] = {}
    for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns)):
        tracks = lanes.setdefault(span.lane, [])
        free = next((track for track in tracks if track[-1].end_ns <= span.start_ns), None)
        if free is None:
            tracks.append([span])
        else:
            free.append(span)
    return [(lane, track) for lane in dict.fromkeys(span.lane for span in spans) for track in lanes[lane]]


def _drawable(track: Sequence[Span]) -> Iterator[list[Span]]:
    """The track's spans in groups; adjacent spans are grouped until each group ends `MIN_END_DISTANCE_NS` after the last."""
    group: list[Span] = []
    pending: list[Span] = []
    for span in track:
        if pending and span.start_ns - pending[-1].end_ns >= MIN_END_DISTANCE_NS:
            # after a visible gap, pending spans join the group before them, which they almost touch
            group += pending
            pending = []
        pending.append(span)
        if not group or span.end_ns - group[-1].end_ns >= MIN_END_DISTANCE_NS:
            if group:
                yield group
            group, pending = pending, []
    if group:
        yield group + pending


def _metadata(name: str, pid: int, tid: int, args: dict[str, str | int]) -> str:
    return f'{{"ph":"M","name":"{name}","pid":{pid},"tid":{tid},"ts":0,"args":{json.dumps(args)}}}'


def _box(group: Sequence[Span], latest_ns: int, pid: int, tid: int) -> str:
    # The text is written by hand, because a float cannot hold µs since 1970 with ns precision.
    longest = max(group, key=lambda span: span.end_ns - span.start_ns)
    start_ns = group[0].start_ns
    end_ns = max(start_ns, min(group[-1].end_ns, latest_ns))
    color = _VIEWER_COLORS[longest.kind].get(longest.family or "")
    color_field = f',"cname":"{color}"' if color else ""
    args: dict[str, str | int] = {}
    if longest.family is not None:
        args["family"] = longest.family
    if len(group) > 1:
        args["joined spans"] = len(group)
    args_field = f',"args":{json.dumps(args)}' if args else ""
    return (
        f'{{"ph":"X","cat":"{PROCESS_NAME}","name":{json.dumps(longest.name)},"pid":{pid},"tid":{tid},'
        f'"ts":{_microseconds(start_ns)},"dur":{_microseconds(end_ns - start_ns)}{color_field}{args_field}}}'
    )


def _microseconds(nanoseconds: int) -> str:
    sign = "-" if nanoseconds < 0 else ""
    microseconds, remainder = divmod(abs(nanoseconds), 1000)
    return f"{sign}{microseconds}.{remainder:03d}"
