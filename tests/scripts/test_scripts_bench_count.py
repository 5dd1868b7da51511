"""Tests of the counting benchmark: published network sizes, one process per counter, and outcomes of the cases."""

from __future__ import annotations

import argparse
from collections import Counter
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from profiler_kit import counting
from profiler_kit.counting import count_target
from profiler_kit.counting.step import trace_step
from profiler_kit.loading import from_model
from profiler_kit.meta.op_memo import Memo
from profiler_kit.records.counts import OpRecord
from scripts.bench import cases as bench_cases
from scripts.bench import count as bench_count
from scripts.bench import one_counter as bench_one
from scripts.bench import peers as bench_peers
from scripts.bench.networks.counted import MODELS, true_macs

pytestmark = pytest.mark.jobs

PARAMETERS = {"resnet50": 25_557_032, "vit_b_16": 86_567_656, "gpt2_small": 124_439_808, "llama_7b": 6_738_415_616}


def tally_calls(ops: tuple[OpRecord, ...]) -> Counter[object]:
    """Count the calls by layer and phase."""
    tally: Counter[object] = Counter()
    for op in ops:
        tally[op[:-1]] += op.calls
    return tally


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("name", MODELS)
def test_every_call_is_the_same_without_a_memo(name: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = MODELS[name]()
    target = from_model(model, inputs, mode="infer") if mode == "infer" else from_model(model, inputs, loss="sum")
    fast = trace_step(target, Memo())
    target.model.zero_grad(set_to_none=True)  # an existing gradient is added to, which is another op
    slow = trace_step(target, Memo(limit=0))
    target.model.zero_grad(set_to_none=True)
    assert tally_calls(fast.ops) == tally_calls(slow.ops)
    assert fast.calls == slow.calls
    assert fast.saved == slow.saved
    static = count_target(target)
    monkeypatch.setattr(counting, "memo_for_modes", lambda modes: Memo(limit=0))
    assert static == count_target(target)
    assert static.params == PARAMETERS[name]
    assert static.forward.macs == true_macs(name, backward=False)
    if mode == "train":
        assert static.forward.macs + static.backward.macs == true_macs(name, backward=True)


def test_counting_takes_less_than_the_step_it_counts() -> None:
    """Counting takes half of the step's CPU time. A round that other processes disturb is followed by others."""
    model, inputs = MODELS["gpt2_small"]()
    count = bench_peers.PEERS["profiler-kit"].step
    assert count is not None
    callbacks = [partial(bench_one.bare_step, model, inputs), count(model, inputs)]
    rounds = (bench_one.time_alternating(callbacks, 3) for _ in range(10))
    assert any(counted < 0.8 * bare for bare, counted in rounds)


def options(**values: object) -> argparse.Namespace:
    return argparse.Namespace(**{"repeats": 1, "device": "meta", "list": True} | values)


def test_a_counter_runs_in_its_own_process() -> None:
    measurement = bench_count.measure_counter("profiler-kit", "vit_b_16", options())
    assert (measurement.forward_ratio, measurement.backward_ratio, measurement.note) == (1, 1, "")
    assert bench_count.format_cells(measurement)[:2] == ["1", "1"]
    assert measurement.step_ms is not None
    assert measurement.step_ms > 0


def test_a_missing_counter_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = bench_peers.Peer(
        package="no-such-counter", module="no_such_counter", forward=bench_peers.PEERS["fvcore"].forward
    )
    monkeypatch.setitem(bench_peers.PEERS, "missing", missing)
    measurement = bench_count.measure_counter("missing", "resnet50", options())
    assert measurement.note == "not installed"
    assert bench_count.format_cells(measurement) == [None] * 8
    assert "not installed" in bench_count.format_cases(options(counters=["missing"]))


def test_a_counter_that_ends_its_process_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench_peers.PEERS, "unknown there", bench_peers.PEERS["FlopCounterMode"])
    assert bench_count.measure_counter("unknown there", "resnet50", options()).note.startswith(
        "process failed (exit status 2): "
    )


def test_a_counter_may_fail_on_meta_and_have_a_figure_on_the_cpu() -> None:
    def fails_on_meta(model: nn.Module, inputs: bench_peers.Inputs) -> bench_peers.Counting:
        if inputs[0].is_meta:
            raise ValueError("no data")
        return lambda: bench_peers.Figure(1.0, missing_ops=("mul",))

    peer = bench_peers.Peer(package="", module="", forward=fails_on_meta)
    assert bench_one.measure(peer, "resnet50", 1) == bench_one.Measurement(
        note="fails on meta tensors: ValueError: no data"
    )
    measurement = bench_one.count_on_cpu(peer, "resnet50")
    assert measurement.forward_ratio == 1.0 / (2 * true_macs("resnet50", backward=False))
    assert "CPU" in measurement.note
    assert "1 kinds of ops" in measurement.note
    assert bench_one.count_on_cpu(peer, "llama_7b").forward_ratio is None


def test_modules_used_by_a_case_are_registered_in_its_model() -> None:
    inner, outer, argument = nn.Linear(2, 3), nn.Linear(3, 4), nn.ReLU()

    def function(scale: float, module: nn.Module, x: Tensor) -> Tensor:
        out: Tensor = module(outer(partial(inner)(x))) * scale
        return out

    model, inputs = bench_cases.wrap_function(partial(function, 2.0), argument, torch.ones(5, 2))
    assert {*model.parts} == {inner, outer, argument}
    assert model(*inputs).shape == (5, 4)


def test_cases_find_torchs_functions_when_they_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = bench_cases.wrap_function(partial(torch.mm), torch.ones(2, 2), torch.ones(2, 2))
    monkeypatch.setattr(torch, "mm", lambda a, b: "patched")
    assert model(*inputs) == "patched"


class FixedCounter:
    """A counter that returns a fixed figure; a negative figure raises an error."""

    def __init__(self, figure: float, missing_ops: tuple[str, ...] = ()) -> None:
        self.figure = bench_peers.Figure(figure, missing_ops=missing_ops)

    def __call__(self, model: nn.Module, inputs: bench_peers.Inputs) -> bench_peers.Counting:
        if self.figure.forward < 0:
            raise ValueError("not this\nnever")
        return lambda: self.figure


@pytest.mark.parametrize(
    ("counter", "outcome"),
    [
        (FixedCounter(2 * 6 * 4 * 5), "exact"),
        (FixedCounter(2 * 6 * 4 * 5 + 30), "close"),
        (FixedCounter(6 * 4 * 5), "wrong"),
        (FixedCounter(0, ("mm",)), "wrong, reports missing ops"),
        (FixedCounter(-1), "refused"),
    ],
)
def test_outcomes(counter: FixedCounter, outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for name, case in bench_cases.load_cases().items() if "dynamically" in name)
    assert case.macs == 6 * 4 * 5
    monkeypatch.setattr(bench_cases, "load_cases", lambda: {"linear": case})
    (answer,) = bench_cases.run_cases(bench_peers.Peer(package="", module="", forward=counter), "cpu")
    assert answer.forward == outcome
    assert answer.backward is None
    assert answer.reason == {"refused": "ValueError: not this", "wrong, reports missing ops": "mm"}.get(outcome, "")
