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
from profiler_kit.traces.rewriting import rewrite_trace

HEAD = b'{"schemaVersion": 1, "traceName": "a \\"traceEvents\\": [ b", "traceEvents": [\n'
BOX = b'  {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1790857026000123.457, "dur": 0.100}'
TAIL = b'\n  ], "after": [{"x": "]"}]}\n'


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    return path


def copied(path: Path, ours: Iterable[bytes] = ()) -> bytes:
    out = io.BytesIO()
    assert rewrite_trace(path, out, ours) == len(out.getvalue())
    return out.getvalue()


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


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
def test_blocks_may_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    data = HEAD + b',\n{"name": "\\\\\\" ] }"}, '.join([BOX] * 5) + TAIL
    read = source.Source.__init__

    def small(self: source.Source, path: Path, **given: Any) -> None:
        read(self, path, **{**given, "block_bytes": block})

    monkeypatch.setattr(source.Source, "__init__", small)
    path = written(tmp_path, data)
    assert copied(path) == data
    assert json.loads(copied(path, [b"{}"]))["traceEvents"] == [{}, *json.loads(data)["traceEvents"]]


@pytest.mark.parametrize("bare", [False, True])
def test_a_file_that_was_cut_off_ends_as_a_list_ought_to(tmp_path: Path, bare: bool) -> None:
    data = (b"[" if bare else HEAD) + BOX + b",\n" + BOX + b',\n  {"ph": "X", "cat": "ker'
    path = written(tmp_path, data)
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
        copied(written(tmp_path, data))


@settings(max_examples=examples.count(60))
@given(st.lists(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=8,
), max_size=6), st.lists(st.integers(), max_size=2))  # fmt: skip
def test_events_are_added_to_any_list(
    tmp_path_factory: pytest.TempPathFactory, elements: list[Any], added: list[int]
) -> None:
    path = tmp_path_factory.mktemp("any") / "trace.json"
    path.write_text(json.dumps({"traceEvents": elements, "end": {}}, ensure_ascii=False), encoding="utf-8")
    assert json.loads(copied(path, [b"%d" % number for number in added]))["traceEvents"] == [*added, *elements]
