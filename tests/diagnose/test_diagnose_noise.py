from __future__ import annotations

from dataclasses import replace

from diagnose_cases import MS, again, around, measured, report, v0
from hypothesis import given
from hypothesis import strategies as st

from profiler_kit.diagnose.noise import Noise, faster, noise_of, saving, trial, verdict
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.samples import Interval

XMMA = "conv:xmma_igemm"


def run(name: str, step_ms: float) -> ConfigRun:
    return measured(
        name, big="conv", first_ms=50, step_ms=step_ms, kernel=(40, 0, 60, 0), watch=(5, 85, 8, 2), peak_mib=100,
        families=(XMMA, XMMA), saved_mib=40,
    )  # fmt: skip


def test_the_gap_is_between_a_run_and_its_repetition() -> None:
    first = run("default", 10.0)
    assert noise_of(report(first, again(first, 1.03))).gap is not None
    assert round(noise_of(report(first, again(first, 1.03))).gap or 0.0, 4) == 0.03
    assert round(noise_of(report(first, again(first, 0.97))).gap or 0.0, 4) == 0.03


def test_without_a_repetition_the_noise_is_unknown_and_said_to_be() -> None:
    noise = noise_of(report(run("default", 10.0), run("benchmark", 5.0)))
    assert noise.gap is None
    assert "No configuration was run twice" in noise.sentence()


def test_a_failed_run_makes_no_gap() -> None:
    first = run("default", 10.0)
    failed = replace(again(first), failure=Failure(kind="crash", message="gone"))
    assert noise_of(report(first, failed)).gap is None
    assert noise_of(report(replace(first, failure=Failure(kind="crash", message="gone")), again(first))).gap is None


def test_faster_needs_disjoint_intervals() -> None:
    slow, overlapping, apart = (
        Interval(median=100, low=90, high=110),
        Interval(median=85, low=80, high=91),
        Interval(median=70, low=65, high=75),
    )
    assert not faster(overlapping, slow, Noise(0.0))
    assert faster(apart, slow, Noise(0.0))
    assert faster(apart, slow, Noise(None))


def test_faster_needs_more_gain_than_the_noise() -> None:
    slow, quick = Interval(median=100, low=99, high=101), Interval(median=90, low=89, high=91)
    assert faster(quick, slow, Noise(0.09))
    assert not faster(quick, slow, Noise(0.10))
    assert verdict(slow, quick, Noise(0.10)) == "same"


intervals = st.builds(
    lambda median, below, above: Interval(median=median, low=max(0, median - below), high=median + above),
    st.integers(0, 10**12), st.integers(0, 10**10), st.integers(0, 10**10),
)  # fmt: skip
noises = st.one_of(st.just(Noise(None)), st.floats(0, 2).map(Noise))


@given(a=intervals, b=intervals, noise=noises)
def test_swapping_two_runs_swaps_the_verdict(a: Interval, b: Interval, noise: Noise) -> None:
    swapped = {"better": "worse", "worse": "better", "same": "same"}
    assert verdict(a, b, noise) == swapped[verdict(b, a, noise)]


@given(a=intervals, noise=noises)
def test_a_run_is_the_same_as_itself(a: Interval, noise: Noise) -> None:
    assert verdict(a, a, noise) == "same"


def test_saving_is_a_share_of_what_was_before() -> None:
    assert saving(around(200 * MS), around(150 * MS)) == 0.25
    assert saving(around(150 * MS), around(200 * MS)) < 0
    assert saving(Interval(median=0, low=0, high=0), around(1)) == 0.0


def test_a_trial_holds_both_steps_and_says_the_noise() -> None:
    whole = v0()
    before, after = whole.run("default"), whole.run("benchmark")
    assert before is not None
    tried = trial(before, after, noise_of(whole))
    assert tried is not None
    assert (tried.config, tried.verdict) == ("benchmark", "better")
    assert (tried.before_ns.median, tried.after_ns.median) == (26_200_000, 15_030_000)
    assert "differed by 0.2 %" in tried.note


def test_there_is_no_trial_of_what_was_not_run() -> None:
    before = run("default", 10.0)
    assert trial(before, None, Noise(None)) is None
    assert (
        trial(before, replace(run("benchmark", 5.0), failure=Failure(kind="timeout", message="")), Noise(None)) is None
    )
    assert trial(before, replace(run("benchmark", 5.0), step_ns=None), Noise(None)) is None
