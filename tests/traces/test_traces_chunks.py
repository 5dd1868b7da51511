"""A file gives the same events for every size of blocks."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler_kit.errors import TraceError
from profiler_kit.traces import chunks
from profiler_kit.traces.chunks import Document, UndecodedEvents
from profiler_kit.traces.depth import DepthScan
from profiler_kit.traces.source import Source

NASTY = [
    {"ph": "X", "name": 'a "quoted" }, {"ph": name', "args": {"x": [{"a": 1}, {"ph": 2}]}},
    {"name": "back\\slash\\", "ph": "M", "args": {"y": "\\\\\"}, {\"ph\""}},
    {"ph": "X", "args": {"deep": [[[{"a": [1, 2, {"b": "]}"}]}]]]}},
    {"name": "☃ \u2028", "ph": "i"},
]  # fmt: skip


def decoded(text: bytes) -> list[Any]:
    """As the real decoder: nothing but lists of objects."""
    import msgspec

    return msgspec.json.decode(text, type=list[dict[str, Any]])


def pieces(path: Path, block_bytes: int, wanted: tuple[str, ...] = ()) -> tuple[list[Any], Document[list[Any]]]:
    with Source(path, where="t", block_bytes=block_bytes) as source:
        document = Document(source, decoded, wanted)
        events: list[Any] = []
        for run in document.runs():
            events.extend([json.loads(text) for text in run.texts] if isinstance(run, UndecodedEvents) else run)
        return events, document


LAYOUTS: list[dict[str, Any]] = [{}, {"indent": 2}, {"separators": (",", ":")}]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("zipped", [False, True])
def test_every_size_of_block(tmp_path: Path, layout: dict[str, Any], zipped: bool) -> None:
    document = {"before": {"a": [1, "]"]}, "traceEvents": NASTY * 2, "after": "x,}", "last": 17}
    text = json.dumps(document, **layout).encode()
    path = tmp_path / "t"
    path.write_bytes(gzip.compress(text) if zipped else text)
    for block_bytes in [*range(1, 80), *range(80, len(text) + 2, 37)]:
        events, read = pieces(path, block_bytes, ("before", "after", "last"))
        assert events == document["traceEvents"]
        assert {key: json.loads(value) for key, value in read.values.items()} == {
            key: value for key, value in document.items() if key != "traceEvents"
        }
        assert (read.cut_off, read.damage, read.keys) == (False, None, list(document))


def test_every_place_to_end_early(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": NASTY, "after": 1}).encode()
    path = tmp_path / "t"
    for end in range(1, len(text)):
        path.write_bytes(text[:end])
        events, read = pieces(path, 64)
        assert read.cut_off
        assert events == NASTY[: len(events)]
        assert len(events) >= sum(text[:end].count(json.dumps(event).encode() + b",") for event in NASTY)


@pytest.mark.parametrize(
    "text", [b"[]", b"[ ]", b"\xef\xbb\xbf[]", b'{"traceEvents":[]}', b'{"traceEvents": [\n] , "a":{}}']
)
def test_no_events(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "t"
    path.write_bytes(text)
    events, read = pieces(path, 1)
    assert (events, read.lists, read.cut_off, read.damage) == ([], 1, False, None)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        (b"17", "byte 0"), (b'{"a" 1}', "byte 5"), (b"{1: 2}", "byte 1"), (b'[{"ph":"X"}} ]', "bracket"),
        (b"{" + b'"a":1,' * 20_000, "10,000 keys"), (b"{} {}", "after the end"), (b'{"traceEvents":[{}]} x', "after the end"),
    ],
)  # fmt: skip
def test_damage_says_where(tmp_path: Path, text: bytes, at: str) -> None:
    path = tmp_path / "t"
    path.write_bytes(text)
    assert at in (pieces(path, 5)[1].damage or "")


def test_an_event_larger_than_a_block_is_read_and_one_without_end_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    large = {"ph": "X", "args": {"stack": "frame,{}[]" * 3000}}
    path.write_text(json.dumps([NASTY[0], large, NASTY[1]]))
    assert pieces(path, 100)[0] == [NASTY[0], large, NASTY[1]]
    monkeypatch.setattr(chunks, "EVENT_LIMIT_BYTES", 10_000)
    with pytest.raises(TraceError, match="one event is larger"):
        pieces(path, 100)


def test_a_value_beside_the_events_may_be_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "EVENT_LIMIT_BYTES", 10_000)
    path = tmp_path / "t"
    path.write_text(json.dumps({"stackFrames": ["x,y"] * 20_000, "traceEvents": NASTY, "rank": 1}))
    events, read = pieces(path, 512, ("rank",))
    assert events == NASTY
    assert read.values == {"rank": b" 1"}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a",\\{}[]:\n☃', max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='k"\\,', max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.lists(values, min_size=1, max_size=8), st.integers(1, 40))
def test_the_scan_finds_the_commas_that_a_parser_does(items: list[Any], step: int) -> None:
    text = json.dumps(items, ensure_ascii=False).encode()[1:]
    scan, commas, close = DepthScan(), [], None
    for start in range(0, len(text), step):
        result = scan.feed(text[start : start + step])
        commas.extend((result.commas + start).tolist())
        if result.close is not None:
            close = result.close + start
            break
    assert close == len(text) - 1
    bounds = [-1, *commas, close]
    assert [json.loads(text[a + 1 : b]) for a, b in pairwise(bounds)] == items
