"""What came of trying an advice, as a finding shows it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from diagnose_cases import MS, around, config, measured, v0

from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.statistics.differences import Spread
from profiler_kit.statistics.noise import Noise, Sample, noise_of
from profiler_kit.statistics.trials import sweep_trial

XMMA = "conv:xmma_igemm"


def run(name: str, step_ms: float) -> ConfigRun:
    return measured(
        name, big="conv", first_ms=50, step_ms=step_ms, kernel=(40, 0, 60, 0), watch=(5, 85, 8, 2), peak_mib=100,
        families=(XMMA, XMMA), saved_mib=40,
    )  # fmt: skip


def test_a_trial_of_another_batch_size_compares_per_example() -> None:
    small = ConfigRun(config=config("default"), step_ns=around(10 * MS), samples=8)
    large = ConfigRun(config=config("batch"), step_ns=around(15 * MS), samples=16)
    tried = sweep_trial(small, large, Noise(spreads={Sample.MEDIAN: Spread(squares=1e-6, freedom=3)}))
    assert tried is not None
    assert tried.per_example
    assert tried.gain_percent == pytest.approx(25.0)


def test_a_trial_has_both_steps_and_the_noise() -> None:
    whole = v0()
    before, after = whole.run("default"), whole.run("benchmark")
    assert before is not None
    tried = sweep_trial(before, after, noise_of(whole))
    assert tried is not None
    assert (tried.config, tried.verdict) == ("benchmark", "better")
    assert (tried.before_ns.median, tried.after_ns.median) == (26_200_000, 15_030_000)
    assert "0.2 %" in tried.note


def test_failed_and_missing_runs_have_no_trial() -> None:
    before = run("default", 10.0)
    assert sweep_trial(before, None, Noise()) is None
    assert (
        sweep_trial(before, replace(run("benchmark", 5.0), failure=Failure(kind="timeout", message="")), Noise())
        is None
    )
    assert sweep_trial(before, replace(run("benchmark", 5.0), step_ns=None), Noise()) is None
