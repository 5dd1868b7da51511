"""Which comparisons need further processes, and when they end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from traced_runs import with_traced

from profiler_kit.records.configs import NamedValue, RunConfig
from profiler_kit.records.experiments import Repeat
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.samples import Difference, Interval
from profiler_kit.records.traces import TraceKernel, TraceModule
from profiler_kit.statistics.differences import MAX_PROCESSES
from profiler_kit.statistics.noise import Noise, noise_of_runs
from profiler_kit.statistics.sequential import PRECISE_LIMIT, is_decided, undecided_runs

MS = 1_000_000


def around(ns: int) -> Interval:
    """A median with an interval of one percent."""
    return Interval(median=ns, low=ns - ns // 200, high=ns + ns // 200)


def run_of(name: str, *medians_ms: float, device_ms: float | None = None, **settings: str) -> ConfigRun:
    """A run in one process for each of `medians_ms`, with `device_ms` of kernels."""
    steps = [around(round(ms * MS)) for ms in medians_ms]
    items = tuple(NamedValue(name=key, value=value) for key, value in settings.items())
    run = ConfigRun(
        config=RunConfig(name=name, benchmark=name == "benchmark", settings=items),
        step_ns=steps[0],
        further_repeats=tuple(Repeat(step_ns=step) for step in steps[1:]),
    )
    if device_ms is None:
        return run
    kernel = TraceKernel(name="k", family="gemm", calls=3, kernel_ns=round(device_ms * MS))
    layer = TraceModule(path="fc", phase="forward", kernel_ns=kernel.kernel_ns, kernels=(kernel,))
    return with_traced(run, clock="kernel", kernels=(kernel,), modules=(layer,), unattributed_ns=0)


def undecided(baseline: ConfigRun, *others: ConfigRun) -> list[str]:
    return [run.config.name for run in undecided_runs(baseline, others, noise_of_runs([baseline, *others]))]


@pytest.mark.parametrize(
    ("outcome", "limit", "expected"),
    [
        ("worse", 0.5, True),
        ("better", 0.5, True),
        ("same", PRECISE_LIMIT, True),
        ("same", PRECISE_LIMIT + 0.001, False),
        ("unknown", None, False),
    ],
)
def test_a_sure_or_a_precise_comparison_is_decided(outcome: str, limit: float | None, expected: bool) -> None:
    difference = Difference(ratio=1, low=1, high=1, limit=limit, outcome=outcome)  # type: ignore[arg-type]
    assert is_decided(difference) is expected


def test_noisy_steps_that_wait_for_the_host_need_more_processes() -> None:
    default, other = run_of("default", 10, 11), run_of("channels_last", 10.5, 10, channels_last="on")
    assert undecided(default, other) == ["channels_last"]
    assert undecided(run_of("default", 10), run_of("channels_last", 10.5, channels_last="on")) == ["channels_last"]


def test_no_more_processes_than_the_cap() -> None:
    medians = [10 + 3 * (number % 2) for number in range(MAX_PROCESSES)]
    assert undecided(run_of("default", *medians), run_of("threads", *medians[:-1], threads="1")) == ["threads"]
    assert not undecided(run_of("default", *medians), run_of("threads", *medians, threads="1"))


def test_sure_differences_and_failures_need_none() -> None:
    default = run_of("default", 10, 10.05, 10.02, 10.03)
    slow = run_of("threads", 30, 30.1, 30.2, 30.1, threads="1")
    assert not undecided(default, slow)
    failed = ConfigRun(config=RunConfig(name="bad"), failure=Failure(kind="crash", message="gone"))
    assert not undecided(default, failed)


def test_kernels_that_fill_the_step_decide_with_two_processes() -> None:
    default = run_of("default", 10, 11, device_ms=9.5)
    assert not undecided(default, run_of("deterministic", 10.5, 11.5, device_ms=9.9))
    assert undecided(replace(default, step_ns=around(20 * MS)), run_of("deterministic", 10.5, 11.5, device_ms=4)) != []


def test_the_same_kernels_for_the_same_time_need_no_more_processes() -> None:
    """The difference is the host's, whatever it is."""
    default = run_of("default", 10, 14, device_ms=2)
    assert not undecided(default, run_of("deterministic", 13, 9, device_ms=2.01))
    assert undecided(default, run_of("deterministic", 13, 9, device_ms=2.5)) == ["deterministic"]
    assert undecided(default, run_of("fused", 13, 9, device_ms=2, fused_optimizer="on")) == ["fused"]


def test_without_noise_nothing_is_decided() -> None:
    assert undecided_runs(run_of("default", 10), [run_of("threads", 20, threads="1")], Noise())
