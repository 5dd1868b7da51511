"""Work without a launch is attributed like the same work of another step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import examples
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_attribution_published import PUBLISHED

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.result import Evidence
from profiler_kit.attribution.step_matching import match_unlinked
from profiler_kit.traces.reader import read
from profiler_kit.traces.table import NONE, Ids, Kind, Table

RECORDED = sorted((Path(__file__).parents[1] / "fixtures" / "traces").glob("*.cuda.json.gz"))
TRACES = [
    "h100/convnet_v0.json.gz",
    "h200_ddp/ddp_plain_rank0.json.gz",
    "h200_ddp/ddp_plain_rank1.json.gz",
    "hta/ns_resolution_resnet_ddp_v100.json.gz",
    "kineto/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz",
    "tracelens/mi300_resnet_ddp_act_checkpoint.json.gz",
]
STEP = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]


def matched_positions(names: list[int], known: list[bool], steps: list[int] | None = None) -> list[int]:
    number = np.array(names, dtype=np.int32)
    step: Ids = np.array(steps if steps is not None else [0] * len(names), dtype=np.int32)
    return match_unlinked(number, np.zeros(len(names), dtype=np.int32), step, np.array(known, dtype=bool)).tolist()


@pytest.mark.parametrize("lost", [1, 2, 5, 12, 20])
def test_the_end_of_a_step_and_more(lost: int) -> None:
    names = (STEP * 5)[-(lost + 36) :]
    result = matched_positions(names, [False] * lost + [True] * 36)
    assert all(names[at] == name for at, name in zip(result[:lost], names, strict=False))
    assert [(at - i) % 12 for i, at in enumerate(result[:lost])] == [0] * lost
    assert result[lost:] == [NONE] * 36


def test_steps_that_differ_in_places() -> None:
    before = STEP.copy()
    before[3] = 77  # another algorithm
    before.insert(9, 88)  # and one more
    names = before + STEP + STEP
    result = matched_positions(names, [False] * 13 + [True] * 24)
    right = [13, 14, 15, NONE, 17, 18, 19, 20, 21, NONE, 22, 23, 24]
    assert [NONE if at == NONE else 13 + (at - 13) % 12 for at in result[:13]] == right


def test_a_gap_amid_a_step() -> None:
    names = STEP * 3
    linked = [True] * 36
    linked[14:20] = [False] * 6
    result = matched_positions(names, linked)
    assert [at % 12 for at in result[14:20]] == [i % 12 for i in range(14, 20)]


def test_what_is_nowhere_else_stays_nobodys() -> None:
    assert matched_positions([70, 71, 72, *STEP, *STEP], [False] * 3 + [True] * 24)[:3] == [NONE] * 3
    assert matched_positions([1, 2, 3], [False] * 3) == [NONE] * 3
    assert matched_positions([], []) == []


@settings(max_examples=examples.count(80))
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 2)), max_size=80))
def test_only_the_same_name_and_only_known_work(events: list[tuple[int, bool, int]]) -> None:
    name = np.array([event[0] for event in events], dtype=np.int32)
    linked = np.array([event[1] for event in events], dtype=bool)
    stream = np.array([event[2] for event in events], dtype=np.int32)
    result = match_unlinked(name, stream, np.zeros(len(events), dtype=np.int32), linked)
    hit = np.flatnonzero(result != NONE)
    assert not linked[hit].any()
    assert linked[result[hit]].all()
    assert (name[result[hit]] == name[hit]).all()
    assert (stream[result[hit]] == stream[hit]).all()


@pytest.mark.parametrize("kinds", [1, 2, 1000])
def test_hopeless_traces_take_little_time(kinds: int) -> None:
    """Every other event has no launch, in a trace of half a million."""
    count = 500_000
    name = (np.arange(count) * 7919 % kinds).astype(np.int32)
    linked = np.arange(count) % 2 == 0
    nothing = np.zeros(count, dtype=np.int32)
    assert len(match_unlinked(name, nothing, nothing, linked)) == count


def hide_a_step(of: Table, start_ns: int, end_ns: int) -> Table:
    """The trace, had the launches of that time not been recorded."""
    calls = of.of(Kind.RUNTIME) & (of.start_ns >= start_ns) & (of.start_ns < end_ns)
    return replace(of, correlation=np.where(calls, NONE, of.correlation))


@pytest.mark.parametrize("path", [*RECORDED, *(PUBLISHED / name for name in TRACES)], ids=lambda path: path.name[:32])
@pytest.mark.parametrize("which", [0, 1])
def test_a_hidden_steps_owners_are_found_again(path: Path, which: int) -> None:
    if not path.exists():
        pytest.skip("the published traces are not beside this checkout")
    full = attribute(read(path))
    hidden = attribute(hide_a_step(full.table, full.steps[which].start_ns, full.steps[which].end_ns))
    lost = (full.device.launch != NONE) & (hidden.device.launch == NONE)
    assert lost.sum() >= 10
    right = lost & (hidden.device.within == full.device.within) & (hidden.device.phase == full.device.phase)
    paths = [
        np.array([*(module.path for module in attribution.modules), ""], dtype=object)[attribution.device.module]
        for attribution in (full, hidden)
    ]
    right &= paths[0] == paths[1]
    assert right.sum() >= 0.99 * lost.sum()
    is_linked = ~lost
    assert (hidden.device.launch[is_linked] == full.device.launch[is_linked]).all()
    assert set(np.unique(hidden.device.evidence[lost]).tolist()) <= {Evidence.NONE, Evidence.NAME, Evidence.ALIGNED}
