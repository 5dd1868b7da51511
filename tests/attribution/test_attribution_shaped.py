"""Device time by operator and shapes, forward and backward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from inspection_traces import ENGINE, Event, kernel, launch, mark, node, op, table

from profiler_kit.attribution.device_time import device_timeline
from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.summary import summarize
from profiler_kit.attribution.totals import MAX_SHAPED_OPERATORS, shaped_operators, tensor_shapes

LINEAR = [[4, 8], [16, 8], [16]]
OTHER = [[4, 16], [2, 16], [2]]


def shaped(event: Event, shapes: Any) -> Event:
    return {**event, "args": {**event["args"], "Input Dims": shapes}}


def step(start: int, correlation: int, sequence: int) -> list[Event]:
    """Two layers of one class and other sizes, and their backward pass."""
    events: list[Event] = []
    for i, (shapes, took) in enumerate(((LINEAR, 10), (OTHER, 3))):
        at, number = start + 20 * i, correlation + 4 * i
        events += [
            shaped(op("aten::linear", at, at + 15, sequence=sequence + i), shapes),
            shaped(op("aten::addmm", at + 2, at + 12, sequence=sequence + i), [shapes[2], shapes[0], shapes[1][::-1]]),
            launch(number, at + 4),
            kernel("gemm", at + 6, at + 6 + took, number),
            node("AddmmBackward0", at + 100, at + 115, sequence + i),
            shaped(op("aten::mm", at + 102, at + 112, thread=ENGINE), [[4, 4], [4, 4]]),
            launch(number + 1, at + 103, thread=ENGINE),
            kernel("gemm back", at + 105, at + 105 + 2 * took, number + 1),
        ]
    return events


def test_backward_is_its_forwards_and_layers_are_told_apart_by_shape(tmp_path: Path) -> None:
    events = [mark("ProfilerStep#1", 0, 299), *step(0, 1, 10), mark("ProfilerStep#2", 300, 599), *step(300, 20, 12)]
    first, second = summarize(attribute(table(tmp_path, events))).shapes
    assert (first.name, first.family, first.shapes, first.calls) == (
        "aten::linear",
        "gemm",
        ((4, 8), (16, 8), (16,)),
        2,
    )
    assert (first.forward_ns, first.backward_ns, first.kernel_ns) == (20_000, 40_000, 60_000)
    assert second.shapes == ((4, 16), (2, 16), (2,))
    assert (second.forward_ns, second.backward_ns, second.kernel_ns) == (6_000, 12_000, 18_000)


def test_work_of_nodes_whose_operator_is_not_there_stands_under_what_launched_it(tmp_path: Path) -> None:
    events = [event for event in step(0, 1, 10) if event["name"] not in ("aten::linear", "aten::addmm")]
    (result,) = summarize(attribute(table(tmp_path, events))).shapes
    assert (result.name, result.shapes, result.calls, result.backward_ns) == ("aten::mm", ((4, 4), (4, 4)), 2, 26_000)


def test_a_trace_without_shapes_says_none(tmp_path: Path) -> None:
    events = [
        {**event, "args": {k: v for k, v in event["args"].items() if k != "Input Dims"}} for event in step(0, 1, 1)
    ]
    assert summarize(attribute(table(tmp_path, events))).shapes == ()


def test_an_authors_own_operator_is_named_itself_and_no_more_than_twenty_are_kept(tmp_path: Path) -> None:
    events: list[Event] = [shaped(op("mine::all", 0, 1200), [[9]])]
    for i in range(MAX_SHAPED_OPERATORS + 5):
        at = 40 * i
        events += [
            shaped(op("aten::relu", at, at + 9), [[i + 1]]),
            launch(i, at + 1),
            kernel("relu", at + 3, at + 5 + i, i),
        ]
    of = attribute(table(tmp_path, events))
    result = shaped_operators(of, device_timeline(of.device).event_busy_ns)
    assert len(result) == MAX_SHAPED_OPERATORS
    assert [entry.shapes for entry in result[:2]] == [((MAX_SHAPED_OPERATORS + 5,),), ((MAX_SHAPED_OPERATORS + 4,),)]
    assert {entry.name for entry in result} == {"aten::relu"}


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("[[8, 3], [], [2]]", ((8, 3), (2,))),
        ("[[[1, 2], [3, 4]], []]", ((1, 2), (3, 4))),
        ("[]", ()),
        ("[[-1, 2]]", ()),
        ('[["a"]]', ()),
        ("[[8, 3], 7]", ()),
        ("no json", ()),
        ("[" * 3000 + "]" * 3000, ()),
        ("[[[[[1]]]]]", ()),
        ("[" + "[1]," * 2000 + "[1]]", ()),
    ],
)
def test_shapes_as_written(text: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    assert tensor_shapes(text) == shapes


def test_operators_have_the_time_of_float64_inputs_and_of_their_longest_calls(tmp_path: Path) -> None:
    """In each of two steps, one of three products is long, and one is in float64."""

    def product(at: float, end: float, *types: str) -> Event:
        return {**op("aten::mm", at, end), "args": {"Input type": list(types), "Input Dims": [[2, 3], [3, 4]]}}

    events = [
        event
        for at in (1000.0, 2000.0)
        for event in (
            mark(f"ProfilerStep#{int(at)}", at, at + 900),
            product(at + 10, at + 40, "float", "float"),
            product(at + 50, at + 250, "float", "double"),
            product(at + 300, at + 350, "double", "double"),
        )
    ]
    summary = summarize(attribute(table(tmp_path, [*events, mark("Optimizer.step#SGD.step", 2800, 2850)])))
    (product_total,) = summary.operators
    assert summary.optimizers == ("SGD",)
    assert product_total.dtypes == ("float32", "float64"), "the types of the first inputs, the one with more time first"
    # before the products of the second step there is the longest gap; it counts once
    longest = max(part.longest_ns for part in summary.idle)
    assert 0 < longest < sum(part.ns for part in summary.idle)
    assert all(part.longest_ns <= part.ns <= part.longest_ns * part.gaps for part in summary.idle)
    assert product_total.kernel_ns == 2 * (30 + 200 + 50) * 1000
    assert product_total.float64_ns == 2 * 50 * 1000, "a later input may be a scalar"
    assert product_total.longest_ns == 2 * 200 * 1000
