"""The verdict on two measured times: what counts, what does not, and how often it is wrong."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from noise_cases import MS, again, around, of, report
from traced_runs import traced_run, with_traced

from profiler_kit.records.configs import NamedValue, RunConfig
from profiler_kit.records.experiments import Repeat
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.samples import Interval
from profiler_kit.records.traces import PhaseTime, TraceKernel, TraceModule
from profiler_kit.report.sentences import turns
from profiler_kit.statistics.differences import (
    DEVICE_BOUND,
    DEVICE_LEVEL,
    HOST_BOUND,
    MAX_PROCESSES,
    SHOWN_LEVEL,
    Spread,
    compare_times,
    spread_of,
    student,
)
from profiler_kit.statistics.intervals import HOST_QUANTILE, median_interval, quantile_interval, trimmed_mean_interval
from profiler_kit.statistics.noise import HOST_REASON, Noise, Sample, noise_of
from profiler_kit.statistics.report_noise import compared_sides
from profiler_kit.statistics.trials import sweep_trial
from scripts.bench import decisions

QUIET = Spread(squares=8 * 0.003**2, freedom=8)


def steps(*ms: float) -> tuple[Interval, ...]:
    return tuple(around(round(value * MS), 0.0001) for value in ms)


def processes(run: ConfigRun, count: int) -> ConfigRun:
    """`run` in `count` equal processes."""
    return replace(run, further_repeats=(Repeat(step_ns=run.step_ns),) * (count - 1))


def test_a_difference_has_a_ratio_an_interval_and_a_limit() -> None:
    found = compare_times(steps(10, 10), steps(8, 8), QUIET, DEVICE_BOUND)
    assert found.outcome == "better"
    assert found.is_sure
    assert found.ratio == pytest.approx(0.8)
    assert found.low < 0.8 < found.high
    assert found.saved == pytest.approx(0.2)
    assert found.saved_range == (1 - found.high, 1 - found.low)
    assert found.limit is not None
    assert 0.01 < found.limit < 0.04
    assert (found.before_processes, found.after_processes) == (2, 2)
    assert found.sentence() == ""


def test_what_is_not_established_names_the_smallest_change_that_counts() -> None:
    found = compare_times(steps(10, 10), steps(10.1, 10.1), QUIET, DEVICE_BOUND)
    assert found.outcome == "same"
    assert found.limit is not None
    assert found.sentence().startswith("Changes below ")
    assert f"{100 * found.limit:.2g}" in found.sentence()


@pytest.mark.parametrize("factor", [2.0, 100.0])
def test_a_speed_up_may_exceed_any_threshold(factor: float) -> None:
    found = compare_times(steps(336, 330), steps(336 / factor, 330 / factor), QUIET, HOST_BOUND)
    assert found.outcome == "better"
    assert compare_times(steps(1, 1), steps(factor, factor), QUIET, HOST_BOUND).outcome == "worse"


def test_one_process_a_side_is_unknown_unless_kernels_fill_the_step() -> None:
    sides = steps(10), steps(20)
    found = compare_times(*sides, Spread(), HOST_BOUND)
    assert (found.outcome, found.limit) == ("unknown", None)
    assert (found.low, found.ratio, found.high) == (found.ratio, pytest.approx(2.0), found.ratio)
    assert "One process a side" in found.sentence()
    assert compare_times(*sides, Spread(), DEVICE_BOUND).outcome == "worse"


def test_few_processes_have_to_agree() -> None:
    overlapping = compare_times(steps(10, 12), steps(11, 11.9), replace(QUIET, squares=0.0), DEVICE_BOUND)
    assert overlapping.outcome == "same"
    few = compare_times(steps(10, 11.0), steps(11.9, 10.9), Spread(freedom=500), DEVICE_BOUND)
    assert few.outcome == "same"
    many = compare_times(steps(*[10] * 30, 11), steps(*[11.5] * 30, 10.5), Spread(freedom=500), DEVICE_BOUND)
    assert many.outcome == "worse", "with many processes, one that is off does not hide the others"


def test_a_wider_spread_raises_the_limit() -> None:
    limits = [
        compare_times(steps(10, 10), steps(9, 9), Spread(squares=8 * share**2, freedom=8), HOST_BOUND).limit
        for share in (0.001, 0.01, 0.1)
    ]
    assert limits == sorted(limits, key=lambda limit: limit or 0.0)
    assert (limits[2] or 0.0) > 0.3


def test_uncertain_steps_raise_it_too() -> None:
    wide = [Interval(median=10 * MS, low=9 * MS, high=11 * MS)] * 2
    found = compare_times(wide, steps(9.5, 9.5), QUIET, DEVICE_BOUND)
    assert found.outcome == "same"


def test_a_side_without_processes_is_an_error() -> None:
    for sides in (((), steps(1)), (steps(1), ())):
        with pytest.raises(ValueError, match="no samples"):
            compare_times(*sides, QUIET, HOST_BOUND)


medians = st.integers(0, 10**15)
sides = st.lists(
    st.builds(lambda ns, width: Interval(median=ns, low=max(0, ns - width), high=ns + width), medians, medians),
    min_size=1,
    max_size=6,
)
spreads = st.builds(
    lambda share, freedom: Spread(squares=freedom * share**2, freedom=freedom), st.floats(0, 3), st.integers(0, 20)
)
SWAPPED = {"better": "worse", "worse": "better", "same": "same", "unknown": "unknown"}


@given(sides, sides, spreads, st.sampled_from([DEVICE_BOUND, HOST_BOUND]))
def test_swapping_the_sides_swaps_the_outcome(
    before: list[Interval], after: list[Interval], pooled: Spread, moderation: Spread
) -> None:
    there, back = (compare_times(*pair, pooled, moderation) for pair in ((before, after), (after, before)))
    assert there.outcome == SWAPPED[back.outcome]
    assert there.low <= there.ratio <= there.high
    assert there == compare_times(before, after, pooled, moderation)
    assert compare_times(before, before, pooled, moderation).outcome in ("same", "unknown")


@pytest.mark.parametrize(
    ("level", "freedom", "expected"),
    [
        (SHOWN_LEVEL, 1, 12.706),
        (SHOWN_LEVEL, 10, 2.228),
        (DEVICE_LEVEL, 4, 4.604),
        (DEVICE_LEVEL, 11, 3.169),
        (DEVICE_LEVEL, 999, 2.66),
    ],
)
def test_quantiles_are_those_of_the_largest_tabulated_freedom(level: float, freedom: int, expected: float) -> None:
    assert student(level, freedom) == expected


def test_a_spread_is_of_logarithms_and_adds() -> None:
    spread = spread_of(steps(10, 10 * math.e))
    assert spread.freedom == 1
    assert spread.deviation == pytest.approx(math.sqrt(0.5), rel=1e-3)
    assert (spread + spread).freedom == 2
    assert spread_of(steps(10)) == Spread()
    assert Spread().deviation is None


# --- runs of a report


def test_the_spread_is_pooled_over_configurations_without_benchmark() -> None:
    default = of("default", around(10 * MS), around(round(10.3 * MS)))
    search = of("benchmark", around(8 * MS), around(round(9.5 * MS)))
    strict = of("deterministic", around(12 * MS), around(12 * MS))
    noise = noise_of(report(default, search, strict))
    assert noise.spread().freedom == 2
    assert noise.gap == pytest.approx(0.03)
    assert noise.repeated_configs == 2
    assert "3.0 %" in noise.sentence()
    assert noise.repeat_gap(search) == pytest.approx(0.1875)


def test_a_search_that_ends_otherwise_is_noise_of_its_own_pair() -> None:
    default = of("default", around(10 * MS), around(round(10.02 * MS)))
    search = of("benchmark", around(8 * MS), around(round(9.9 * MS)))
    strict = of("deterministic", around(12 * MS), around(12 * MS))
    noise = noise_of(report(default, search, strict, of("no-tf32", around(9 * MS), around(9 * MS))))
    strict_difference, search_difference = noise.difference(default, strict), noise.difference(default, search)
    assert strict_difference is not None
    assert strict_difference.outcome == "worse"
    assert search_difference is not None
    assert search_difference.outcome == "same"


def test_without_a_repetition_the_noise_is_unknown() -> None:
    noise = noise_of(report(of("default", around(10 * MS)), of("benchmark", around(5 * MS))))
    assert (noise.gap, noise.repeated_configs) == (None, 0)
    assert "unknown" in noise.sentence()


def test_failed_processes_do_not_count() -> None:
    run = of("default", around(10 * MS))
    failed = replace(again(run), failure=Failure(kind="crash", message="gone"))
    assert noise_of(report(run, failed)).gap is None
    assert noise_of(report(replace(run, repeat=Repeat(failure="gone")))).gap is None
    assert Noise().processes(replace(run, failure=Failure(kind="crash", message="gone"))) == ()
    assert Noise().difference(run, failed) is None


def test_an_a_a_run_is_another_process_of_its_configuration() -> None:
    run = of("default", around(10 * MS), around(11 * MS))
    noise = noise_of(report(run, again(run, 1.2)))
    assert [step.median for step in noise.processes(run)] == [10 * MS, 11 * MS, 12 * MS]


def test_steps_of_different_sizes_are_compared_per_example() -> None:
    small, large = of("default", around(10 * MS), samples=8), of("batch", around(15 * MS), samples=16)
    noise = Noise(spreads={Sample.MEDIAN: QUIET})
    found = noise.difference(small, large)
    assert found is not None
    assert (found.outcome, found.ratio) == ("better", pytest.approx(0.75))
    whole = noise.difference(small, replace(large, samples=None))
    assert whole is not None
    assert whole.outcome == "worse"


def traced(run: ConfigRun, kernel_ms: float, name: str = "k") -> ConfigRun:
    kernel = TraceKernel(name=name, family="conv", calls=1, kernel_ns=round(kernel_ms * MS))
    layer = TraceModule(path="", phase="forward", kernel_ns=kernel.kernel_ns, kernels=(kernel,))
    return with_traced(run, clock="kernel", modules=(layer,), kernels=(kernel,), unattributed_ns=0)


@pytest.mark.parametrize(
    ("kernel_ms", "name", "outcome"),
    [(2.0, "k", "same"), (2.03, "k", "same"), (2.2, "k", "worse"), (2.0, "other", "worse")],
)
def test_the_same_kernels_for_the_same_time_leave_the_difference_to_the_host(
    kernel_ms: float, name: str, outcome: str
) -> None:
    default = traced(processes(of("default", around(10 * MS)), 8), 2.0)
    strict = traced(processes(of("deterministic", around(13 * MS)), 8), kernel_ms, name)
    found = noise_of(report(default, strict)).difference(default, strict)
    assert found is not None
    assert found.outcome == outcome
    assert (found.reason == HOST_REASON) == (outcome == "same")


def test_settings_beyond_flags_may_change_the_host_s_work() -> None:
    default = traced(processes(of("default", around(10 * MS)), 8), 2.0)
    graph = replace(default, config=replace(default.config, name="cuda_graph"), step_ns=around(3 * MS))
    graph = processes(graph, 8)
    flags = noise_of(report(default, graph)).difference(default, graph)
    assert flags is not None
    assert flags.reason == HOST_REASON
    graph = replace(graph, config=replace(graph.config, settings=(NamedValue(name="cuda_graph", value="on"),)))
    found = noise_of(report(default, graph)).difference(default, graph)
    assert found is not None
    assert found.outcome == "better"


# --- lower deciles


def bursts(name: str, factor: float, *, seed: int, phases: tuple[PhaseTime, ...] = (), settings: str = "") -> ConfigRun:
    """Four processes whose steps take 10 ms, or up to twice as long while something else runs."""
    chance = random.Random(seed)
    runs = []
    for _ in range(4):
        busy = chance.random()
        steps_ns = tuple(
            round(10 * MS * factor * (1 + (chance.random() if chance.random() < busy else 0.001 * chance.random())))
            for _ in range(60)
        )
        runs.append((steps_ns, median_interval(steps_ns)))
    (steps_ns, step_ns), *others = runs
    repeats = tuple(Repeat(steps_ns=other_ns, step_ns=interval) for other_ns, interval in others)
    config = RunConfig(name=name, settings=(NamedValue(name=settings, value="on"),) if settings else ())
    return traced_run(config=config, steps_ns=steps_ns, step_ns=step_ns, further_repeats=repeats, phases=phases)


def test_steps_that_wait_for_the_host_are_compared_by_their_lower_deciles() -> None:
    default, slow = bursts("default", 1.0, seed=1), bursts("slow", 1.3, seed=2, settings="x")
    noise = noise_of(report(default, slow))
    assert len(noise.samples(default, Sample.LOW)) == 4
    assert noise.spread(Sample.LOW).freedom == noise.spread().freedom == 6
    assert (noise.spread(Sample.LOW).deviation or 0) < 0.1 * (noise.spread().deviation or 0)
    found = noise.difference(default, slow)
    assert found is not None
    assert found.outcome == "worse"
    assert found.ratio == pytest.approx(1.3, rel=0.02)
    without_steps = [
        replace(run, steps_ns=(), further_repeats=tuple(replace(r, steps_ns=()) for r in run.repeats))
        for run in (default, slow)
    ]
    by_medians = noise_of(report(*without_steps)).difference(*without_steps)
    assert by_medians is not None
    assert by_medians.outcome == "same"


def test_steps_that_load_data_are_compared_by_their_medians() -> None:
    """A lower quantile would not see that some steps wait for the loader."""
    data = (PhaseTime(phase="data", stopwatch_ns=MS),)
    default = bursts("default", 1.0, seed=1, phases=data)
    slow = bursts("slow", 1.3, seed=2, phases=data, settings="x")
    noise = noise_of(report(default, slow))
    assert noise.samples(default, Sample.LOW) == ()
    found = noise.difference(default, slow)
    assert found is not None
    assert found.ratio == pytest.approx(
        math.exp(_mean_log(noise.processes(slow)) - _mean_log(noise.processes(default)))
    )


def _mean_log(steps: tuple[Interval, ...]) -> float:
    return sum(math.log(step.median) for step in steps) / len(steps)


def test_an_a_a_run_adds_its_lower_decile() -> None:
    default = bursts("default", 1.0, seed=1)
    aa_run = replace(default, config=RunConfig(name="again", repeat_of="default"), further_repeats=())
    noise = noise_of(report(default, aa_run))
    assert len(noise.samples(default, Sample.LOW)) == len(noise.processes(default)) == 5
    assert noise.samples(default, Sample.LOW)[-1] == quantile_interval(aa_run.steps_ns, HOST_QUANTILE)


# --- threads=half beside load: 336 ms against 1.66 ms


def test_a_speed_up_by_two_hundred_counts_however_large_the_share_that_it_saves() -> None:
    found = compare_times(steps(336, 330), steps(1.66, 1.7), Spread(squares=3 * 0.02**2, freedom=3), HOST_BOUND)
    assert found.outcome == "better"
    assert found.ratio == pytest.approx(1 / 200, rel=0.05)
    assert 0.99 < found.saved_range[0] < found.saved < found.saved_range[1] < 1.0


def test_the_noise_of_a_busy_host_is_a_factor_in_both_directions() -> None:
    """No saving exceeds 100 %, so a limit as a share of the slower side could never be reached."""
    slow, fast = steps(336, 8), steps(1.66, 1.7)
    pooled = spread_of(slow) + spread_of(fast)
    found = compare_times(slow, fast, pooled, HOST_BOUND)
    assert found.outcome == "same"
    assert "changes by less than a factor of" in found.reason
    assert "%" not in found.reason
    swapped = compare_times(fast, slow, pooled, HOST_BOUND)
    assert (swapped.outcome, swapped.limit) == (found.outcome, found.limit)
    assert swapped.ratio == pytest.approx(1 / found.ratio)
    sure = compare_times([*slow] * 6, [*fast] * 6, Spread(squares=10.0, freedom=20), HOST_BOUND)
    assert sure.outcome == "better"


# --- how often it is wrong


def rates(draw: decisions.Draw, moderation: Spread, configs: int, processes: int) -> tuple[float, float]:
    """The shares of false differences between equal configurations, and of slow-downs by 10 % that are found."""
    chance = random.Random(0)
    false = pairs = found = 0
    for _ in range(200):
        reported = decisions.draw_report(draw, chance, configs, processes or MAX_PROCESSES)
        if processes == decisions.SEQUENTIAL:
            reported = decisions.measured_until_decided(reported, moderation)
        outcomes = decisions.verdicts(reported, moderation)
        false += sum(outcome.is_sure for outcome in outcomes)
        pairs += len(outcomes)
        slow = [*reported[:-1], [decisions.slowed(step, 0.10) for step in reported[-1]]]
        found += decisions.verdicts(slow, moderation)[-1].outcome == "worse"
    return false / pairs, found / 200


@pytest.mark.parametrize(("configs", "count"), [(2, 2), (3, 2), (9, 2), (2, 4)])
def test_steps_that_kernels_fill(configs: int, count: int) -> None:
    false, found = rates(decisions.simulated, DEVICE_BOUND, configs, count)
    assert false <= 0.002
    assert found >= 0.98


RECORDED = json.loads(decisions.RECORDED.read_text())


@pytest.mark.parametrize("row", RECORDED, ids=[row["target"] for row in RECORDED])
@pytest.mark.parametrize("count", [2, 4, decisions.SEQUENTIAL])
def test_recorded_steps_that_wait_for_the_host_are_not_told_apart(row: dict[str, list[list[int]]], count: int) -> None:
    draw = decisions.drawn_from(row["processes"], decisions.OF_TURNS if row["turns"] else decisions.OF_SERIES)
    assert rates(draw, HOST_BOUND, 3, count)[0] <= 0.01


@pytest.mark.parametrize("row", [row for row in RECORDED if row["turns"]], ids=lambda row: row["target"])
def test_of_changes_as_large_as_is_said_to_be_visible_nine_of_ten_are_found(row: dict[str, list[list[int]]]) -> None:
    draw = decisions.drawn_from(row["processes"], decisions.OF_TURNS)
    chance = random.Random(0)
    missed = 0
    for _ in range(200):
        reported = decisions.draw_report(draw, chance, 3, 8)
        visible = decisions.verdicts(reported, HOST_BOUND)[-1].smallest_visible
        assert visible is not None
        slow = [*reported[:-1], [decisions.slowed(process, visible) for process in reported[-1]]]
        missed += decisions.verdicts(slow, HOST_BOUND)[-1].outcome != "worse"
    assert missed <= 200 * 0.15, "1 in 10, and chance"


def test_the_estimator_that_varies_less_is_used_for_all_processes_that_took_turns() -> None:
    """Two equal configurations: half of the steps of a process are slow by a share that differs between processes, or all are."""
    chance = random.Random(4)

    def runs(*, is_busy: bool) -> list[ConfigRun]:
        found = []
        for name in ("default", "other"):
            repeats = []
            for _ in range(6):
                level = 1 + 0.5 * chance.random()
                lowest = 1 + (0.2 * chance.random() if is_busy else 0.001 * chance.random())
                steps_ns = tuple(
                    round(10 * MS * (lowest if i < 6 else 1.3 if is_busy else level)) + i for i in range(40)
                )
                repeats.append(Repeat(steps_ns=steps_ns, step_ns=median_interval(steps_ns), round_ns=1))
            config = RunConfig(name=name, settings=(NamedValue(name=name, value="on"),))
            found.append(ConfigRun(config=config, step_ns=around(30 * MS), further_repeats=tuple(repeats)))
        return found

    quiet, busy = runs(is_busy=False), runs(is_busy=True)
    assert noise_of(report(*quiet)).turn_sample is Sample.LOW_OF_TURNS
    noise = noise_of(report(*busy))
    assert noise.turn_sample is Sample.MEAN_OF_TURNS
    assert noise.host_sample(*busy) is Sample.MEAN_OF_TURNS
    step = noise.compared_step(busy[0])
    assert step is not None
    means = [trimmed_mean_interval(repeat.steps_ns).median for repeat in busy[0].repeats]
    assert step.median == pytest.approx(math.exp(sum(map(math.log, means)) / 6), rel=1e-6)
    assert noise.with_runs(*quiet).turn_sample is Sample.MEAN_OF_TURNS, "further runs do not change what a report shows"
    assert "It is the mean of their steps without the longest tenth," in (turns(report(*busy), busy[0]) or "")
    assert "It is the lower decile of their steps," in (turns(report(*quiet), quiet[0]) or "")
    series = bursts("default", 1.0, seed=1)
    assert turns(report(series), series) is None


def test_a_trimmed_mean_leaves_out_the_longest_tenth() -> None:
    steps_ns = [*range(100, 109), 10_000]
    found = trimmed_mean_interval(steps_ns)
    assert found.median == 104
    assert found.low < 104 < found.high < 108
    assert trimmed_mean_interval([7]) == Interval(median=7, low=7, high=7)
    with pytest.raises(ValueError, match="no samples"):
        trimmed_mean_interval([])


def test_the_interval_of_a_trimmed_mean_holds_the_true_one_in_95_of_100() -> None:
    chance = random.Random(3)
    true = 1_000_000 * sum(sorted(chance.expovariate(1) for _ in range(200_000))[:180_000]) / 180_000
    found = [trimmed_mean_interval([round(1_000_000 * chance.expovariate(1)) for _ in range(100)]) for _ in range(400)]
    assert 0.91 <= sum(interval.low <= true <= interval.high for interval in found) / 400 <= 0.98


def test_the_table_of_the_benchmark_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert decisions.main(["--draws", "2", "--processes", "2"]) == 0
    table = capsys.readouterr().out
    assert "simulated, kernels fill the step" in table
    assert Path(decisions.RECORDED).name == "recorded_noise.json"
    assert "found 10 %" in table


# --- processes that took turns


def round_of(name: str, *rounds: tuple[int, list[float]], settings: str = "", series_ms: float = 30.0) -> ConfigRun:
    """A first process whose steps are one series of `series_ms`, and for each round (its number, the steps of its processes)."""
    config = RunConfig(name=name, settings=(NamedValue(name=settings, value="on"),) if settings else ())
    repeats = []
    for number, steps_ms in rounds:
        for step_ms in steps_ms:
            steps_ns = tuple(round(step_ms * MS) + number for number in range(20))
            repeats.append(Repeat(steps_ns=steps_ns, step_ns=median_interval(steps_ns), round_ns=number))
    return ConfigRun(config=config, step_ns=around(round(series_ms * MS)), steps_ns=(), further_repeats=tuple(repeats))


def test_processes_that_took_turns_are_compared_without_those_that_did_not() -> None:
    default = round_of("default", (1, [10, 10.1, 9.9, 10]), series_ms=10)
    slow = round_of("slow", (1, [11, 11.1, 10.9, 11]), settings="x", series_ms=30)
    noise = noise_of(report(default, slow))
    assert len(noise.processes(default)) == 5
    assert [len(noise.samples(default, sample)) for sample in (Sample.LOW_OF_TURNS, Sample.MEDIAN_OF_TURNS)] == [4, 4]
    found = noise.difference(default, slow)
    assert found is not None
    assert (found.outcome, (found.before_processes, found.after_processes)) == ("worse", (4, 4))
    assert found.ratio == pytest.approx(1.1, rel=1e-3)
    assert found.limit is not None
    assert found.limit < 0.06
    assert noise.repeat_gap(default) == pytest.approx(0.02, rel=0.01)


def test_a_slow_moment_of_the_host_is_no_noise_of_the_processes_that_share_it() -> None:
    default = round_of("default", (1, [10, 10.1]), (2, [14, 14.1]))
    slow = round_of("slow", (1, [11, 11.1]), (2, [15.4, 15.5]), settings="x")
    noise = noise_of(report(default, slow))
    levels = noise.levels[Sample.LOW_OF_TURNS]
    assert levels[2] - levels[1] == pytest.approx(math.log(1.4), abs=0.01)
    found = noise.difference(default, slow)
    assert found is not None
    assert (found.outcome, (found.before_processes, found.after_processes)) == ("worse", (4, 4))
    assert found.ratio == pytest.approx(1.1, rel=0.01)
    # eight processes, two configurations, and one more level than a mean
    assert noise.spread(Sample.LOW_OF_TURNS).freedom == 8 - 2 - 1


def test_the_steps_shown_beside_a_ratio_have_that_ratio() -> None:
    # the first processes ran at other moments, and say the opposite
    default = round_of("default", (1, [10, 10.1]), (2, [14, 14.1]), series_ms=40)
    slow = round_of("slow", (1, [11, 11.1]), (2, [15.4, 15.5]), settings="x", series_ms=20)
    noise = noise_of(report(default, slow))
    found, before, after = noise.difference(default, slow), noise.compared_step(default), noise.compared_step(slow)
    assert found is not None
    assert before is not None
    assert after is not None
    assert after.median / before.median == pytest.approx(found.ratio, rel=1e-6)
    assert before.median == pytest.approx(math.sqrt(10.05 * 14.05) * MS, rel=0.01)
    assert before.low < before.median < before.high
    trial = sweep_trial(default, slow, noise)
    assert trial is not None
    assert (trial.before_ns, trial.after_ns) == (before, after)
    noise, *sides = compared_sides((default,), (slow,), default, slow)
    compared = [noise.compared_step(side) for side in sides]
    assert [step.median for step in compared if step is not None] == [before.median, after.median]


def test_without_turns_the_step_is_the_median_of_the_first_process() -> None:
    default, slow = bursts("default", 1.0, seed=1), bursts("slow", 1.3, seed=2, settings="x")
    noise = noise_of(report(default, slow))
    assert not noise.has_turns
    assert noise.compared_step(slow) == slow.step_ns


def test_a_device_bound_run_keeps_its_median_beside_others_in_turns() -> None:
    default = round_of("default", (1, [10, 10.1]), series_ms=40)
    kernels = TraceModule(path="", phase="forward", kernel_ns=39 * MS)
    full = with_traced(default, clock="kernel", modules=(kernels,), unattributed_ns=0)
    noise = noise_of(report(default, round_of("other", (1, [10, 10.1]), settings="x")))
    assert noise.compared_step(full) == default.step_ns
    assert noise.compared_step(default) != default.step_ns


def test_only_rounds_that_both_took_part_in_are_compared() -> None:
    default = round_of("default", (1, [10, 10.1]), (2, [20, 20.1]))
    slow = round_of("slow", (1, [11, 11.1]), settings="x")
    found = noise_of(report(default, slow)).difference(default, slow)
    assert found is not None
    assert (found.before_processes, found.after_processes) == (2, 2)
    assert found.ratio == pytest.approx(1.1, rel=0.01)
    apart = round_of("apart", (3, [11, 11.1]), settings="x")
    never_together = noise_of(report(default, apart)).difference(default, apart)
    assert never_together is not None
    assert (never_together.before_processes, never_together.after_processes) == (5, 3), "all processes"


def test_one_process_that_took_turns_shows_no_spread() -> None:
    default, other = round_of("default", (1, [10])), round_of("other", (1, [10]), settings="x")
    noise = noise_of(report(default, other))
    assert noise.samples(default, Sample.MEDIAN_OF_TURNS) == ()
    found = noise.difference(default, other)
    assert found is not None
    assert (found.before_processes, found.after_processes) == (2, 2)


def test_unequal_numbers_of_processes_have_the_levels_of_least_squares() -> None:
    """Compared with a solution of the normal equations."""
    numpy = pytest.importorskip("numpy")
    chance = random.Random(7)
    counts = {("a", 1): 3, ("a", 2): 1, ("b", 1): 1, ("b", 2): 2, ("b", 3): 1, ("c", 3): 2, ("c", 1): 2}
    cells = {key: [10 * math.exp(chance.gauss(0, 0.1)) for _ in range(count)] for key, count in counts.items()}
    runs = [
        round_of(name, *((number, steps) for (other, number), steps in cells.items() if other == name), settings=name)
        for name in "abc"
    ]
    noise = noise_of(report(*runs))
    rows, values = [], []
    for run, name in zip(runs, "abc", strict=True):
        for repeat in run.repeats:
            assert repeat.step_ns is not None
            rows.append([float(name == other) for other in "abc"] + [float(repeat.round_ns == n) for n in (1, 2, 3)])
            values.append(math.log(repeat.step_ns.median))
    solution, *_ = numpy.linalg.lstsq(numpy.array(rows), numpy.array(values), rcond=None)
    expected = solution[3:] - solution[3:].mean()
    levels = noise.levels[Sample.MEDIAN_OF_TURNS]
    assert [levels[number] for number in (1, 2, 3)] == pytest.approx(list(expected), abs=1e-6)
    residual = float(((numpy.array(rows) @ solution - numpy.array(values)) ** 2).sum())
    spread = noise.spread(Sample.MEDIAN_OF_TURNS)
    assert spread.freedom == len(values) - 3 - 2
    assert spread.squares == pytest.approx(residual, rel=1e-4)


def test_a_loader_without_workers_has_lower_deciles() -> None:
    data = (PhaseTime(phase="data", stopwatch_ns=MS),)
    default = replace(bursts("default", 1.0, seed=1, phases=data), prepared_batches=0)
    assert len(Noise().samples(default, Sample.LOW)) == 4
    assert Noise().samples(replace(default, prepared_batches=4), Sample.LOW) == ()
    assert Noise().samples(replace(default, prepared_batches=None), Sample.LOW) == ()


def test_more_runs_leave_the_spread_of_a_a_runs() -> None:
    run = of("default", around(10 * MS), around(11 * MS))
    noise = noise_of(report(run, again(run, 1.2)))
    assert noise.spread().freedom == 2
    more = noise.with_runs(of("other", around(10 * MS), around(11 * MS)))
    assert more.spread().freedom == 3
    assert len(more.processes(run)) == len(noise.processes(run)) == 3
