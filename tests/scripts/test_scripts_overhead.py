"""Tests of the overhead benchmark: its arithmetic, and the equality of both loops."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from profiler_kit.worker.steps import Runner
from scripts.bench import overhead as bench_overhead

pytestmark = pytest.mark.jobs

ROOT = Path(__file__).resolve().parents[2]


def test_overhead_is_the_median_ratio_over_rounds() -> None:
    rounds = [(100.0, 101.0, 101.0, 100.0), (100.0, 101.0, 101.0, 100.0), (100.0, 300.0, 300.0, 110.0)]
    result = bench_overhead.summarize("tiny", "cpu", 10, rounds)
    assert result.ratio == pytest.approx(1.01)
    assert result.cost_ns == 1
    assert result.noise == 1.0
    assert result.passed
    assert not bench_overhead.summarize("tiny", "cpu", 10, [(100.0, 103.0, 103.0, 100.0)]).passed


def test_both_loops_train_the_same_model() -> None:
    """The bare loop and the tool's step give bitwise equal parameters: they make the same calls."""
    torch.manual_seed(0)
    parameters = []
    for bare in (True, False):
        torch.manual_seed(0)
        runner = Runner(bench_overhead.target_of("tiny", "cpu"))
        step = bench_overhead.BareLoop(runner).step if bare else runner.step
        for _ in range(5):
            step()
        parameters.append([p.detach().clone() for p in runner.target.model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*parameters, strict=True))
