"""A recorded Chrome trace with lanes of ours beside the original ones. Takes a trace and spans, so it is no report renderer.

Perfetto and chrome://tracing both open the result. Where they differ, the stricter one is obeyed:

- boxes of a track never overlap: Perfetto drops one that does (https://github.com/google/perfetto/issues/4280);
- each box ends clearly after the one before it: chrome://tracing compares ends rounded to a microsecond and draws a box
  that seems to end with its neighbour as that neighbour's child, one row further down;
- colours come from the list that chrome://tracing knows: an unknown one makes it refuse the whole file.

`annotate` takes a trace's bytes. `lines` gives the same events one by one, for a trace too large to hold.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
import zlib
from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from profiler_kit.errors import TraceError

if TYPE_CHECKING:
    from profiler_kit.records.lanes import Annotation, CounterTrack
    from profiler_kit.records.runs import Span

PROCESS_NAME: Final = "profiler_kit"

# Colour names that chrome://tracing has: apart from each other, and light enough for its black text. Phases have fixed
# ones; other spans are coloured by the viewer, from their name.
COLOURS: Final = {
    "data": "thread_state_runnable",  # light blue
    "transfer": "background_memory_dump",  # teal
    "forward": "thread_state_running",  # light green
    "loss": "yellow",
    "backward": "thread_state_iowait",  # orange
    "recompute": "rail_animation",  # red
    "optimizer": "thread_state_uninterruptible",  # mauve
    "communication": "rail_response",
    "other": "grey",
    "unattributed": "grey",
}

# The same for the causes of idle time, which have a lane of their own.
IDLE_COLOURS: Final = {
    "waiting for data": "thread_state_runnable",
    "synchronisation": "rail_animation",
    "op dispatch": "thread_state_iowait",
    "python": "yellow",
    "launch latency": "thread_state_running",
    "another stream": "background_memory_dump",
    "communication": "rail_response",
    "unknown": "grey",
}

# The least time between the ends of two boxes of a track: a microsecond, which chrome://tracing rounds to, and what a
# float is off by where a trace gives the time since 1970 (0.25 µs).
NARROWEST_NS: Final = 1_500

# What is taken off a box where the next one begins at once. Viewers add `ts` and `dur` as floats or cut them to whole ns,
# and boxes that touch would overlap by a ns or two: speedscope then mends the stack of each.
GAP_NS: Final = 4

_GZIP_MAGIC: Final = b"\x1f\x8b"
_HINT: Final = "give the bytes of a whole trace that torch.profiler exported"
_EVENTS: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_FIRST_OWN_PID: Final = 1_000_000_000  # above what an operating system gives, below 2**31


def annotate(trace: bytes, spans: Sequence[Span]) -> bytes:
    """`trace` with `spans` as tracks of a process of their own, one per lane; gzipped where `trace` is.

    The original events stay as they are, byte for byte. Spans of a lane that overlap go to further tracks of the same
    name. Spans too short to be drawn are joined with their neighbour into one box, named by the longest of them.

    Raises: TraceError where `trace` is cut off or no Chrome trace.
    """
    zipped = trace[:2] == _GZIP_MAGIC
    plain = _unzip(trace) if zipped else trace
    start = _first_event(plain)
    if spans:
        own = b",\n".join(line.encode("ascii") for line in _events(spans, _free_pid(plain)))
        alone = plain[start:].lstrip().startswith(b"]")
        plain = plain[:start] + b"\n" + own + (b"\n" if alone else b",\n") + plain[start:]
    # mtime: the same trace gives the same bytes.
    return gzip.compress(plain, compresslevel=6, mtime=0) if zipped else plain


def lines(annotation: Annotation, taken: Container[str]) -> Iterator[bytes]:
    """The JSON of an event each: lanes as tracks of a process of their own, counters as those of another.

    `taken`: process ids that the trace has. Lanes are drawn as `annotate` draws them; a counter stands from a point to the next.
    """
    pid = next(pid for pid in itertools.count(_FIRST_OWN_PID) if str(pid) not in taken)
    if annotation.spans:
        for line in _events(annotation.spans, pid):
            yield line.encode("ascii")
    if annotation.counters:
        pid = next(own for own in itertools.count(pid + 1) if str(own) not in taken)
        yield _metadata("process_name", pid, 0, {"name": f"{PROCESS_NAME}: counters"}).encode("ascii")
        yield _metadata("process_sort_index", pid, 0, {"sort_index": -1}).encode("ascii")
        for counter in annotation.counters:
            yield from _counter(counter, pid)


def _counter(counter: CounterTrack, pid: int) -> Iterator[bytes]:
    name = json.dumps(counter.name)
    before = f'{{"ph":"C","cat":"{PROCESS_NAME}","name":{name},"pid":{pid},"tid":0,"ts":'
    for at_ns, value in counter.points:
        yield f'{before}{_microseconds(at_ns)},"args":{{"value":{value}}}}}'.encode("ascii")


def _unzip(trace: bytes) -> bytes:
    try:
        return gzip.decompress(trace)
    except (EOFError, OSError, zlib.error) as error:
        raise TraceError(f"the gzip stream is cut off or damaged: {error}", hint=_HINT) from error


def _first_event(plain: bytes) -> int:
    """Where the first event stands, or would stand, in the list of events."""
    head = plain[:64].lstrip()
    if plain[-64:].rstrip()[-1:] not in (b"}", b"]"):
        raise TraceError("the trace is cut off or empty: its JSON does not end", hint=_HINT)
    if head.startswith(b"["):  # a trace may be its list of events alone
        return plain.index(b"[") + 1
    match = _EVENTS.search(plain)
    if match is None or not head.startswith(b"{"):
        raise TraceError("not a Chrome trace: no 'traceEvents' list", hint=_HINT)
    return match.end()


def _free_pid(plain: bytes) -> int:
    """A process id that no event of the trace has."""
    pid = _FIRST_OWN_PID
    while re.search(rb'"pid"\s*:\s*"?%d\b' % pid, plain):
        pid += 1
    return pid


def _events(spans: Sequence[Span], pid: int) -> Iterator[str]:
    """JSON texts: names of the process and its tracks, then a box per span."""
    yield _metadata("process_name", pid, 0, {"name": PROCESS_NAME})
    yield _metadata("process_labels", pid, 0, {"labels": "phases and modules"})
    # The first process in chrome://tracing, where the others' indices are ids. Perfetto may order processes by their
    # activity instead: there it is found by its name.
    yield _metadata("process_sort_index", pid, 0, {"sort_index": -1})
    for tid, (lane, track) in enumerate(_tracks(spans), start=1):
        yield _metadata("thread_name", pid, tid, {"name": lane})
        yield _metadata("thread_sort_index", pid, tid, {"sort_index": tid})
        groups = list(_drawable(track))
        for joined, after in itertools.zip_longest(groups, groups[1:]):
            latest_ns = after[0].start_ns - GAP_NS if after is not None else joined[-1].end_ns
            yield _box(joined, latest_ns, pid, tid)


def _tracks(spans: Sequence[Span]) -> list[tuple[str, list[Span]]]:
    """Lanes in order of appearance, each as one or more tracks within which no two spans overlap."""
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
    """The track's spans, those side by side put together until each group ends `NARROWEST_NS` after the group before."""
    drawn: list[Span] = []
    waiting: list[Span] = []
    for span in track:
        if waiting and span.start_ns - waiting[-1].end_ns >= NARROWEST_NS:
            # A gap one can see: what waits belongs to the box before it, which it all but touches.
            drawn += waiting
            waiting = []
        waiting.append(span)
        if not drawn or span.end_ns - drawn[-1].end_ns >= NARROWEST_NS:
            if drawn:
                yield drawn
            drawn, waiting = waiting, []
    if drawn:
        yield drawn + waiting


def _metadata(name: str, pid: int, tid: int, args: dict[str, str | int]) -> str:
    return f'{{"ph":"M","name":"{name}","pid":{pid},"tid":{tid},"ts":0,"args":{json.dumps(args)}}}'


def _box(joined: Sequence[Span], latest_ns: int, pid: int, tid: int) -> str:
    # Written by hand for the numbers' sake: a float can't hold µs since 1970 to the ns.
    shown = max(joined, key=lambda span: span.end_ns - span.start_ns)
    start_ns = joined[0].start_ns
    end_ns = max(start_ns, min(joined[-1].end_ns, latest_ns))
    colour = COLOURS.get(shown.family or "") or IDLE_COLOURS.get(shown.family or "")
    coloured = f',"cname":"{colour}"' if colour else ""
    args: dict[str, str | int] = {}
    if shown.family is not None:
        args["family"] = shown.family
    if len(joined) > 1:
        args["joined spans"] = len(joined)
    detailed = f',"args":{json.dumps(args)}' if args else ""
    return (
        f'{{"ph":"X","cat":"{PROCESS_NAME}","name":{json.dumps(shown.name)},"pid":{pid},"tid":{tid},'
        f'"ts":{_microseconds(start_ns)},"dur":{_microseconds(end_ns - start_ns)}{coloured}{detailed}}}'
    )


def _microseconds(nanoseconds: int) -> str:
    sign = "-" if nanoseconds < 0 else ""
    whole, rest = divmod(abs(nanoseconds), 1000)
    return f"{sign}{whole}.{rest:03d}"
