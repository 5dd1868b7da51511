"""GPU tests of varying shapes: benchmark off and on, a smaller last batch, a new thread, out of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

from profiler_kit.loading import load  # noqa: E402
from profiler_kit.measurement import plan as configs  # noqa: E402
from profiler_kit.measurement.experiments import run_schedule  # noqa: E402
from profiler_kit.records.experiments import ShapeSchedule  # noqa: E402
from profiler_kit.records.schedules import (  # noqa: E402
    benchmark_pairs,
    cycle_ns,
    last_batch,
    new_shape_factor,
    repeated_shape_ns,
    total_ns,
)
from profiler_kit.records.target import TargetSpec  # noqa: E402
from profiler_kit.worker import environment  # noqa: E402
from profiler_kit.worker.steps import Runner, synced_step_ns  # noqa: E402
from profiler_kit.worker.threads import time_new_thread  # noqa: E402

MODELS = Path(__file__).resolve().parents[2] / "models"
CONFIGS = {config.name: config for config in configs.make_plan("cudnn").configs}
V1 = TargetSpec(spec=str(MODELS / "convnet_v1.py"), batch=2)


def run_shapes(name: str, text: str = "auto", spec: TargetSpec = V1) -> ShapeSchedule:
    return run_schedule(spec, CONFIGS[name], device="cuda", text=text, timeout_s=400)


@pytest.fixture(scope="module")
def default_and_benchmark() -> tuple[ShapeSchedule, ShapeSchedule]:
    return run_shapes("default"), run_shapes("benchmark")


def test_v1_runs_over_twelve_sizes_and_a_smaller_batch(
    default_and_benchmark: tuple[ShapeSchedule, ShapeSchedule],
) -> None:
    for schedule in default_and_benchmark:
        assert schedule.failure is None
        assert len(schedule.steps) == 39
        assert all(step.peak_bytes and step.rss_bytes for step in schedule.steps)
        assert schedule.device == "cuda"
    assert len(benchmark_pairs(default_and_benchmark)) == 1


def test_new_shapes_are_slow_and_slower_with_benchmark(
    default_and_benchmark: tuple[ShapeSchedule, ShapeSchedule],
) -> None:
    """An H100 took 490, 33, 31 ms a cycle by default and 4366, 29, 20 with benchmark."""
    default, benchmark = default_and_benchmark
    assert (new_shape_factor(default) or 0) > 3
    assert (new_shape_factor(benchmark) or 0) > 20
    assert total_ns(benchmark) > 2 * total_ns(default)
    for schedule in default_and_benchmark:
        first, second = cycle_ns(schedule, 1), cycle_ns(schedule, 2)
        assert first is not None
        assert second is not None
        assert first > 3 * second
    assert (repeated_shape_ns(benchmark) or 0) < 1.1 * (repeated_shape_ns(default) or 0)


def test_a_smaller_last_batch_is_a_new_shape(default_and_benchmark: tuple[ShapeSchedule, ShapeSchedule]) -> None:
    """An H100 took 303 ms with benchmark, 26 without."""
    without, with_search = (last_batch(schedule) for schedule in default_and_benchmark)
    assert without is not None
    assert with_search is not None
    assert with_search.first_ns > 3 * without.first_ns
    assert with_search.seen_ns is not None
    assert with_search.first_ns > 10 * with_search.seen_ns


def test_out_of_memory_keeps_earlier_steps() -> None:
    schedule = run_shapes("default", "128,100000")
    assert [step.shape for step in schedule.steps] == [(2, 3, 128, 128)]
    assert "2x3x100000x100000" in (schedule.failure or "")


def test_inference_runs() -> None:
    spec = TargetSpec(spec=V1.spec, batch=2, mode="infer")
    schedule = run_shapes("default", "96,128", spec)
    assert schedule.failure is None
    assert len(schedule.steps) == 6


def test_a_new_thread_searches_again() -> None:
    environment.apply_flags(CONFIGS["benchmark"])
    try:
        runner = Runner(load(V1, device="cuda"))
        environment.prewarm(runner.target.device)
        synced_step_ns(runner)
        first = time_new_thread(runner)
    finally:
        environment.apply_flags(CONFIGS["default"])
    assert first.first_ns > 20 * first.steady_ns
    assert first.steady_ns < 20_000_000
