"""Attribution of malformed traces ends without an error, in bounded time, with valid columns."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import examples
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.result import Attribution, Evidence
from profiler_kit.records import marks
from profiler_kit.records.counts import TRACE_PHASES
from profiler_kit.traces.reader import read
from profiler_kit.traces.table import DEVICE_KINDS, HOST_KINDS, NONE, Kind, Stream, Table, Thread

RECORDED = sorted((Path(__file__).parents[1] / "fixtures" / "traces").glob("*.json.gz"))
NAMES = (
    "aten::mul", "aten::nll_loss", "aten::ones_like", "aten::item", "aten::to", "nn.Module: A_0", "nn.Module: B_1",
    "nn.Module: XLoss_2", "nn.Module: GraphModule_3", "autograd::engine::evaluate_function: MulBackward0",
    "torch::autograd::AccumulateGrad", "torch::jit::(anonymous namespace)::DifferentiableGraphBackward",
    "Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad", "enumerate(DataLoader)#x",
    "DistributedDataParallel.forward", "Torch-Compiled Region: 0/0", "CompiledFunction", "## Call CompiledFxGraph abc ##",
    "c10d::allreduce_", "torch/_tensor.py(1): backward", "torch/nn/functional.py(2): mse_loss", "ncclKernel_AllReduce",
    "Memcpy HtoD (Pageable -> Device)", "gemm", "", "\x00\ud800",
)  # fmt: skip
STEPS = ("ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#", "ProfilerStep#99999999999999999999999")
OURS = (
    marks.step(1), marks.step(2), "pk:step:x", marks.phase("forward"), marks.phase("backward"), marks.phase("nonsense"),
    marks.phase("loss"), marks.module(""), marks.module("a"), marks.module("a.b"),
)  # fmt: skip


def check(found: Attribution) -> None:
    """What everything after it relies on."""
    table, host, device = found.table, found.host, found.device
    assert sorted(host.rows.tolist()) == np.flatnonzero(table.of(*HOST_KINDS)).tolist()
    assert sorted(device.rows.tolist()) == np.flatnonzero(table.of(*DEVICE_KINDS)).tolist()
    positions = np.arange(len(host.rows))
    for column in (host.parent, host.operator, host.node, host.python):
        assert len(column) == len(host.rows)
        assert ((column >= NONE) & (column <= positions)).all()
    for owner, count in ((host, len(host.rows)), (device, len(device.rows))):
        assert len(owner.phase) == len(owner.module) == len(owner.step) == count
        assert ((owner.phase >= NONE) & (owner.phase < len(TRACE_PHASES))).all()
        assert ((owner.module >= NONE) & (owner.module < len(found.modules))).all()
        assert ((owner.step >= NONE) & (owner.step < len(found.steps))).all()
    assert ((device.launch >= NONE) & (device.launch < len(host.rows))).all()
    launched = device.launch[device.launch != NONE]
    assert (table.kind[host.rows[launched]] == Kind.RUNTIME).all()
    assert (device.phase[device.launch != NONE] != NONE).all()
    apart = device.phase != device.within
    assert (TRACE_PHASES.index("communication") == device.phase[apart]).all()
    assert (device.evidence[apart] == Evidence.NAME).all()
    assert all(before.end_ns <= after.start_ns for before, after in zip(found.steps, found.steps[1:], strict=False))
    assert all(len(module.path) < 10_000 for module in found.modules)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Events of all kinds with any numbers in any column."""
    count = draw(st.integers(0, 60))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    names = NAMES + draw(st.sampled_from([(), STEPS, OURS, STEPS + OURS]))
    wide = draw(st.sampled_from([50, 2000, 2**62]))
    numbers = draw(st.sampled_from([3, 12, 2**62]))

    def any_of(low: int, high: int, chance: float = 1.0) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        values = random.integers(low, high, count)
        return np.where(random.random(count) < chance, values, NONE)

    return Table(
        file="garbage",
        start_ns=any_of(-wide, wide),
        duration_ns=any_of(0, draw(st.sampled_from([1, 30, 1000, 2**62]))).clip(0),
        kind=any_of(0, 13).astype(np.int8),
        name=any_of(0, len(names)).astype(np.int32).clip(0),
        category=np.full(count, NONE, dtype=np.int32),
        thread=any_of(0, 3).astype(np.int32).clip(0),
        stream=any_of(0, 2).astype(np.int32),
        correlation=any_of(-numbers, numbers, 0.7),
        external=any_of(-numbers, numbers, 0.5),
        sequence=any_of(-numbers, numbers, 0.6),
        forward_thread=any_of(0, 3, 0.9).clip(0),
        shapes=np.full(count, NONE, dtype=np.int32),
        inputs=np.full(count, NONE, dtype=np.int32),
        names=names,
        categories=(),
        threads=tuple(Thread("1", str(number)) for number in range(3)),
        streams=(Stream("0", "7"), Stream("0", "20")),
        texts=(),
    )


@settings(max_examples=examples.count(150), suppress_health_check=[HealthCheck.too_slow])
@given(tables())
def test_any_table_has_owners(table: Table) -> None:
    check(attribute(table))


@settings(max_examples=examples.count(60))
@given(st.sampled_from(RECORDED), st.integers(0, 2**32 - 1), st.sampled_from([0.01, 0.2, 1.0]))
def test_recorded_traces_with_columns_shuffled(path: Path, seed: int, share: float) -> None:
    table = read(path)
    random = np.random.default_rng(seed)
    changed = {}
    for column in ("start_ns", "duration_ns", "name", "thread", "correlation", "sequence", "forward_thread", "kind"):
        values = getattr(table, column).copy()
        some = np.flatnonzero(random.random(len(values)) < share)
        values[some] = values[random.permutation(some)]
        if random.random() < 0.5:
            changed[column] = values
    if "kind" in changed:
        changed["stream"] = np.where(table.stream < 0, 0, table.stream)
    check(attribute(replace(table, **changed, streams=table.streams or (Stream("0", "7"),))))


def many(count: int, **columns: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Table:
    none = np.full(count, NONE, dtype=np.int64)
    given = {
        "duration_ns": none + 2,
        "kind": none + 2,
        "name": none + 1,
        "thread": none + 1,
        "forward_thread": none + 1,
        **columns,
    }
    short = {
        name: given.get(name, none).astype(np.int32)
        for name in ("name", "category", "thread", "stream", "shapes", "inputs")
    }
    long = {
        name: given.get(name, none) for name in ("duration_ns", "correlation", "external", "sequence", "forward_thread")
    }
    return Table(
        file="many", start_ns=given.get("start_ns", np.arange(count)), kind=given["kind"].astype(np.int8), **short, **long,
        names=(*NAMES, *STEPS), categories=(), threads=tuple(Thread("1", str(i)) for i in range(count)), streams=(), texts=(),
    )  # fmt: skip


HARD = 100_000
EVERY = np.arange(HARD)
hard = partial(partial, many, HARD)  # a table is built in its test, and not in each process that lists the tests


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(hard(thread=EVERY), id="a thread for every event"),
        pytest.param(hard(thread=EVERY, sequence=EVERY % 5, forward_thread=EVERY % 2 * EVERY), id="all of them make nodes"),
        pytest.param(hard(start_ns=EVERY, duration_ns=2 * (HARD - EVERY)), id="one in the other"),
        pytest.param(hard(start_ns=EVERY, duration_ns=EVERY * 0 + HARD), id="all overlap"),
        pytest.param(
            hard(kind=EVERY * 0 + 3, name=EVERY % 2 + 5, duration_ns=2 * (HARD - EVERY)), id="modules in each other"
        ),
        pytest.param(
            hard(name=EVERY * 0 + 9, sequence=EVERY * 0 + 3, forward_thread=EVERY * 0 + 1, duration_ns=2 * (HARD - EVERY)),
            id="nodes in each other",
        ),
        pytest.param(hard(name=EVERY * 0 + len(NAMES)), id="every event a step"),
        pytest.param(hard(name=EVERY * 0 + 12), id="every event an optimizer's step"),
        pytest.param(hard(correlation=EVERY * 0 + 1, kind=EVERY % 2 + 4), id="one correlation for all"),
    ],
)  # fmt: skip
def test_hard_traces_take_little_time(make: Callable[[], Table]) -> None:
    table = make()
    began = time.process_time()
    check(attribute(table))
    assert time.process_time() - began < 60  # a fraction of a second; quadratic work takes minutes
