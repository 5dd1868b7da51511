"""Nesting over columns gives the same result as a stack, and stays valid where events do not nest."""

from __future__ import annotations

from pathlib import Path

import examples
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inspection_traces import ENGINE, call, kernel, launch, mark, op, table

from profiler_kit.attribution import nesting
from profiler_kit.attribution.events import innermost_enclosing, outermost_enclosing
from profiler_kit.attribution.nesting import Nesting, nest
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Kind, Table


def columns(spans: list[tuple[int, int, int, int]]) -> Table:
    """A table of host events: (thread, kind, start, duration)."""
    count = len(spans)
    thread, kind, start, duration = np.array(spans, dtype=np.int64).reshape(count, 4).T
    none: Ids = np.full(count, NONE, dtype=np.int32)
    numbers: Ints = np.full(count, NONE, dtype=np.int64)
    kinds: Bytes = kind.astype(np.int8)
    return Table(
        file="hand", start_ns=start, duration_ns=duration, kind=kinds, name=np.zeros(count, dtype=np.int32), category=none,
        thread=thread.astype(np.int32), stream=none, correlation=numbers, external=numbers, sequence=numbers,
        forward_thread=numbers, shapes=none, inputs=none, names=("x",), categories=(), threads=(), streams=(), texts=(),
    )  # fmt: skip


@st.composite
def nested(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """Events that nest, in any order; runtime calls among them, empty ones, and some that begin or end together."""
    spans: list[tuple[int, int, int, int]] = []

    def fill(thread: int, start: int, end: int, depth: int) -> None:
        at = start
        while at < end and len(spans) < 60 and draw(st.booleans()):
            first = draw(st.integers(at, end))
            last = draw(st.integers(first, end))
            kind = draw(st.sampled_from([Kind.OPERATOR, Kind.ANNOTATION, Kind.PYTHON, Kind.RUNTIME]))
            spans.append((thread, int(kind), first, last - first))
            if kind != Kind.RUNTIME and depth < 6:
                fill(thread, first, last, depth + 1)
            at = last

    for thread in range(draw(st.integers(1, 3))):
        fill(thread, draw(st.integers(-5, 5)), 60, 0)
    return draw(st.permutations(spans))


def with_a_stack(found: Nesting, of: Table) -> list[int]:
    """Each event's parent as a stack finds it."""
    parents: list[int] = []
    stack: list[int] = []
    for i, row in enumerate(found.rows.tolist()):
        while stack and (found.thread[stack[-1]] != found.thread[i] or found.end_ns[stack[-1]] <= found.start_ns[i]):
            stack.pop()
        parents.append(stack[-1] if stack else NONE)
        if of.kind[row] != Kind.RUNTIME and found.end_ns[i] > found.start_ns[i]:
            stack.append(i)
    return parents


@settings(max_examples=examples.count(100))
@given(nested())
def test_it_is_what_a_stack_finds(spans: list[tuple[int, int, int, int]]) -> None:
    of = columns(spans)
    result = nest(of)
    assert sorted(result.rows.tolist()) == list(range(len(spans)))
    assert result.parent.tolist() == with_a_stack(result, of)
    assert (result.start_ns == of.start_ns[result.rows]).all()
    assert (result.end_ns == of.end_ns[result.rows]).all()


_ANY = st.tuples(
    st.integers(0, 2),
    st.sampled_from([int(Kind.OPERATOR), int(Kind.ANNOTATION), int(Kind.PYTHON), int(Kind.RUNTIME)]),
    st.one_of(st.integers(0, 40), st.integers(-(2**63), 2**63 - 1)),
    st.one_of(st.integers(0, 30), st.integers(0, 2**63 - 1)),
)


@settings(max_examples=examples.count(100))
@given(st.lists(_ANY, max_size=40), st.sampled_from([0, 1, 24]))
def test_whatever_overlaps_nests_afterwards(spans: list[tuple[int, int, int, int]], rounds: int) -> None:
    """Also with no rounds at all, when one event after the other is looked at."""
    of = columns(spans)
    before, nesting.MAX_REPAIR_ROUNDS = nesting.MAX_REPAIR_ROUNDS, rounds  # type: ignore[misc]
    try:
        result = nest(of)
    finally:
        nesting.MAX_REPAIR_ROUNDS = before  # type: ignore[misc]
    assert sorted(result.rows.tolist()) == list(range(len(spans)))
    assert (result.end_ns >= result.start_ns).all()
    inner = np.flatnonzero(result.parent != NONE)
    outer = result.parent[inner]
    assert (outer < inner).all()
    assert (result.thread[outer] == result.thread[inner]).all()
    assert (of.kind[result.rows[outer]] != Kind.RUNTIME).all()
    assert (result.start_ns[outer] <= result.start_ns[inner]).all()
    assert (result.start_ns[inner] < result.end_ns[outer]).all()
    calls = of.kind[result.rows[inner]] == Kind.RUNTIME
    assert (calls | (result.end_ns[inner] <= result.end_ns[outer])).all()


def test_a_range_ends_with_the_python_calls_that_open_and_end_it(tmp_path: Path) -> None:
    """`with record_function(...)` writes it from inside of __enter__ to inside of __exit__."""
    events = [
        call("main", 0, 100),
        call("__enter__", 10, 14),
        call("<built-in enter>", 11, 13),
        mark("part", 12, 51),
        op("aten::mul", 20, 30),
        call("__exit__", 50, 54),
        op("aten::add", 60, 70),
    ]
    of = table(tmp_path, events)
    result = nest(of)
    names = [of.names[of.name[row]] for row in result.rows]
    parents = {
        name: names[parent] if parent != NONE else ""
        for name, parent in zip(names, result.parent.tolist(), strict=True)
    }
    assert parents["aten::mul"] == "part"
    assert parents["part"] == parents["__enter__"] == parents["__exit__"] == parents["aten::add"] == "main"


def test_a_child_that_ends_a_little_late_is_still_one(tmp_path: Path) -> None:
    events = [op("aten::outer", 0, 10), op("aten::inner", 5, 10.002), op("aten::next", 10.001, 20)]
    result = nest(table(tmp_path, events))
    assert result.parent.tolist() == [NONE, 0, NONE]


def test_runtime_calls_enclose_nothing_and_threads_do_not_mix(tmp_path: Path) -> None:
    events = [
        op("aten::mul", 0, 10),
        launch(1, 2, 30),
        op("aten::empty", 4, 6),
        op("aten::mul", 1, 9, thread=ENGINE),
        kernel("k", 0, 100, 1),
    ]
    result = nest(table(tmp_path, events))
    assert result.parent.tolist() == [NONE, 0, 0, NONE]


@pytest.mark.parametrize("depth", [40_000, 200_000])
def test_any_depth_takes_little_time(depth: int) -> None:
    spans = [(0, int(Kind.OPERATOR), i, 2 * (depth - i)) for i in range(depth)]
    result = nest(columns(spans))
    assert result.parent.tolist() == list(range(-1, depth - 1))
    only_first = np.zeros(depth, dtype=bool)
    only_first[0] = True
    assert not innermost_enclosing(result.parent, only_first).any()


def test_nothing_at_all() -> None:
    result = nest(columns([]))
    assert len(result.rows) == len(result.parent) == 0
    assert len(innermost_enclosing(result.parent, np.zeros(0, dtype=bool))) == 0


@settings(max_examples=examples.count(60))
@given(nested())
def test_the_innermost_and_the_outermost_around(spans: list[tuple[int, int, int, int]]) -> None:
    of = columns(spans)
    result = nest(of)
    count = len(result.rows)
    mask = np.array([(i * 7 + count) % 3 == 0 for i in range(count)], dtype=bool)
    around = innermost_enclosing(result.parent, mask)
    outer = outermost_enclosing(result.parent, around)
    for i in range(count):
        chain = [i]
        while result.parent[chain[-1]] != NONE:
            chain.append(int(result.parent[chain[-1]]))
        hits = [j for j in chain if mask[j]]
        assert around[i] == (hits[0] if hits else NONE)
        assert outer[i] == (hits[-1] if hits else NONE)
