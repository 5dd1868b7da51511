"""A file that is read in parts gives the table that it gives in one piece, whatever it holds."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import count as example_count
from trace_mutations import mutations

from profiler_kit.errors import KitError, TraceError
from profiler_kit.traces import parts as module
from profiler_kit.traces.parts import Part, read_part
from profiler_kit.traces.reader import read
from profiler_kit.traces.rows import Rows
from profiler_kit.traces.table import Sparse, Table


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 900)
    monkeypatch.setattr(module, "_WINDOW_BYTES", 700)


class Processes:
    """Reads parts as other processes do, and counts those that were of use."""

    def __init__(self) -> None:
        self.read = 0

    def __call__(self, parts: Sequence[Part]) -> Iterator[Rows | KitError | None]:
        for part in parts:
            try:
                rows = pickle.loads(pickle.dumps(read_part(part)))
            except KitError as error:
                yield error
                continue
            self.read += rows is not None
            yield rows


def content(table: Table) -> dict[str, Any]:
    """All fields of a table, with the texts that its columns stand for: they are numbered by runs."""
    values = {field.name: getattr(table, field.name) for field in fields(table)}
    texts = np.array([*values.pop("texts"), None], object)
    for name, value in values.items():
        if name in ("shapes", "inputs"):
            values[name] = texts[value].tolist()
        elif isinstance(value, np.ndarray):
            values[name] = value.tolist()
    values["more"] = {key: sparse_content(sparse) for key, sparse in table.more.items()}
    return values


def sparse_content(sparse: Sparse) -> dict[int, Any]:
    values = np.array(sparse.texts, object)[sparse.values] if sparse.texts else sparse.values
    return dict(zip(sparse.rows.tolist(), map(repr, values.tolist()), strict=True))


def outcome(path: Path, processes: Processes | None) -> dict[str, Any] | str:
    try:
        return content(read(path, read_parts=processes))
    except TraceError as error:
        return str(error)


@pytest.mark.parametrize("seed", range(example_count(5)))
def test_any_trace_in_parts(tmp_path: Path, seed: int) -> None:
    path, processes = tmp_path / "trace.json", Processes()
    for name, data in mutations(seed):
        path.write_bytes(data)
        assert outcome(path, processes) == outcome(path, None), name
    assert processes.read > 20


def event(ph: str, name: str, ts: int, **more: Any) -> dict[str, Any]:
    return {"ph": ph, "cat": "cpu_op", "name": name, "pid": 1, "tid": 2, "ts": ts, **more}


@pytest.mark.parametrize(("inner", "is_cut"), [([], True), ([{}, {"ph": "X"}] * 60, False)])
def test_values_that_look_like_the_end_of_an_event(tmp_path: Path, inner: list[Any], is_cut: bool) -> None:
    events = [event("X", "}, {" * 20, 10 * i, dur=5, args={"Input Dims": [[i], inner]}) for i in range(60)]
    path, processes = tmp_path / "trace.json", Processes()
    path.write_text(json.dumps({"traceEvents": events, "distributedInfo": {"rank": 3}}))
    assert outcome(path, processes) == outcome(path, None)
    assert read(path, read_parts=processes).info.rank == 3
    assert (processes.read > 5) is is_cut


def test_pairs_and_names_of_threads_over_the_border_of_parts(tmp_path: Path) -> None:
    marks = [event("B", f"outer {i}", i) for i in range(30)] + [event("E", "", 100 + i) for i in range(29)]
    names = [
        event("M", "thread_name", 0, args={"name": name}) for name in ("python", "thread 7 (pt_autograd_0)", "python")
    ]
    events = [names[0], *marks[:20], names[1], *marks[20:], names[2], event("X", "last", 200, dur=1)]
    path, processes = tmp_path / "trace.json", Processes()
    path.write_text(json.dumps(events))
    table = read(path, read_parts=processes)
    assert content(table) == content(read(path))
    assert (table.pairs, table.unpaired, processes.read > 2) == (29, 1, True)
    assert table.threads[0].name == "thread 7 (pt_autograd_0)"
