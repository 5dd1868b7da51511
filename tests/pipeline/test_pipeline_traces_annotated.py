"""Annotated traces of everything that was published, held to what viewers ask for."""

from __future__ import annotations

import gzip
import io
import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from published_traces import PUBLISHED, TRACES, published

from profiler_kit.errors import TraceError, UsageError
from profiler_kit.pipeline.annotation import add_annotation, annotate_trace
from profiler_kit.records.lanes import Annotation, CounterTrack
from profiler_kit.records.runs import Span
from profiler_kit.render.chrome_trace import IDLE_COLORS, PHASE_COLORS, event_lines

LARGE = [PUBLISHED / name for name in TRACES if name.startswith("kineto/")][:1]  # of 2021; the others are alike
RECENT = [PUBLISHED / name for name in TRACES if not name.startswith("kineto/")]
OWN_TRACE = Path(__file__).resolve().parents[1] / "fixtures" / "traces" / "train.cuda.json.gz"
OWN = range(1_000_000_000, 1_000_000_100)


def named(path: Path) -> str:
    return path.name.partition(".")[0] + path.parent.name[-2:]


Event = dict[str, Any]


def events(data: bytes) -> list[Event]:
    document = json.loads(data.decode("utf-8", errors="replace"), parse_float=str, strict=False)
    found: list[Event] = document["traceEvents"] if isinstance(document, dict) else document
    return found


class Drawn(NamedTuple):
    """A published trace, annotated as a whole."""

    trace: Path
    data: bytes
    found: list[Event]


@pytest.fixture(scope="module")
def drawn(request: pytest.FixtureRequest) -> Drawn:
    data = annotated(request.param)
    return Drawn(request.param, data, events(data))


def annotated(trace: Path, **asked: Any) -> bytes:
    out = io.BytesIO()
    assert annotate_trace(trace, out, event_lines, **asked).size_bytes == len(out.getvalue())
    return out.getvalue()


def is_own(event: Event) -> bool:
    return event.get("pid") in OWN


def unpaired_flows(found: list[Event]) -> list[Event]:
    """As chrome://tracing pairs them: by time as a float, then as in the file, by id, category and name."""
    open_flows: dict[str, Event] = {}
    unpaired: list[Event] = []
    for flow in sorted((e for e in found if e.get("ph") in ("s", "t", "f")), key=lambda e: float(e["ts"])):
        key = json.dumps([flow["id"], flow.get("cat"), flow.get("name")])
        if flow["ph"] == "s":
            unpaired += [open_flows[key]] if key in open_flows else []
            open_flows[key] = flow
        elif key not in open_flows:
            unpaired.append(flow)
        elif flow["ph"] == "f":
            del open_flows[key]
    return unpaired + list(open_flows.values())


def overlaps(boxes: list[Event]) -> Iterator[tuple[Event, Event]]:
    tracks: dict[Any, list[Event]] = defaultdict(list)
    for event in boxes:
        tracks[event["pid"], event["tid"]].append(event)
    for track in tracks.values():
        track.sort(key=lambda e: ns(e["ts"]))
        yield from ((a, b) for a, b in pairwise(track) if ns(a["ts"]) + ns(a["dur"]) > ns(b["ts"]))


def ns(us: str | int) -> int:
    whole, _, rest = str(us).partition(".")
    return int(whole) * 1000 + int(rest or 0)


def test_an_existing_annotation_is_added_to_a_trace() -> None:
    """As `analyze` does for its own traces."""
    original = events(gzip.decompress(OWN_TRACE.read_bytes()))
    lane = Span(lane="device: phase", name="forward", start_ns=0, end_ns=5_000, family="forward")
    counter = CounterTrack(name="queue", points=((0, 1),))
    out = io.BytesIO()
    add_annotation(OWN_TRACE, out, Annotation(spans=(lane,), counters=(counter,)), event_lines)
    found = events(out.getvalue())
    assert [(e["name"], e["ph"]) for e in found if is_own(e) and e["ph"] != "M"] == [("forward", "X"), ("queue", "C")]
    assert unpaired_flows(original)
    assert unpaired_flows(found) == []
    assert [e for e in found if not is_own(e) and e["ph"] not in "stf"] == [e for e in original if e["ph"] not in "stf"]


# The large ones come last: then tests of one trace follow each other, and share what was drawn.
@published
@pytest.mark.parametrize("drawn", [*RECENT, *LARGE], ids=named, indirect=True)
def test_every_published_trace_is_drawn_by_the_rules(drawn: Drawn) -> None:
    original = events(gzip.decompress(drawn.trace.read_bytes()))
    found = drawn.found
    json.loads(drawn.data)  # no control characters of ours either
    ours, theirs = [e for e in found if is_own(e)], [e for e in found if not is_own(e)]
    assert not any(is_own(event) for event in original)
    # all of the original is there, less arrows without one of their ends
    kept = iter(theirs)
    current = next(kept, None)
    missing = []
    for event in original:
        if event == current:
            current = next(kept, None)
        else:
            missing.append(event)
    assert current is None
    assert {event["ph"] for event in missing} <= {"s", "t", "f"}
    assert unpaired_flows(found) == []
    # ours
    boxes = [e for e in ours if e["ph"] == "X"]
    assert boxes
    assert {e["ph"] for e in ours} <= {"M", "X", "C"}
    assert list(overlaps(boxes)) == []
    assert all(ns(e["dur"]) >= 0 for e in boxes)
    assert {e["cname"] for e in boxes if "cname" in e} <= {*PHASE_COLORS.values(), *IDLE_COLORS.values()}
    named = {(e["pid"], e["tid"]) for e in ours if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in boxes} == named
    for event in ours:
        if event["ph"] == "C":
            assert all(float(value) >= 0 for value in event["args"].values())


@published
@pytest.mark.parametrize("drawn", RECENT, ids=named, indirect=True)
def test_every_published_trace_can_be_cut(drawn: Drawn) -> None:
    trace, whole, found = drawn
    calls = sum(len(json.dumps(e)) for e in found if e.get("cat") in ("cpu_op", "python_function") and e["ph"] == "X")
    if not calls:
        with pytest.raises(UsageError, match=r"\d MB"):
            annotated(trace, limit_bytes=len(whole) - 1000)
        return
    limit = len(whole) - calls // 2
    small = annotated(trace, limit_bytes=limit)
    assert len(small) <= limit
    cut = events(small)
    assert unpaired_flows(cut) == []
    assert {json.dumps(e) for e in cut if not is_own(e)} <= {json.dumps(e) for e in found}


@published
@pytest.mark.parametrize("drawn", RECENT, ids=named, indirect=True)
def test_torchs_own_validator_finds_nothing_new(drawn: Drawn, tmp_path: Path) -> None:
    validator = pytest.importorskip("torch.profiler._trace_validator")
    out = tmp_path / "annotated.json"
    out.write_bytes(drawn.data)
    plain = tmp_path / "plain.json"
    plain.write_bytes(gzip.decompress(drawn.trace.read_bytes()))
    before, after = (sorted(map(str, validator.validate_trace(str(path))[1])) for path in (plain, out))
    assert after == before


@published
def test_one_step_of_a_training_run() -> None:
    trace = next(path for path in RECENT if path.name.startswith("mi300_resnet"))
    found = events(annotated(trace, steps=(16, 16)))
    marks = [e["name"] for e in found if str(e["name"]).startswith("ProfilerStep#") and e["cat"] == "user_annotation"]
    assert marks == ["ProfilerStep#16"]
    launched = {
        e["args"]["correlation"] for e in found if e.get("cat") == "cuda_runtime" and "correlation" in e["args"]
    }
    kernels = [e for e in found if e.get("cat") == "kernel"]
    assert len(kernels) > 300
    linked = [e for e in kernels if e["args"]["correlation"] in launched]
    assert len(linked) == len(kernels)


def test_an_event_after_the_cut_is_in_no_annotated_trace(tmp_path: Path) -> None:
    box = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {"device": 0, "stream": 7}}'
    path = tmp_path / "cut.json"
    path.write_text('{"traceEvents": [' + box + ", " + box.replace('"ts": 1', '"ts": 5') + ', {"ph": "X", "na')
    found = events(annotated(path))
    assert len([e for e in found if e["name"] == "k" and not is_own(e)]) == 2
    assert any(is_own(e) for e in found)


def test_what_is_no_trace_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "no.json"
    path.write_text("{}")
    with pytest.raises(TraceError):
        annotated(path)
