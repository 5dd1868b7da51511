"""Work without a launch gets the owner of the same work in another step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

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


def laid(names: list[int], known: list[bool], steps: list[int] | None = None) -> list[int]:
    number = np.array(names, dtype=np.int32)
    step: Ids = np.array(steps if steps is not None else [0] * len(names), dtype=np.int32)
    return match_unlinked(number, np.zeros(len(names), dtype=np.int32), step, np.array(known, dtype=bool)).tolist()


@pytest.mark.parametrize("lost", [1, 2, 5, 12, 20])
def test_the_end_of_a_step_and_more(lost: int) -> None:
    names = (STEP * 5)[-(lost + 36) :]
    found = laid(names, [False] * lost + [True] * 36)
    assert all(names[at] == name for at, name in zip(found[:lost], names, strict=False))
    assert [(at - i) % 12 for i, at in enumerate(found[:lost])] == [0] * lost
    assert found[lost:] == [NONE] * 36


def test_steps_that_differ_in_places() -> None:
    before = STEP.copy()
    before[3] = 77  # another algorithm
    before.insert(9, 88)  # and one more
    names = before + STEP + STEP
    found = laid(names, [False] * 13 + [True] * 24)
    right = [13, 14, 15, NONE, 17, 18, 19, 20, 21, NONE, 22, 23, 24]
    assert [NONE if at == NONE else 13 + (at - 13) % 12 for at in found[:13]] == right


def test_a_gap_amid_a_step() -> None:
    names = STEP * 3
    known = [True] * 36
    known[14:20] = [False] * 6
    found = laid(names, known)
    assert [at % 12 for at in found[14:20]] == [i % 12 for i in range(14, 20)]


def test_what_is_nowhere_else_stays_nobodys() -> None:
    assert laid([70, 71, 72, *STEP, *STEP], [False] * 3 + [True] * 24)[:3] == [NONE] * 3
    assert laid([1, 2, 3], [False] * 3) == [NONE] * 3
    assert laid([], []) == []


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 2)), max_size=80))
def test_only_the_same_name_and_only_known_work(events: list[tuple[int, bool, int]]) -> None:
    name = np.array([event[0] for event in events], dtype=np.int32)
    known = np.array([event[1] for event in events], dtype=bool)
    stream = np.array([event[2] for event in events], dtype=np.int32)
    found = match_unlinked(name, stream, np.zeros(len(events), dtype=np.int32), known)
    hit = np.flatnonzero(found != NONE)
    assert not known[hit].any()
    assert known[found[hit]].all()
    assert (name[found[hit]] == name[hit]).all()
    assert (stream[found[hit]] == stream[hit]).all()


@pytest.mark.parametrize("kinds", [1, 2, 1000])
def test_hopeless_traces_take_little_time(kinds: int) -> None:
    """Every other event has no launch, in a trace of half a million."""
    count = 500_000
    name = (np.arange(count) * 7919 % kinds).astype(np.int32)
    known = np.arange(count) % 2 == 0
    nothing = np.zeros(count, dtype=np.int32)
    assert len(match_unlinked(name, nothing, nothing, known)) == count


def hide_a_step(of: Table, start_ns: int, end_ns: int) -> Table:
    """The trace, had the launches of that time not been recorded."""
    calls = of.of(Kind.RUNTIME) & (of.start_ns >= start_ns) & (of.start_ns < end_ns)
    return replace(of, correlation=np.where(calls, NONE, of.correlation))


@pytest.mark.parametrize("path", [*RECORDED, *(PUBLISHED / name for name in TRACES)], ids=lambda path: path.name[:32])
@pytest.mark.parametrize("which", [0, 1])
def test_a_hidden_steps_owners_are_found_again(path: Path, which: int) -> None:
    if not path.exists():
        pytest.skip("the published traces are not beside this checkout")
    whole = attribute(read(path))
    hidden = attribute(hide_a_step(whole.table, whole.steps[which].start_ns, whole.steps[which].end_ns))
    lost = (whole.device.launch != NONE) & (hidden.device.launch == NONE)
    assert lost.sum() >= 10
    right = lost & (hidden.device.within == whole.device.within) & (hidden.device.phase == whole.device.phase)
    paths = [
        np.array([*(module.path for module in attribution.modules), ""], dtype=object)[attribution.device.module]
        for attribution in (whole, hidden)
    ]
    right &= paths[0] == paths[1]
    assert right.sum() >= 0.99 * lost.sum()
    kept = ~lost
    assert (hidden.device.launch[kept] == whole.device.launch[kept]).all()
    assert set(np.unique(hidden.device.evidence[lost]).tolist()) <= {Evidence.NONE, Evidence.NAME, Evidence.ALIGNED}
