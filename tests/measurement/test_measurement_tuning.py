"""The search of `tune` on a simulated device: what it accepts, what it rejects and why, and that it keeps its limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from simulated_device import SimulatedDevice

from profiler_kit.measurement import sweep, tuning_processes, turns
from profiler_kit.measurement.tuning import MIN_TUNING_PROCESSES
from profiler_kit.measurement.tuning_candidates import first_changes, refinements, with_change, without_change
from profiler_kit.records.experiments import HostLoad
from profiler_kit.records.progress import ProcessStart
from profiler_kit.records.tuning import Tuning, TuningOptions

CHANGES = ("benchmark", "amp_bf16", "channels_last", "cuda_graph", "fused_optimizer")
Tune = Callable[..., Tuning]


@pytest.fixture
def tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tune:
    def run(
        device: SimulatedDevice, options: TuningOptions | None = None, changes: tuple[str, ...] = CHANGES
    ) -> Tuning:
        monkeypatch.setattr(sweep, "measure_visits", device.measure_visits)
        monkeypatch.setattr(turns.process, "processes_in_memory", lambda processes, _: processes)
        return device.tune(tmp_path, changes, options)

    return run


def outcomes(result: Tuning) -> dict[str, str]:
    """The last outcome of each change."""
    return {attempt.change: attempt.outcome for attempt in result.attempts}


def test_it_combines_what_is_surely_better(tune: Tune) -> None:
    device = SimulatedDevice(times={"benchmark": 0.7, "amp_bf16": 0.6, "channels_last": 1.5})
    result = tune(device)
    assert result.outcome == "better"
    assert set(result.changes) == {"benchmark", "amp_bf16"}
    assert result.gain is not None
    assert result.gain.low < 0.42 < result.gain.high
    assert outcomes(result)["channels_last"] == "worse"
    assert result.chosen is not None
    assert result.chosen.config.name == "benchmark+amp_bf16"


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
    device = SimulatedDevice(times={"benchmark": 0.7, "amp_bf16": 0.6}, noise=0.005)
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
    device = SimulatedDevice(noise=0.007)
    device.generator.seed(seed)
    assert tune(device).changes == ()


@pytest.mark.parametrize("seed", range(5))
def test_host_noise_is_not_accepted_and_a_threefold_gain_is(seed: int, tune: Tune) -> None:
    device = SimulatedDevice(times={"cuda_graph": 0.33}, noise=0.05, device_share=0.2)
    device.generator.seed(seed)
    result = tune(device, TuningOptions(budget_s=1e6))
    assert result.outcome == "better"
    assert result.changes == ("cuda_graph",)
    assert result.gain is not None
    assert result.gain.after_processes >= 5


@pytest.mark.parametrize("seed", range(5))
def test_processes_in_turns_find_what_single_ones_cannot(seed: int, tune: Tune) -> None:
    device = SimulatedDevice(
        times={"cuda_graph": 0.9, "channels_last": 1.3}, noise=0.08, turn_noise=0.02, device_share=0.2
    )
    device.generator.seed(seed)
    result = tune(device, TuningOptions(budget_s=1e6))
    assert (result.outcome, result.changes) == ("better", ("cuda_graph",))
    assert result.gain is not None
    assert result.gain.ratio == pytest.approx(0.9, rel=0.04)
    assert result.gain.high - result.gain.low < 0.08
    assert result.gain.after_processes >= 6
    timed = [visit for visit in device.visits if visit.turns is not None]
    assert all(visit.again and visit.trace is None and not visit.checks for visit in timed)


@pytest.mark.parametrize("seed", range(20))
def test_identical_configurations_are_never_accepted_in_turns(seed: int, tune: Tune) -> None:
    device = SimulatedDevice(noise=0.1, turn_noise=0.02, device_share=0.2)
    device.generator.seed(seed)
    result = tune(device, TuningOptions(budget_s=1e6))
    assert result.changes == ()
    assert set(outcomes(result).values()) <= {"same", "worse"}


def test_little_memory_limits_the_processes_that_take_turns(tune: Tune) -> None:
    # two processes at a time: the accepted configuration and one candidate
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


def test_an_inaccurate_change_is_rejected_within_the_tolerance(tune: Tune) -> None:
    device = SimulatedDevice(times={"amp_bf16": 0.5}, errors={"amp_bf16": 0.02})
    result = tune(device, changes=("amp_bf16",))
    assert outcomes(result) == {"amp_bf16": "inaccurate"}
    assert "2.0e-2, above the limit of 1.0e-2" in result.attempts[0].reason
    assert device.started.count("amp_bf16") == 1  # it does not run again
    assert tune(device, TuningOptions(tolerance="0.03"), ("amp_bf16",)).changes == ("amp_bf16",)
    assert tune(device, TuningOptions(tolerance="300x"), ("amp_bf16",)).changes == ("amp_bf16",)
    assert tune(device, TuningOptions(tolerance="10x"), ("amp_bf16",)).changes == ()
    assert tune(device, TuningOptions(tolerance="any"), ("amp_bf16",)).changes == ("amp_bf16",)


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
    device = SimulatedDevice(times={"amp_bf16": 0.5}, failures={"cuda_graph": "cannot capture\nmore lines"})
    result = tune(device)
    assert result.changes == ("amp_bf16",)
    failed = next(attempt for attempt in result.attempts if attempt.change == "cuda_graph")
    assert (failed.outcome, failed.reason) == ("failed", "cannot capture")
    assert sum("cuda_graph" in name for name in device.started) == 1


def test_a_change_that_fails_in_its_second_process_is_not_accepted(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatedDevice(times={"benchmark": 0.5})
    run = device.run

    def flaky(visit):  # type: ignore[no-untyped-def]
        if device.started.count("benchmark") == 2:
            device.failures["benchmark"] = "illegal memory access"
        return run(visit)

    monkeypatch.setattr(device, "run", flaky)
    result = tune(device, changes=("benchmark",))
    assert outcomes(result) == {"benchmark": "failed"}
    assert result.outcome == "nothing better"


def test_a_loss_is_tried_again_beside_its_partner(tune: Tune) -> None:
    device = SimulatedDevice(times={"amp_bf16": 0.6, "channels_last": 1.3, "amp_bf16+channels_last": 0.5})
    result = tune(device)
    assert set(result.changes) == {"amp_bf16", "channels_last"}


def test_each_contribution_is_measured_without_the_change(tune: Tune) -> None:
    device = SimulatedDevice(times={"benchmark": 0.7, "amp_bf16": 0.6})
    result = tune(device)
    parts = {part.change: part for part in result.contributions}
    assert {part.method for part in parts.values()} == {"leave-one-out"}
    assert parts["benchmark"].without == "amp_bf16"
    for change, ratio in (("benchmark", 0.7), ("amp_bf16", 0.6)):
        gain = parts[change].gain
        assert gain is not None
        assert gain.ratio == pytest.approx(ratio, rel=0.02)
        assert gain.outcome == "better"


def test_contributions_are_incremental_without_room(tune: Tune) -> None:
    device = SimulatedDevice(times={"benchmark": 0.7, "amp_bf16": 0.6})
    result = tune(device, TuningOptions(processes=19), ("benchmark", "amp_bf16"))
    assert len(device.started) <= 19
    assert len(result.changes) == 2
    assert {part.method for part in result.contributions} == {"incremental"}


@pytest.mark.parametrize("limit", [10, 12, 15, 20, 30])
def test_the_number_of_processes_is_kept(limit: int, tune: Tune) -> None:
    device = SimulatedDevice(times={"benchmark": 0.7, "amp_bf16": 0.6, "fused_optimizer": 0.9})
    result = tune(device, TuningOptions(processes=limit), ("benchmark", "amp_bf16", "fused_optimizer", "cuda_graph"))
    assert len(device.started) <= limit
    assert not result.changes or (result.gain is not None and result.gain.after_processes >= 2)
    assert limit > 12 or "not tried" in outcomes(result).values()


def test_without_time_nothing_is_tried_and_it_says_so(tune: Tune) -> None:
    result = tune(SimulatedDevice(), TuningOptions(budget_s=1e-9))
    assert set(outcomes(result).values()) == {"not tried"}


@pytest.mark.parametrize("at", [3, 5, 8, 12, 16])
def test_ctrl_c_keeps_what_was_measured(at: int, tune: Tune) -> None:
    device = SimulatedDevice(times={"benchmark": 0.7, "amp_bf16": 0.6}, interrupt_at=at)
    result = tune(device, changes=("benchmark", "amp_bf16"))
    assert result.outcome == "interrupted"
    assert len(device.started) == at  # nothing starts afterwards
    assert result.code == ()
    assert result.baseline.step_ns is not None
    if at > 8:
        assert result.changes
        assert result.chosen is not None


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
    assert [block.code.partition("  #")[0] for block in result.code] == [
        "loader = torch.utils.data.DataLoader(dataset, batch_size=32)"
    ]


def test_what_does_not_apply_is_listed_once(tune: Tune) -> None:
    result = tune(SimulatedDevice(times={"benchmark": 0.5}), changes=("no_onednn", "benchmark", "fused_optimizer"))
    assert [a.reason for a in result.attempts if a.change == "no_onednn"] == ["the model has no convolution"]


def test_only_the_first_process_is_traced_and_checked(tune: Tune) -> None:
    device = SimulatedDevice(times={"amp_bf16": 0.5})
    tune(device, changes=("amp_bf16",))
    checked = [visit.config.name for visit in device.visits if visit.checks]
    assert checked == ["default", "amp_bf16"]
    assert [visit.config.name for visit in device.visits if visit.trace is not None] == checked


def test_progress_counts_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatedDevice(times={"benchmark": 0.5})
    monkeypatch.setattr(sweep, "measure_visits", device.measure_visits)
    search = device.search(tmp_path)
    starts: list[ProcessStart | None] = []
    search.processes.on_process = starts.append
    search.run(("benchmark",))
    shown = [start for start in starts if start is not None]
    assert [start.number for start in shown] == list(range(2, 2 + len(shown)))
    assert all(start.number <= start.count for start in shown)
    assert starts[-1] is None


@pytest.mark.parametrize("budget_s", [30, 60, 120, 300])
def test_the_time_is_kept(budget_s: float, tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatedDevice(times={"benchmark": 0.7, "amp_bf16": 0.6, "fused_optimizer": 0.9})
    monkeypatch.setattr(tuning_processes.time, "monotonic", lambda: device.clock_s)
    result = tune(device, TuningOptions(budget_s=budget_s), ("benchmark", "amp_bf16", "fused_optimizer", "cuda_graph"))
    assert device.clock_s <= budget_s + 15  # the final measurement may take a little longer
    assert len(result.changes) >= (1 if budget_s <= 60 else 3)
    assert result.outcome == "better"
    if budget_s >= 120:
        assert {part.method for part in result.contributions} == {"leave-one-out"}


def test_changes_by_device_and_goal() -> None:
    assert first_changes("cudnn", "time", "train")[0] == "benchmark"
    assert "dtype=bfloat16" in first_changes("cudnn", "time", "infer")
    assert "dtype=bfloat16" not in first_changes("cudnn", "time", "train")
    assert first_changes("cpu", "throughput", "train")[0] == "batch=2x"
    assert first_changes("cudnn", "memory", "train", ("layer1",))[0] == "checkpoint=layer1"
    assert "benchmark" not in first_changes("cpu", "time", "train")


def test_alternatives_replace_each_other() -> None:
    assert with_change(("benchmark", "amp_bf16"), "amp_fp16") == ("benchmark", "amp_fp16")
    assert with_change(("compile",), "compile=reduce-overhead") == ("compile=reduce-overhead",)
    assert with_change(("cuda_graph",), "compile") == ("compile",)
    assert with_change(("checkpoint=a",), "checkpoint=b") == ("checkpoint=a", "checkpoint=b")
    assert with_change(("batch=2x",), "batch=4x") == ("batch=4x",)
    assert without_change(("benchmark", "amp_bf16", "benchmark_limit=0"), "benchmark") == ("amp_bf16",)
    assert refinements("batch=2x") == ("batch=4x",)
    assert refinements("batch=64x") == ()


def test_compilation_comes_last_and_on_top(tune: Tune) -> None:
    device = SimulatedDevice(times={"compile": 0.8, "amp_bf16": 0.6, "benchmark": 0.7, "fused_optimizer": 1.2})
    result = tune(device, changes=("compile", "benchmark", "amp_bf16", "fused_optimizer"))
    assert set(result.changes) == {"compile", "amp_bf16", "benchmark"}
    assert result.changes[-1] == "compile"
    first = next(attempt for attempt in result.attempts if attempt.change == "compile")
    assert set(first.base.split("+")) == {"amp_bf16", "benchmark"}


def test_a_slower_alternative_is_not_tried_again(tune: Tune) -> None:
    device = SimulatedDevice(times={"amp_bf16": 0.5, "amp_fp16": 0.6, "benchmark": 0.9})
    result = tune(device, changes=("amp_bf16", "amp_fp16", "benchmark"))
    assert [attempt.round for attempt in result.attempts if attempt.change == "amp_fp16"] == [1]
    reason = next(attempt.reason for attempt in result.attempts if attempt.change == "amp_fp16")
    assert reason == "amp_bf16 was better"


def test_a_compiled_model_replaces_its_graph_where_it_is_faster(tune: Tune) -> None:
    device = SimulatedDevice(times={"cuda_graph": 0.5, "compile=reduce-overhead": 0.4})
    result = tune(device, changes=("cuda_graph",))
    assert result.changes == ("compile=reduce-overhead",)
    assert [part.without for part in result.contributions] == ["default"]


def test_a_slow_change_without_checks_is_not_called_inaccurate(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatedDevice(times={"channels_last": 1.02}, noise=0.01)
    run = device.run

    def unchecked(visit):  # type: ignore[no-untyped-def]
        measured = run(visit)
        return replace(measured, max_relative_error=None) if "channels_last" in visit.config.name else measured

    monkeypatch.setattr(device, "run", unchecked)
    assert outcomes(tune(device, changes=("channels_last",))) == {"channels_last": "same"}


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
        if device.started.count("benchmark") == 4:
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
    assert len(device.started) <= MIN_TUNING_PROCESSES
