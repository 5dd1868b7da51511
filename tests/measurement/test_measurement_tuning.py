"""The search of `tune` on a simulated device: what it accepts, what it rejects and why, and that it keeps its limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from simulated_device import SimulatedDevice

from profiler_kit.measurement import sweep, tuning_processes, tuning_result, turns
from profiler_kit.measurement.tuning import MIN_TUNING_PROCESSES
from profiler_kit.measurement.tuning_candidates import first_changes, refinements, with_change, without_change
from profiler_kit.records.experiments import HostLoad
from profiler_kit.records.progress import ProcessStart
from profiler_kit.records.tuning import Tuning, TuningOptions

CHANGES = ("benchmark", "amp_bf16", "channels_last", "cuda_graph", "fused_optimizer")
FRESH = "compile"  # a change that needs a process of its own
Tune = Callable[..., Tuning]


@pytest.fixture
def tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tune:
    def run(
        device: SimulatedDevice, options: TuningOptions | None = None, changes: tuple[str, ...] = CHANGES
    ) -> Tuning:
        monkeypatch.setattr(sweep, "measure_visits", device.measure_visits)
        monkeypatch.setattr(turns.process, "processes_in_memory", lambda processes, _: processes)
        monkeypatch.setattr(tuning_result, "copies_within", lambda budget_s: 8)  # as on a machine with many cores
        return device.tune(tmp_path, changes, options)

    return run


def outcomes(result: Tuning) -> dict[str, str]:
    """The last outcome of each change."""
    return {attempt.change: attempt.outcome for attempt in result.attempts}


def test_it_combines_what_is_surely_better(tune: Tune) -> None:
    device = SimulatedDevice(times={"benchmark": 0.7, "fused_optimizer": 0.6, "channels_last": 1.5})
    result = tune(device)
    assert result.outcome == "better"
    assert set(result.changes) == {"benchmark", "fused_optimizer"}
    assert result.gain is not None
    assert result.gain.low < 0.42 < result.gain.high
    assert outcomes(result)["channels_last"] == "worse"
    assert result.chosen is not None
    assert result.chosen.config.name == "benchmark+fused_optimizer"
    assert result.reduced is None


def test_reduced_precision_is_an_answer_of_its_own(tune: Tune) -> None:
    device = SimulatedDevice(
        times={"benchmark": 0.8, "amp_bf16": 0.6, "channels_last": 1.3, "amp_bf16+channels_last": 0.6},
        errors={"amp_bf16": 0.016},
    )
    result = tune(device)
    assert (result.outcome, result.changes) == ("better", ("benchmark",))
    assert result.chosen is not None
    assert result.chosen.max_relative_error == pytest.approx(1e-4)
    reduced = result.reduced
    assert reduced is not None
    assert reduced.outcome == "better"
    assert set(reduced.changes) == {"benchmark", "amp_bf16", "channels_last"}  # beside autocast, channels_last gains
    assert reduced.gain is not None
    assert reduced.gain.ratio == pytest.approx(0.8 * 0.6 * 1.3 * 0.6, rel=0.02)
    assert reduced.chosen.max_relative_error == pytest.approx(0.016)
    assert any("bfloat16" in block.code for block in reduced.code)
    assert not any("bfloat16" in block.code for block in result.code)
    rounds = [visit.config.name for visit in device.visits[1:]]  # after the baseline: one final measurement of all
    assert {rounds.count(name) for name in ("default", "benchmark", reduced.chosen.config.name)} == {3}


def test_changes_are_compared_in_one_process(tune: Tune) -> None:
    device = SimulatedDevice(times={"benchmark": 0.7})
    result = tune(device)
    together = "benchmark+channels_last+cuda_graph+fused_optimizer"
    assert device.compared[0] == ("default", together)
    assert device.compared[1] == (together, "benchmark+amp_bf16+channels_last+cuda_graph+fused_optimizer")
    assert device.compared[2:6] == [  # without each of them: only benchmark contributes
        ("benchmark+channels_last+cuda_graph", together), ("benchmark+channels_last", "benchmark+channels_last+cuda_graph"),
        ("benchmark", "benchmark+channels_last"), ("", "benchmark"),
    ]  # fmt: skip
    assert set(device.started[1:]) == {"default", "benchmark"}  # the final measurement
    assert result.processes == 1 + 1 + len(device.started[1:])


def test_what_gains_only_beside_another_change_is_found(tune: Tune) -> None:
    device = SimulatedDevice(times={"cuda_graph+fused_optimizer": 0.6, "benchmark+channels_last": 0.8})
    result = tune(device, changes=("cuda_graph", "benchmark", "channels_last", "fused_optimizer", "no_item"))
    assert set(result.changes) == {"cuda_graph", "fused_optimizer", "benchmark", "channels_last"}
    assert result.estimate is not None
    assert result.estimate.ratio == pytest.approx(0.48, rel=0.02)
    assert {part.method for part in result.contributions} == {"leave-one-out"}
    assert outcomes(result)["no_item"] == "same"


def test_a_failure_among_several_changes_leaves_the_others(tune: Tune) -> None:
    device = SimulatedDevice(times={"benchmark": 0.7, "fused_optimizer": 0.8}, broken=frozenset({"cuda_graph"}))
    assert set(tune(device).changes) == {"benchmark", "fused_optimizer"}


def test_changes_that_were_not_compared_alone_stay_without_a_contribution(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = SimulatedDevice(times={"benchmark": 0.7, "cuda_graph": 0.7, "fused_optimizer": 0.6, "amp_bf16": 0.9})
    monkeypatch.setattr(tuning_processes.time, "monotonic", lambda: device.clock_s)
    result = tune(device, TuningOptions(budget_s=20))
    assert result.outcome == "better"
    assert set(result.changes) >= {"benchmark", "cuda_graph", "fused_optimizer"}
    assert None in [part.gain for part in result.contributions]


def test_what_the_diagnosis_expects_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatedDevice()
    monkeypatch.setattr(sweep, "measure_visits", device.measure_visits)
    search = device.search(tmp_path)
    search.expected = {"cuda_graph": 0.3, "fused_optimizer": 0.1}
    search.run(CHANGES)
    assert [config for _, config in device.compared[1:3]] == ["cuda_graph", "fused_optimizer"]
    assert {attempt.change: attempt.expected for attempt in search.attempts}["cuda_graph"] == 0.3


def test_what_cannot_matter_is_skipped_with_its_reason(tune: Tune) -> None:
    device = SimulatedDevice(device_share=0.995)
    result = tune(device)
    skipped = next(attempt for attempt in result.attempts if attempt.change == "cuda_graph")
    assert (skipped.outcome, skipped.reason) == ("not applicable", "the device is idle for 0.5 % of the step")
    named = tune(SimulatedDevice(device_share=0.995), TuningOptions(changes=("cuda_graph",)), ("cuda_graph",))
    assert outcomes(named) == {"cuda_graph": "same"}  # who names a change wants it measured


def test_a_change_that_fails_beside_another_model_runs_alone(tune: Tune) -> None:
    device = SimulatedDevice(times={"cuda_graph": 0.5}, broken=frozenset({"cuda_graph"}))
    assert tune(device, changes=("cuda_graph",)).changes == ("cuda_graph",)


def test_a_gain_that_is_not_sure_is_compared_again(tune: Tune) -> None:
    counts = set()
    for seed in range(8):  # some of the first comparisons are sure
        device = SimulatedDevice(times={"benchmark": 0.8}, pair_noise=0.1)
        device.generator.seed(seed)
        tune(device, changes=("benchmark",))
        counts.add(device.compared.count(("default", "benchmark")))
    assert counts == {1, 2}
    sure = SimulatedDevice(times={"benchmark": 0.5})
    tune(sure, changes=("benchmark",))
    assert sure.compared.count(("default", "benchmark")) == 1


def test_the_gain_comes_from_processes_after_the_search(tune: Tune) -> None:
    device = SimulatedDevice(times={"benchmark": 0.7})
    result = tune(device, changes=("benchmark",))
    assert result.gain is not None
    assert (result.gain.before_processes, result.gain.after_processes) == (3, 3)
    assert device.started[-6:] == ["default", "benchmark", "benchmark", "default", "default", "benchmark"]
    assert result.chosen is not None
    assert len(result.chosen.process_ns) == 3


@pytest.mark.parametrize("seed", range(10))
def test_the_measured_gain_agrees_with_the_estimate(seed: int, tune: Tune) -> None:
    device = SimulatedDevice(times={"benchmark": 0.7, "fused_optimizer": 0.6}, noise=0.005)
    device.generator.seed(seed)
    result = tune(device)
    assert result.gain is not None
    assert result.estimate is not None
    assert result.estimate.ratio == pytest.approx(0.42, rel=0.05)
    assert result.estimate.low <= result.gain.high
    assert result.gain.low <= result.estimate.high


def test_luck_of_the_search_is_not_confirmed(tune: Tune) -> None:
    device = SimulatedDevice(lucky="fused_optimizer")
    result = tune(device, changes=("fused_optimizer",))
    assert result.outcome == "not confirmed"
    assert result.changes == ("fused_optimizer",)
    assert result.gain is not None
    assert result.gain.outcome == "same"
    assert result.code == ()


def test_nothing_better_is_a_result(tune: Tune) -> None:
    device = SimulatedDevice(times={"benchmark": 1.2})
    result = tune(device, changes=("benchmark", "fused_optimizer"))
    assert (result.outcome, result.changes, result.chosen, result.gain) == ("nothing better", (), None, None)
    assert outcomes(result) == {"benchmark": "worse", "fused_optimizer": "same"}
    same = next(attempt for attempt in result.attempts if attempt.change == "fused_optimizer")
    assert same.gain is not None
    assert same.gain.smallest_visible is not None
    assert "noise here" in same.reason


@pytest.mark.parametrize("seed", range(20))
def test_identical_configurations_are_never_accepted(seed: int, tune: Tune) -> None:
    device = SimulatedDevice(noise=0.007, pair_noise=0.02)
    device.generator.seed(seed)
    result = tune(device)
    assert result.changes == ()
    assert result.reduced is None


@pytest.mark.parametrize("seed", range(5))
def test_host_noise_is_not_accepted_and_a_threefold_gain_is(seed: int, tune: Tune) -> None:
    device = SimulatedDevice(times={"cuda_graph": 0.33}, noise=0.05, pair_noise=0.05, device_share=0.2)
    device.generator.seed(seed)
    result = tune(device, TuningOptions(budget_s=1e6))
    assert result.outcome == "better"
    assert result.changes == ("cuda_graph",)
    assert result.gain is not None
    assert result.gain.after_processes >= 5


@pytest.mark.parametrize("seed", range(5))
def test_processes_in_turns_find_what_single_ones_cannot(seed: int, tune: Tune) -> None:
    device = SimulatedDevice(times={FRESH: 0.85, "channels_last": 1.3}, noise=0.08, turn_noise=0.02, device_share=0.2)
    device.generator.seed(seed)
    result = tune(device, TuningOptions(budget_s=1e6), (FRESH, "channels_last"))
    assert (result.outcome, result.changes) == ("better", (FRESH,))
    assert result.gain is not None
    assert result.gain.ratio == pytest.approx(0.85, rel=0.04)
    assert result.gain.high - result.gain.low < 0.08
    timed = [visit for visit in device.visits if visit.turns is not None]
    assert timed
    assert all(visit.again and visit.trace is None and not visit.checks for visit in timed)


@pytest.mark.parametrize("seed", range(20))
def test_identical_configurations_are_never_accepted_in_turns(seed: int, tune: Tune) -> None:
    device = SimulatedDevice(noise=0.1, turn_noise=0.02, device_share=0.2)
    device.generator.seed(seed)
    result = tune(device, TuningOptions(budget_s=1e6), (*CHANGES, FRESH))
    assert result.changes == ()
    assert set(outcomes(result).values()) <= {"same", "worse"}


def test_little_memory_limits_the_processes_that_take_turns(tune: Tune) -> None:
    # two processes at a time: the baseline and the answer
    device = SimulatedDevice(times={"cuda_graph": 0.5}, noise=0.02, device_share=0.2, memory_bytes=2 * 10**9)
    result = tune(device, TuningOptions(budget_s=1e6))
    assert (result.outcome, result.changes) == ("better", ("cuda_graph",))
    rounds = {visit.turns.round_ns for visit in device.visits if visit.turns is not None}
    members = [sum(v.turns is not None and v.turns.round_ns == number for v in device.visits) for number in rounds]
    assert set(members) == {2}


def test_a_long_step_takes_no_turns(tune: Tune) -> None:
    device = SimulatedDevice(times={"cuda_graph": 0.5}, device_share=0.2, step_ns=2 * 10**9)
    result = tune(device, TuningOptions(budget_s=1e6))
    assert result.changes == ("cuda_graph",)
    assert all(visit.turns is None for visit in device.visits)


def reduced_changes(result: Tuning) -> tuple[str, ...]:
    return result.reduced.changes if result.reduced is not None else ()


def test_an_inaccurate_change_is_rejected_within_the_tolerance(tune: Tune) -> None:
    device = SimulatedDevice(times={"amp_bf16": 0.5}, errors={"amp_bf16": 0.2})
    result = tune(device, changes=("amp_bf16",))
    assert outcomes(result) == {"amp_bf16": "inaccurate"}
    assert "2.0e-1, above the limit of 1.0e-1" in result.attempts[0].reason
    assert "amp_bf16" not in device.started  # it does not run again
    assert reduced_changes(tune(device, TuningOptions(tolerance="0.3"), ("amp_bf16",))) == ("amp_bf16",)
    assert reduced_changes(tune(device, TuningOptions(tolerance="3000x"), ("amp_bf16",))) == ("amp_bf16",)
    assert reduced_changes(tune(device, TuningOptions(tolerance="10x"), ("amp_bf16",))) == ()
    assert reduced_changes(tune(device, TuningOptions(tolerance="any"), ("amp_bf16",))) == ("amp_bf16",)


def test_an_unknown_error_is_rejected_with_its_reason(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatedDevice(times={"cuda_graph": 0.5})
    run = device.run

    def without_error(visit):  # type: ignore[no-untyped-def]
        measured = run(visit)
        if "cuda_graph" in measured.config.name:
            note = "No error against float64: the model draws random numbers."
            return replace(measured, max_relative_error=None, error_note=note)
        return measured

    monkeypatch.setattr(device, "run", without_error)
    result = tune(device, changes=("cuda_graph",))
    assert outcomes(result) == {"cuda_graph": "inaccurate"}
    assert "random numbers" in result.attempts[0].reason


def test_a_failed_candidate_does_not_stop_the_search(tune: Tune) -> None:
    device = SimulatedDevice(times={"fused_optimizer": 0.5}, failures={"cuda_graph": "cannot capture\nmore lines"})
    result = tune(device)
    assert result.changes == ("fused_optimizer",)
    failed = next(attempt for attempt in result.attempts if attempt.change == "cuda_graph")
    assert (failed.outcome, failed.reason) == ("failed", "cannot capture")


def test_a_change_that_fails_in_its_second_process_is_not_accepted(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatedDevice(times={FRESH: 0.5})
    run = device.run

    def flaky(visit):  # type: ignore[no-untyped-def]
        if device.started.count(FRESH) == 2:
            device.failures[FRESH] = "illegal memory access"
        return run(visit)

    monkeypatch.setattr(device, "run", flaky)
    result = tune(device, changes=(FRESH,))
    assert outcomes(result) == {FRESH: "failed"}
    assert result.outcome == "nothing better"


def test_each_contribution_is_measured_without_the_change(tune: Tune) -> None:
    device = SimulatedDevice(times={"benchmark": 0.7, "fused_optimizer": 0.6})
    result = tune(device)
    parts = {part.change: part for part in result.contributions}
    assert {part.method for part in parts.values()} == {"leave-one-out"}
    assert parts["benchmark"].without == "fused_optimizer"
    for change, ratio in (("benchmark", 0.7), ("fused_optimizer", 0.6)):
        gain = parts[change].gain
        assert gain is not None
        assert gain.ratio == pytest.approx(ratio, rel=0.02)
        assert gain.outcome == "better"


def test_contributions_are_incremental_beside_a_change_that_runs_fresh(tune: Tune) -> None:
    device = SimulatedDevice(times={"benchmark": 0.7, FRESH: 0.6})
    result = tune(device, changes=("benchmark", FRESH))
    assert result.changes == ("benchmark", FRESH)
    assert {part.method for part in result.contributions} == {"incremental"}


@pytest.mark.parametrize("limit", [8, 10, 15, 30])
def test_the_number_of_processes_is_kept(limit: int, tune: Tune) -> None:
    device = SimulatedDevice(times={"benchmark": 0.7, "amp_bf16": 0.6, "fused_optimizer": 0.9, FRESH: 0.9})
    result = tune(device, TuningOptions(processes=limit), ("benchmark", "amp_bf16", "fused_optimizer", FRESH))
    assert result.processes <= limit
    assert not result.changes or (result.gain is not None and result.gain.after_processes >= 2)


def test_without_time_nothing_is_tried_and_it_says_so(tune: Tune) -> None:
    result = tune(SimulatedDevice(), TuningOptions(budget_s=1e-9))
    assert set(outcomes(result).values()) == {"not tried"}


@pytest.mark.parametrize("at", [1, 2, 4])
def test_ctrl_c_in_a_comparison_keeps_what_was_measured(at: int, tune: Tune) -> None:
    device = SimulatedDevice(times={"benchmark": 0.7, "fused_optimizer": 0.6}, interrupt_comparison=at)
    result = tune(device, changes=("benchmark", "fused_optimizer", "no_item"))
    assert result.outcome == "interrupted"
    assert device.started == ["default"]  # nothing starts afterwards
    assert result.code == ()
    assert result.baseline.step_ns is not None
    assert (result.chosen is not None) == (at > 1)


@pytest.mark.parametrize("at", [3, 5])
def test_ctrl_c_in_the_final_measurement(at: int, tune: Tune) -> None:
    result = tune(SimulatedDevice(times={"benchmark": 0.7}, interrupt_at=at), changes=("benchmark",))
    assert (result.outcome, result.changes, result.code) == ("interrupted", ("benchmark",), ())


def test_memory_is_saved_without_being_much_slower(tune: Tune) -> None:
    device = SimulatedDevice(
        times={"checkpoint=a": 1.05, "checkpoint=b": 1.5}, peaks={"checkpoint=a": 0.7, "checkpoint=b": 0.5}
    )
    options = TuningOptions(goal="memory", max_slowdown=0.1)
    result = tune(device, options, ("checkpoint=a", "checkpoint=b"))
    assert result.changes == ("checkpoint=a",)
    assert outcomes(result)["checkpoint=b"] == "too slow"
    assert result.gain is not None
    assert result.gain.ratio == pytest.approx(0.7)
    assert device.compared == []  # the peak of one of two models in a process says little


def test_memory_slowdowns_add_up_against_the_baseline(tune: Tune) -> None:
    device = SimulatedDevice(
        times={"checkpoint=a": 1.08, "checkpoint=b": 1.08}, peaks={"checkpoint=a": 0.7, "checkpoint=b": 0.8}
    )
    result = tune(device, TuningOptions(goal="memory", max_slowdown=0.1), ("checkpoint=a", "checkpoint=b"))
    assert result.changes == ("checkpoint=a",)
    assert outcomes(result)["checkpoint=b"] == "too slow"


def test_throughput_doubles_the_batch_while_it_pays(tune: Tune) -> None:
    # a step of twice the batch takes 1.2 times as long, then twice
    device = SimulatedDevice(times={"batch=2x": 1.2, "batch=4x": 1.4, "batch=8x": 2.8})
    result = tune(device, TuningOptions(goal="throughput"), ("batch=2x",))
    assert result.changes == ("batch=4x",)
    assert result.chosen is not None
    assert result.chosen.samples == 32
    assert result.gain is not None
    assert result.gain.ratio == pytest.approx(1.4 / 4, rel=0.02)
    assert result.estimate is not None
    assert result.estimate.ratio == pytest.approx(1.4 / 4, rel=0.02)  # of the change that replaces another one, too
    assert [block.code.partition("  #")[0] for block in result.code] == [
        "loader = torch.utils.data.DataLoader(dataset, batch_size=32)"
    ]


def test_what_does_not_apply_is_listed_once(tune: Tune) -> None:
    result = tune(SimulatedDevice(times={"benchmark": 0.5}), changes=("no_onednn", "benchmark", "fused_optimizer"))
    assert [a.reason for a in result.attempts if a.change == "no_onednn"] == ["the model has no convolution"]


def test_only_first_processes_are_traced(tune: Tune) -> None:
    device = SimulatedDevice(times={"benchmark": 0.5})
    tune(device, changes=("benchmark",))
    traced = [visit.config.name for visit in device.visits if visit.trace is not None]
    assert traced == ["default", "benchmark"]
    assert [visit.config.name for visit in device.visits if visit.checks] == ["default"]


def test_progress_counts_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatedDevice(times={FRESH: 0.5})
    monkeypatch.setattr(sweep, "measure_visits", device.measure_visits)
    search = device.search(tmp_path)
    starts: list[ProcessStart | None] = []
    search.processes.on_process = starts.append
    search.run(("benchmark", FRESH))
    shown = [start for start in starts if start is not None]
    assert [start.number for start in shown] == list(range(2, 2 + len(shown)))
    assert all(start.number <= start.count for start in shown)
    assert starts[-1] is None


@pytest.mark.parametrize("budget_s", [30, 60, 120, 300])
def test_the_time_is_kept(budget_s: float, tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatedDevice(times={"benchmark": 0.7, "amp_bf16": 0.6, "fused_optimizer": 0.9})
    monkeypatch.setattr(tuning_processes.time, "monotonic", lambda: device.clock_s)
    result = tune(device, TuningOptions(budget_s=budget_s), ("benchmark", "amp_bf16", "fused_optimizer", FRESH))
    assert device.clock_s <= 1.2 * budget_s
    assert result.outcome == "better"
    if budget_s >= 60:
        assert set(result.changes) == {"benchmark", "fused_optimizer"}
        assert reduced_changes(result) == (*result.changes, "amp_bf16")
        assert {part.method for part in result.contributions} == {"leave-one-out"}


def test_both_answers_are_found_before_each_change_is_questioned(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("cuda_graph", "benchmark", "channels_last", "fused_optimizer", "amp_bf16")
    times = {"cuda_graph": 0.8, "benchmark": 0.8, "channels_last": 0.8, "fused_optimizer": 0.8, "amp_bf16": 0.6}
    device = SimulatedDevice(times=times)
    monkeypatch.setattr(tuning_processes.time, "monotonic", lambda: device.clock_s)
    result = tune(device, TuningOptions(budget_s=24), words)
    assert set(result.changes) == set(words[:4])
    assert set(reduced_changes(result)) == set(words)


def test_what_cannot_be_confirmed_in_time_is_not_accepted(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatedDevice(times={"benchmark": 0.7, "amp_bf16": 0.6}, first_steps_s={"amp_bf16": 14.0})
    monkeypatch.setattr(tuning_processes.time, "monotonic", lambda: device.clock_s)
    result = tune(device, TuningOptions(budget_s=45), ("benchmark", "amp_bf16"))
    assert result.changes == ("benchmark",)
    assert result.reduced is None
    assert outcomes(result)["amp_bf16"] == "better"
    assert device.clock_s <= 1.2 * 45
    patient = SimulatedDevice(times=device.times, first_steps_s=device.first_steps_s)
    assert reduced_changes(tune(patient)) == ("benchmark", "amp_bf16")


def test_the_second_answer_has_what_the_first_gained_later(tune: Tune) -> None:
    words = ("cuda_graph", "benchmark", "channels_last", "fused_optimizer", "amp_bf16", "benchmark_limit=0")
    device = SimulatedDevice(times={"benchmark": 0.7, "benchmark_limit=0": 0.9, "amp_bf16": 0.6, "channels_last": 1.2})
    result = tune(device, changes=words)
    assert set(result.changes) == {"benchmark", "benchmark_limit=0"}
    assert set(reduced_changes(result)) == {"benchmark", "benchmark_limit=0", "amp_bf16"}


def test_changes_by_device_and_goal() -> None:
    assert first_changes("cudnn", "time", "train")[0] == "cuda_graph=step"
    assert "dtype=bfloat16" in first_changes("cudnn", "time", "infer")
    assert "dtype=bfloat16" not in first_changes("cudnn", "time", "train")
    assert first_changes("cpu", "throughput", "train")[0] == "batch=2x"
    assert first_changes("cudnn", "memory", "train", ("layer1",))[0] == "checkpoint=layer1"
    assert "benchmark" not in first_changes("cpu", "time", "train")


def test_alternatives_replace_each_other() -> None:
    assert with_change(("benchmark", "amp_bf16"), "amp_fp16") == ("benchmark", "amp_fp16")
    assert with_change(("compile",), "compile=reduce-overhead") == ("compile=reduce-overhead",)
    assert with_change(("cuda_graph",), "compile") == ("compile",)
    assert with_change(("cuda_graph=step",), "cuda_graph") == ("cuda_graph",)
    assert with_change(("checkpoint=a",), "checkpoint=b") == ("checkpoint=a", "checkpoint=b")
    assert with_change(("batch=2x",), "batch=4x") == ("batch=4x",)
    assert without_change(("benchmark", "amp_bf16", "benchmark_limit=0"), "benchmark") == ("amp_bf16",)
    assert refinements("batch=2x") == ("batch=4x",)
    assert refinements("batch=64x") == ()


def test_compilation_comes_last_and_on_top_of_both_answers(tune: Tune) -> None:
    device = SimulatedDevice(times={"compile": 0.8, "amp_bf16": 0.6, "benchmark": 0.7, "fused_optimizer": 1.2})
    result = tune(device, changes=("compile", "benchmark", "amp_bf16", "fused_optimizer"))
    assert result.changes == ("benchmark", "compile")
    assert reduced_changes(result) == ("benchmark", "amp_bf16", "compile")
    bases = [attempt.base for attempt in result.attempts if attempt.change == "compile"]
    assert bases == ["benchmark+amp_bf16", "benchmark"]


def test_a_slower_alternative_does_not_replace_the_accepted_one(tune: Tune) -> None:
    device = SimulatedDevice(times={"amp_bf16": 0.5, "amp_fp16": 0.6, "benchmark": 0.9})
    result = tune(device, changes=("amp_bf16", "amp_fp16", "benchmark"))
    assert [attempt.outcome for attempt in result.attempts if attempt.change == "amp_fp16"] == ["worse"]
    assert reduced_changes(result) == ("benchmark", "amp_bf16")


def test_a_compiled_model_replaces_its_graph_where_it_is_faster(tune: Tune) -> None:
    device = SimulatedDevice(times={"cuda_graph": 0.5, "compile=reduce-overhead": 0.4})
    result = tune(device, changes=("cuda_graph",))
    assert result.changes == ("compile=reduce-overhead",)
    assert [part.without for part in result.contributions] == ["default"]


def test_the_error_of_the_baseline_is_measured_where_its_process_had_no_time(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = SimulatedDevice(times={"fused_optimizer": 0.5})
    run = device.run
    monkeypatch.setattr(
        device, "run", lambda visit: run(visit) if device.compared else replace(run(visit), max_relative_error=None)
    )
    result = tune(device, changes=("fused_optimizer",))
    assert device.compared[0] == ("", "default")
    assert result.changes == ("fused_optimizer",)
    assert result.baseline.max_relative_error == pytest.approx(1e-4)


def test_a_busy_host_is_reported(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatedDevice(times={"benchmark": 0.5})
    run = device.run
    load = HostLoad(wall_ns=10**9, cores=2, running_ns=7 * 10**8, waiting_ns=3 * 10**8)
    monkeypatch.setattr(device, "run", lambda visit: replace(run(visit), host_load=load))
    notes = tune(device, changes=("benchmark",)).notes
    assert any("waited for one for 30.0 % of their time" in note for note in notes)
    assert not tune(SimulatedDevice(times={"benchmark": 0.5}), changes=("benchmark",)).notes


def test_a_failure_in_the_final_measurement_is_not_confirmed(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatedDevice(times={"benchmark": 0.5})
    run = device.run

    def flaky(visit):  # type: ignore[no-untyped-def]
        if device.started.count("benchmark") == 2:
            device.failures["benchmark"] = "illegal memory access"
        return run(visit)

    monkeypatch.setattr(device, "run", flaky)
    result = tune(device, changes=("benchmark",))
    assert result.outcome == "not confirmed"
    assert result.code == ()
    assert result.notes[0] == "A process of the final measurement failed: illegal memory access"


def test_the_smallest_number_of_processes_suffices_for_one_change(tune: Tune) -> None:
    device = SimulatedDevice(times={"benchmark": 0.5})
    result = tune(device, TuningOptions(processes=MIN_TUNING_PROCESSES), ("benchmark", "fused_optimizer"))
    assert (result.outcome, result.changes) == ("better", ("benchmark",))
    assert result.processes <= MIN_TUNING_PROCESSES
