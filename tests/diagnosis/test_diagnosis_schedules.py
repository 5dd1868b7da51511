"""Changing shapes, new threads, host memory: what fires on what one H100 measured, and what does not fire on less."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from diagnose_cases import MS, of_rule, v1, value
from hypothesis import given
from hypothesis import strategies as st
from schedule_cases import KIB, SIZES, benchmark, default, schedule, v1_over_shapes

from profiler_kit.diagnosis import diagnose
from profiler_kit.diagnosis.rules.memory_growth import MIN_GROWTH_BYTES, slope_of
from profiler_kit.records.experiments import ExperimentOptions, NewThread, ShapeSchedule
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.schedules import (
    benchmark_pairs,
    cycle_ns,
    cycle_times,
    new_shape_factor,
    new_shape_ns,
    repeated_shape_ns,
    shape_times,
    total_ns,
)


def over(*schedules: ShapeSchedule, planned: int | None = None) -> Report:
    asked = ExperimentOptions(shapes="auto", steps_planned=planned)
    return replace(v1(), schedules=schedules, asked=asked)


def only(report: Report, rule: str) -> Finding:
    (finding,) = of_rule(diagnose(report), rule)
    return finding


def nothing(report: Report, rule: str) -> bool:
    return of_rule(diagnose(report), rule) == ()


def test_cycles_and_shapes_are_two_cuts_of_the_same_steps() -> None:
    for run in (default(), benchmark()):
        assert sum(time.ns for time in cycle_times(run)) == total_ns(run) == sum(step.ns for step in run.steps)
        times = shape_times(run)
        assert sum(time.steps for time in times) == len(run.steps)
        assert sum(time.first_ns for time in times) == cycle_ns(run, 1)
        assert [cycle_ns(run, n) for n in (1, 2, 3, 4)] == [*(time.ns for time in cycle_times(run)), None]


def test_a_cycle_that_broke_off_has_no_time() -> None:
    whole = default()
    broken = replace(whole, steps=whole.steps[:20], failure="2x3x304x304: no")
    assert cycle_ns(broken, 1) == cycle_ns(whole, 1)
    assert cycle_ns(broken, 2) is None
    assert cycle_ns(replace(whole, steps=whole.steps[:5], failure="no"), 1) is None


def test_a_new_shape_is_compared_with_itself() -> None:
    """Sizes that differ a lot, and one that is slow whether new or not, make no factor."""
    run = schedule("default", (100, 100, 100), sizes=[32, 64, 1024])
    assert new_shape_factor(run) == pytest.approx(1.0, rel=1e-4)
    assert new_shape_ns(run) == repeated_shape_ns(run)
    assert new_shape_factor(schedule("default", (100,))) is None


def test_the_search_that_costs_more_than_it_gains() -> None:
    """An H100 took 490, 33, 31 ms a cycle by default, 4366, 29, 20 with benchmark, and 26 and 303 for a last batch."""
    finding = only(v1_over_shapes(), "changing_shapes")
    assert finding.severity == "high"
    title = ("cudnn.benchmark=True", "4.415 s", "554 ms", "39 steps", "12 shapes")
    assert all(words in finding.title for words in title)
    times = ("4.366 s, 29 ms, 20 ms", "490 ms, 33 ms, 31 ms", "303 ms with benchmark", "26 ms without")
    assert all(words in finding.explanation for words in times)
    assert "drop_last=True" in finding.advice
    assert "benchmark at False" in finding.advice
    assert value(finding, "cycle 1", "benchmark").value == pytest.approx(4366 * MS)
    assert value(finding, "last batch, first time", "default").value == 26 * MS
    # 3,876 ms more at first; the best later cycle saves 11 ms, more than the 9 ms by which two of benchmark's differ
    assert value(finding, "break-even cycles").value == 1 + -(-3876 // 11)
    assert "354 cycles (4,602 steps)" in finding.explanation


@pytest.mark.parametrize(("planned", "severity", "words"), [(5000, "low", "within"), (4000, "high", "beyond")])
def test_the_steps_planned_decide_whether_it_matters(planned: int, severity: str, words: str) -> None:
    finding = only(over(default(), benchmark(), planned=planned), "changing_shapes")
    assert finding.severity == severity
    assert f"{words} the {planned:,} planned" in finding.explanation
    assert ("benchmark at False" in finding.advice) == (severity == "high")


def test_a_search_that_no_cycle_pays_back_is_never_paid() -> None:
    finding = only(over(default(), schedule("benchmark", (900, 31, 29), last_ms=(26, 2, 2))), "changing_shapes")
    assert finding.severity == "medium"
    assert value(finding, "break-even cycles").value == "never"


def test_a_search_that_pays_within_the_schedule_leaves_the_slow_new_shapes() -> None:
    fast = schedule("benchmark", (470, 10, 10), last_ms=(26, 2, 2))
    finding = only(over(default(), fast), "changing_shapes")
    assert finding.severity == "medium"
    assert all(words in finding.title for words in ("15.5x", '"default"'))
    assert "benchmark at False" not in finding.advice


def test_a_difference_within_the_noise_of_a_cycle_is_none() -> None:
    """The same times, one cycle of one of them disturbed: its own second cycle says how far cycles differ."""
    quiet = schedule("default", (40, 30, 30))
    assert nothing(over(quiet, schedule("benchmark", (40, 33, 30))), "changing_shapes")
    assert nothing(over(quiet, schedule("benchmark", (41, 30, 30))), "changing_shapes")
    assert not nothing(over(quiet, schedule("benchmark", (45, 30, 30))), "changing_shapes")


def test_a_recorded_schedule_without_cycles_says_nothing_of_paying_back() -> None:
    off, on = (schedule(name, (ms,)) for name, ms in (("default", 400), ("benchmark", 4000)))
    finding = only(over(off, on), "changing_shapes")
    assert "break even" not in finding.explanation
    assert "breaks even" not in finding.explanation
    assert not [e for e in finding.evidence if "break-even" in e.name]


@pytest.mark.parametrize(
    "other",
    [
        replace(benchmark(), failure="2x3x176x176: no"),
        replace(benchmark(), steps=benchmark().steps[:-1]),
        replace(benchmark(), config="benchmark+no-tf32"),
        replace(benchmark(), benchmark=False),
        replace(benchmark(), steps=()),
    ],
    ids=["failed", "shorter", "another configuration", "no benchmark", "empty"],
)
def test_what_did_not_run_the_same_steps_is_not_compared(other: ShapeSchedule) -> None:
    assert benchmark_pairs((default(), other)) == ()
    assert "cudnn.benchmark=True takes" not in only(over(default(), other), "changing_shapes").title


def test_pairs_are_found_by_what_else_differs() -> None:
    full = [replace(run, config=run.config.replace("default", "") or "no-tf32") for run in (default(), benchmark())]
    full[1] = replace(full[1], config="benchmark+no-tf32")
    found = benchmark_pairs((default(), full[1], benchmark(), full[0]))
    assert [(pair.off.config, pair.on.config) for pair in found] == [
        ("no-tf32", "benchmark+no-tf32"),
        ("default", "benchmark"),
    ]


@pytest.mark.parametrize(
    ("run", "fires"),
    [
        (schedule("default", (301, 100, 100)), True),
        (schedule("default", (299, 100, 100)), False),
        (schedule("default", (900, 100, 100), sizes=SIZES[:9]), True),
        (schedule("default", (900, 100, 100), sizes=SIZES[:8]), False),
        (schedule("default", (900,)), False),
        (schedule("default", (900, 100, 100), last_ms=(90, 1, 1), sizes=SIZES[:8]), False),
        (replace(schedule("default", (900, 100)), steps=schedule("default", (900, 100)).steps[:14]), False),
    ],
    ids=["slow", "not slow", "9 shapes", "8 shapes", "never again", "8 and a last batch", "2 that came again"],
)
def test_thresholds_of_new_shapes(run: ShapeSchedule, fires: bool) -> None:
    assert nothing(over(run), "changing_shapes") != fires


def test_on_a_cpu_there_is_no_flag_to_speak_of() -> None:
    finding = only(over(schedule("default", (900, 100, 100), device="cpu")), "changing_shapes")
    assert "benchmark" not in finding.advice + finding.explanation


def threaded(first_ms: float, steady_ms: float, config: str = "default") -> Report:
    report = v1()
    thread = NewThread(first_ns=round(first_ms * MS), steady_ns=round(steady_ms * MS))
    runs = tuple(replace(run, new_thread=thread) if run.config.name == config else run for run in report.runs)
    return replace(report, runs=runs)


def test_a_new_thread_selects_algorithms_again() -> None:
    finding = only(v1_over_shapes(), "new_thread")
    assert finding.severity == "low"
    assert all(part in finding.title for part in ("15x", "30 ms", "2 ms"))
    assert '"benchmark" (3200x)' in finding.explanation
    assert "DistributedDataParallel" in finding.advice
    assert value(finding, "first pass in a new thread", "benchmark").value == 3200 * MS


@pytest.mark.parametrize(
    ("first_ms", "steady_ms", "severity"),
    [(5.1, 1.0, "low"), (4.9, 1.0, None), (0.9, 0.1, None), (1200, 100, "medium"), (1.2, 0.0, None)],
)
def test_thresholds_of_new_threads(first_ms: float, steady_ms: float, severity: str | None) -> None:
    found = of_rule(diagnose(threaded(first_ms, steady_ms)), "new_thread")
    assert [f.severity for f in found] == ([severity] if severity else [])


def test_a_thread_that_repeats_the_search_without_the_baseline() -> None:
    finding = only(threaded(3200, 1, "benchmark"), "new_thread")
    assert finding.severity == "low"
    assert "algorithm search" in finding.explanation


def growing(growth_kib: list[float], device: str = "cuda") -> Report:
    return over(schedule("default", (100, 100, 100), growth_kib=growth_kib, device=device))


def test_memory_that_grows_with_every_new_shape() -> None:
    finding = only(growing([300.0] * 12), "host_memory_growth")
    assert finding.severity == "medium"
    assert "300 KiB" in finding.title
    assert value(finding, "new shapes").value == 9  # a quarter of 12 aside
    assert value(finding, "host memory per new shape").value == 300 * KIB
    assert "TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT" in finding.advice
    assert "LRU_CACHE_CAPACITY" in only(growing([300.0] * 12, "cpu"), "host_memory_growth").advice
    assert only(growing([104.0] * 12), "host_memory_growth").severity == "low"


@pytest.mark.parametrize(
    "growth",
    [
        [90.0] * 12,
        [5000.0] * 3 + [0.0] * 9,
        [0.0] * 6 + [50_000.0] + [0.0] * 5,
        [300.0] * 36,
        [(-1.0) ** i * 4000 + 110 for i in range(12)],
    ],
    ids=["too little", "kernels that the first shapes load", "one library", "a leak in every step", "up and down"],
)
def test_growth_that_no_cache_of_shapes_explains_is_not_claimed(growth: list[float]) -> None:
    assert nothing(growing(growth), "host_memory_growth")


def test_few_shapes_make_no_slope() -> None:
    run = schedule("default", (100, 100, 100), sizes=SIZES[:6], growth_kib=[900.0] * 6)
    assert nothing(over(run), "host_memory_growth")
    unknown = replace(run, steps=tuple(replace(step, rss_bytes=None) for step in run.steps))
    assert nothing(over(unknown), "host_memory_growth")


@given(slope=st.integers(-10_000_000, 10_000_000), start=st.integers(0, 2**40), count=st.integers(6, 40))
def test_a_straight_line_has_one_slope(slope: int, start: int, count: int) -> None:
    found = slope_of([start + slope * i for i in range(count)])
    assert found is not None
    assert (found.bytes, found.low, found.high, found.points) == (slope, slope, slope, count)


def test_the_interval_of_a_slope_holds_the_true_one_nineteen_times_of_twenty() -> None:
    chance = random.Random(1)
    true, held, claimed = MIN_GROWTH_BYTES, 0, 0
    for _ in range(400):
        found = slope_of([round(true * i + chance.gauss(0, 300_000)) for i in range(9)])
        assert found is not None
        held += found.low <= true <= found.high
        claimed += found.low > true
    assert held >= 0.94 * 400
    assert claimed <= 0.035 * 400
