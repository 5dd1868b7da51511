"""The rules of the laboratory: what fires them, with which numbers, and what keeps them silent."""

from __future__ import annotations

from dataclasses import replace

import pytest
from diagnose_cases import DIRECT, FFT, IM2COL, MIB, MS, XMMA, around, config, layer, of_rule, report, v0, v1, value
from diagnose_lab import AMPERE, also, capped, gap, laboratory, moving, troubled, twice
from traced_runs import with_traced

from profiler_kit.diagnosis import diagnose
from profiler_kit.diagnosis.advice import find_trials, with_option
from profiler_kit.records.configs import NamedValue
from profiler_kit.records.experiments import ConvolutionTiming, DeviceState, Repeat
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.runs import ConfigRun, Failure, PeakMemory
from profiler_kit.records.traces import IdleTime, TraceKernel, TraceModule
from profiler_kit.units import text

LAB, TROUBLED, CAPPED = laboratory(), troubled(), capped()
DEFAULT, BENCHMARK = v0().runs[:2]


def one(source: Report, rule: str) -> Finding:
    found = of_rule(diagnose(source), rule)
    assert len(found) == 1, f"{rule} fired {len(found)} times"
    return found[0]


def silent(source: Report, rule: str) -> bool:
    return of_rule(diagnose(source), rule) == ()


def with_baseline(source: Report, **fields: object) -> Report:
    return replace(source, runs=(with_traced(source.runs[0], **fields), *source.runs[1:]))  # type: ignore[arg-type]


NEW = (
    "activations_peak", "benchmark_limit", "cudnn_off_by_accident", "false_reproducibility", "flags_changed",
    "further_axes", "half_precision", "memory_bound", "no_tensor_cores", "not_on_cudnn", "precision_inert", "two_processes",
    "under_a_cap", "unsteady",
)  # fmt: skip


@pytest.mark.parametrize("rule", NEW)
def test_reports_of_before_the_laboratory_do_not_fire_its_rules(rule: str) -> None:
    assert silent(v0(), rule)
    assert silent(v1(), rule)


# --- benchmark_pays and benchmark_limit


def test_the_verdict_is_about_the_planned_steps() -> None:
    pays, not_yet = one(laboratory(1000), "benchmark_pays"), one(laboratory(100), "benchmark_pays")
    assert "443 steps" in pays.title
    assert "1,000 steps" in pays.title
    assert "100 steps" in not_yet.title
    assert (pays.severity, not_yet.severity) == ("high", "low")
    assert value(pays, "1,000 planned steps without it").value == 152 * MS + 999 * 26.2 * MS
    assert value(pays, "1,000 planned steps", "benchmark").value == 5088 * MS + 999 * 15.03 * MS
    assert "benchmark at False" in not_yet.advice


@pytest.mark.parametrize(("steps", "dear"), [(2500, True), (3500, False)])
def test_a_search_that_takes_a_tenth_of_the_run_is_said(steps: int, dear: bool) -> None:
    finding = one(laboratory(steps), "benchmark_pays")
    assert ("benchmark_limit = 3" in finding.advice) is dear
    assert finding.tries == ("benchmark", *(["benchmark+benchmark_limit=3"] if dear else []))


@pytest.mark.parametrize("steps", [443, 442])
def test_break_even_and_the_planned_steps_agree(steps: int) -> None:
    assert (one(laboratory(steps), "benchmark_pays").severity == "high") is (steps == 443)


def test_without_planned_steps_nothing_is_planned() -> None:
    assert "planned" not in str(one(laboratory(None), "benchmark_pays").evidence)


@pytest.mark.parametrize(
    ("steps", "limit", "severity"), [(1000, "1", "low"), (100_000, "10", "info"), (None, "10", "info")]
)
def test_the_best_limit_depends_on_the_steps(steps: int | None, limit: str, severity: str) -> None:
    finding = one(laboratory(steps), "benchmark_limit")
    assert f"benchmark_limit = {limit} " in finding.title or f"benchmark_limit of {limit} " in finding.title
    assert finding.severity == severity
    assert all(time in finding.explanation for time in ("758.7 ms", "15.5 ms"))


def test_a_limit_that_is_as_fast_is_better_for_its_cheaper_search() -> None:
    close = replace(also(BENCHMARK, 15.05, benchmark_limit="2"), first_step_ns=500 * MS)
    assert "benchmark_limit = 2" in one(report(DEFAULT, BENCHMARK, close), "benchmark_limit").title


# --- settings do not confuse the other rules


def test_the_baseline_is_plain() -> None:
    source = report(also(DEFAULT, 9.0, amp_bf16="on"), DEFAULT, BENCHMARK)
    assert source.baseline() is DEFAULT


def test_runs_with_settings_change_no_finding_of_plain_ones() -> None:
    plain = replace(LAB, runs=tuple(run for run in LAB.runs if run.config.is_plain))
    # the last two say how many runs they name, and what came of bfloat16
    rules = {"further_axes", "benchmark_limit", "not_repeatable", "half_precision"}
    told = [(f.rule, f.severity, f.title) for f in diagnose(LAB) if f.rule not in rules]
    assert told == [(f.rule, f.severity, f.title) for f in diagnose(plain) if f.rule not in rules]


# --- further_axes


def test_further_axes_come_with_their_numbers_the_highest_gain_first() -> None:
    finding = one(LAB, "further_axes")
    assert all(words in finding.title for words in ('"amp_bf16"', "65.7 %", "4 configurations"))
    assert finding.tries == ("amp_bf16", "channels_last", "batch=2x", "compile")
    assert finding.severity == "high"
    assert "error against float64 0.0004 to 0.03" in finding.explanation
    assert "3.275 ms to 3.188 ms per example (16 examples in a step of 51 ms)" in finding.explanation
    assert "peak 480 MiB to 900 MiB" in finding.explanation
    assert '"compile": 26.2 ms to 26.3 ms' in finding.explanation
    assert finding.trial is not None
    assert (finding.trial.before_error, finding.trial.after_error, finding.trial.same_bits) == (4e-4, 3e-2, False)


def test_an_axis_on_top_of_a_flag_stands_beside_both() -> None:
    both = also(BENCHMARK, 13.0, channels_last="on")
    finding = one(report(DEFAULT, BENCHMARK, both), "further_axes")
    assert all(words in finding.title for words in ('"benchmark+channels_last"', "50.4 %"))
    assert '"benchmark" 13.5 %' in finding.explanation


def test_axes_that_do_not_help_are_said_to() -> None:
    slow = also(DEFAULT, 40, compile="on")
    finding = one(report(twice(DEFAULT), slow), "further_axes")
    assert (finding.severity, finding.trial is not None and finding.trial.verdict) == ("info", "worse")
    assert all(words in finding.title for words in ('"compile"', "52.6 %"))
    both = one(report(DEFAULT, slow, also(DEFAULT, 26.25, channels_last="on")), "further_axes")
    assert (both.severity, "2 configurations" in both.title) == ("info", True)


# --- trials of advice


def test_advice_names_configurations_that_were_not_run() -> None:
    assert one(LAB, "wrong_phase").config == "no_item"
    found = of_rule(diagnose(report(DEFAULT, BENCHMARK)), "slow_algorithm")
    assert [finding.tries for finding in found] == [("benchmark", "channels_last", "amp_bf16")]
    assert one(report(DEFAULT), "tf32_in_use").config == "no-tf32"
    assert one(report(DEFAULT), "not_repeatable").config == "deterministic"


@pytest.mark.parametrize(
    ("word", "change", "offered"),
    [
        ("channels_last", {}, True), ("channels_last", {"channels_last": True}, False), ("amp_bf16", {"amp": "float16"}, False),
        ("no_item", {"mode": "infer"}, False), ("batch=2x", {"mode": "infer"}, True), ("amp_bf16", {"dtype": "float64"}, False),
    ],
)  # fmt: skip
def test_advice_that_means_nothing_is_not_given(word: str, change: dict[str, object], offered: bool) -> None:
    source = report(DEFAULT)
    source = replace(source, target=replace(source.target, **change))  # type: ignore[arg-type]
    assert (find_trials(source, DEFAULT, (word,)).tries == (word,)) is offered


def test_of_several_trials_the_best_comes_first() -> None:
    source = report(DEFAULT, also(DEFAULT, 23.0, compile="on"), also(DEFAULT, 20.0, cuda_graph="on"))
    found = find_trials(source, DEFAULT, ("batch=2x", "compile", "cuda_graph"))
    assert found.tries == ("batch=2x", "compile", "cuda_graph")
    assert (found.config, found.trial is not None and found.trial.verdict) == ("cuda_graph", "better")
    assert '"compile" (12.2 % less time)' in found.sentence()


def test_what_failed_is_not_advised_again() -> None:
    failed = replace(also(DEFAULT, 25.0, compile="on"), failure=Failure(kind="error", message="no"))
    source = report(DEFAULT, failed)
    assert find_trials(source, DEFAULT, ("compile", "batch=2x")).tries == ("batch=2x",)


@pytest.mark.parametrize(
    ("start", "word", "name"),
    [
        ("default", "benchmark", "benchmark"), ("no-tf32", "benchmark", "benchmark+no-tf32"), ("no-tf32", "default", "default"),
        ("benchmark", "channels_last", "benchmark+channels_last"), ("default", "batch=2x", "batch=2x"),
        ("cudnn-off", "compile", "cudnn-off+compile"), ("default", "checkpoint=a.b", "checkpoint=a.b"),
    ],
)  # fmt: skip
def test_names_of_changed_configurations(start: str, word: str, name: str) -> None:
    assert with_option(config(start), word).name == name


# --- second processes


def test_a_search_that_chose_differently() -> None:
    unlucky = twice(BENCHMARK, 1.1)
    finding = one(report(twice(DEFAULT), unlucky), "two_processes")
    assert finding.severity == "low"
    assert all(part in finding.title for part in ("search", '"benchmark"', "10.0 %", "15.03 ms", "16.53 ms"))
    assert silent(report(twice(DEFAULT), twice(BENCHMARK, 1.011)), "two_processes")


@pytest.mark.parametrize(("factor", "fires"), [(1.029, False), (1.031, True)])
def test_a_noisy_device(factor: float, fires: bool) -> None:
    assert silent(report(twice(DEFAULT, factor)), "two_processes") is not fires


def test_processes_that_took_turns_are_not_compared_with_one_that_did_not() -> None:
    assert DEFAULT.step_ns is not None
    steps = [round(DEFAULT.step_ns.median * factor) for factor in (0.5, 0.52, 0.6)]
    repeats = tuple(Repeat(step_ns=around(step), steps_ns=(step,), round_ns=1) for step in steps)
    finding = one(report(replace(DEFAULT, further_repeats=repeats)), "two_processes")
    assert all(text(step, "ns") in finding.title for step in (steps[0], steps[2]))
    assert "20.0 %" in finding.title


def repeating(run: ConfigRun) -> ConfigRun:
    return replace(
        run, repeatable=True, repeatable_outputs=True, repeatable_gradients=True, repeatable_loss=True, loss_digest="l"
    )


def test_false_reproducibility_by_the_second_process_of_any_configuration() -> None:
    steady = twice(repeating(DEFAULT), loss_digest="l")
    search = twice(repeating(BENCHMARK), output_digest="z", loss_digest="m")
    finding = one(report(steady, search), "false_reproducibility")
    assert all(words in finding.title for words in ('"benchmark"', "different outputs and loss"))
    assert finding.severity == "low"
    assert "cudnn.benchmark" in finding.explanation
    assert silent(report(steady), "false_reproducibility")
    loose = replace(search, repeatable=False, repeatable_outputs=False, repeatable_loss=False)
    assert silent(report(steady, loose), "false_reproducibility")


def test_a_loss_that_does_not_repeat_alone() -> None:
    run = replace(repeating(DEFAULT), repeatable=False, repeatable_loss=False)
    finding = one(report(run), "not_repeatable")
    assert "loss" in finding.title
    assert "outputs and gradients" in finding.explanation


# --- precision


def test_forbidden_by_a_flag_that_reads_back_and_computed_nevertheless() -> None:
    finding = next(f for f in of_rule(diagnose(TROUBLED), "precision_inert") if f.severity == "high")
    assert "cudnn.conv.fp32_precision = ieee" in finding.explanation
    assert value(finding, "TF32 convolution kernels", "default").value == sum(
        k.kernel_ns for k in TROUBLED.runs[0].kernels if k.math == "tf32"
    )


def test_a_flag_that_raises_and_one_that_an_older_torch_lacks() -> None:
    def reading(value: str) -> Report:
        flags = (NamedValue(name="cudnn.allow_tf32", value=value),)
        return report(replace(DEFAULT, environment=replace(AMPERE, flags=flags)))

    assert "cudnn.allow_tf32" in one(reading("unreadable: mixed use"), "precision_inert").title
    assert silent(reading("unreadable: module 'torch' has no attribute 'conv'"), "precision_inert")
    assert silent(reading("True"), "precision_inert")


def test_the_variable_comes_before_the_flags() -> None:
    found = [f for f in of_rule(diagnose(TROUBLED), "precision_inert") if "OVERRIDE" in f.title]
    assert [f.severity for f in found] == ["low"]


def test_a_flag_that_was_not_set_by_the_configuration() -> None:
    flags = (NamedValue(name="cudnn.conv.fp32_precision", value="tf32"),)
    run = replace(v0().runs[4], environment=replace(AMPERE, flags=flags))
    assert one(report(run), "precision_inert").severity == "medium"


# --- cuDNN off


def test_a_file_that_switches_cudnn_off_is_told_with_what_it_costs() -> None:
    off, other = of_rule(diagnose(TROUBLED), "cudnn_off_by_accident")
    assert (off.severity, off.config) == ("high", "default")
    assert "lines 12 and 30" in off.explanation
    assert all(words in off.explanation for words in ('"default"', "65.8 %", '"cudnn-off"'))
    assert (other.severity, "cudnn.benchmark = True" in other.title) == ("info", True)
    assert '"benchmark"' in other.explanation


def test_a_call_of_flags_alone_names_its_line() -> None:
    about = replace(v0().target, cudnn_off_lines=(7,))
    finding = one(report(DEFAULT, about=about), "cudnn_off_by_accident")
    assert "models/convnet_v0.py, line 7" in finding.title
    assert (finding.severity, finding.trial) == ("medium", None)


@pytest.mark.parametrize(("share", "expected"), [(4, None), (6, "medium"), (19, "medium"), (21, "high")])
def test_convolutions_beside_cudnn_by_share(share: int, expected: str | None) -> None:
    modules = (layer("dilated", "forward", share * MS, IM2COL), layer("c", "forward", (100 - share) * MS, XMMA))
    found = of_rule(diagnose(report(with_traced(DEFAULT, modules=modules, unattributed_ns=0))), "not_on_cudnn")
    assert [f.severity for f in found] == ([expected] if expected else [])
    assert all(f.paths == ("dilated",) for f in found)


def test_a_fallback_has_one_finding_with_its_dilation() -> None:
    assert "Conv2d(30->50, k3, d8)" in one(TROUBLED, "not_on_cudnn").explanation
    assert silent(TROUBLED, "slow_algorithm")


def test_flags_that_the_model_changes() -> None:
    finding = one(TROUBLED, "flags_changed")
    assert finding.severity == "high"
    assert "cudnn.enabled: True -> False and cudnn.benchmark: False -> True" in finding.title
    assert "benchmark" in finding.explanation
    milder = with_baseline(TROUBLED, flags_changed=("cudnn.deterministic: False -> True",))
    assert one(milder, "flags_changed").severity == "medium"


# --- arithmetic and efficiency


@pytest.mark.parametrize(("share", "expected"), [(9, None), (11, "low"), (21, "medium"), (33, "medium"), (34, "high")])
def test_plain_float32_by_share(share: int, expected: str | None) -> None:
    modules = (layer("a", "forward", share * MS, DIRECT), layer("b", "forward", (100 - share) * MS, XMMA))
    kernels = tuple(kernel for item in modules for kernel in item.kernels)
    run = with_traced(DEFAULT, modules=modules, kernels=kernels, unattributed_ns=0, environment=AMPERE)
    found = of_rule(diagnose(report(run)), "no_tensor_cores")
    assert [f.severity for f in found] == ([expected] if expected else [])
    older = replace(run, environment=replace(AMPERE, capability="7.5"))
    assert silent(report(older), "no_tensor_cores")
    assert silent(report(replace(run, environment=replace(AMPERE, capability=None))), "no_tensor_cores")


def test_what_allows_tensor_cores_is_tried() -> None:
    run = replace(v0().runs[4], environment=AMPERE)
    finding = one(report(run), "no_tensor_cores")
    assert finding.tries == ("default", "no-tf32+amp_bf16")
    assert "cudnn.allow_tf32 = True" in finding.advice
    product = TraceKernel(name="sgemm", family="gemm", calls=1, kernel_ns=9 * MS, math="fp32")
    dense = with_traced(
        DEFAULT, environment=AMPERE, kernels=(product,), unattributed_ns=10 * MS, modules=(), step_ns=around(12 * MS)
    )
    linear = one(report(dense), "no_tensor_cores")
    assert linear.tries == ("matmul_tf32", "amp_bf16")
    assert "set_float32_matmul_precision" in linear.advice


@pytest.mark.parametrize(("share", "fires"), [(0.49, False), (0.51, True)])
def test_memory_bound_by_share(share: float, fires: bool) -> None:
    source = moving(share)
    assert silent(source, "memory_bound") is not fires
    if fires:
        finding = one(source, "memory_bound")
        assert finding.tries == ("compile", "amp_bf16", "channels_last")
        assert value(finding, "share of peak bandwidth").value == pytest.approx(100 * 4e9 / 3e12 / 5.1e-3, rel=1e-3)
        assert "kernels limited" in one(replace(source, roofline=()), "memory_bound").title


@pytest.mark.parametrize(("factor", "fires"), [(0.5, False), (1.0, True), (9.0, False)])
def test_memory_bound_needs_layers_near_the_bandwidth(factor: float, fires: bool) -> None:
    """The layer reaches 26 % of the bandwidth: half of it is overhead, and nine times as much comes from caches."""
    source = moving(0.51)
    line, *others = source.roofline
    layers = tuple(replace(item, floor_ns=factor * item.floor_ns) for item in line.layers)
    assert silent(replace(source, roofline=(replace(line, layers=layers), *others)), "memory_bound") is not fires


def test_channels_by_their_padding() -> None:
    finding = one(v0(), "channels_multiple")
    assert value(finding, "padded share").value == pytest.approx(100 * (1 - 30 * 50 / (32 * 56)))
    assert "30 and 50 channels" in finding.title
    assert finding.computed
    assert silent(gap(), "channels_multiple") is False  # 30 -> 64 of the slow one
    even = with_baseline(gap(), modules=gap().runs[0].modules[1:])
    assert silent(even, "channels_multiple")  # 32 -> 64
    fp32 = report(v0().runs[4], counts=v0().static)
    assert silent(fp32, "channels_multiple")  # no tensor cores


def test_half_precision_is_computed_from_the_ceilings_and_tried() -> None:
    finding = one(LAB, "half_precision")
    spent = sum(k.kernel_ns for k in LAB.runs[0].kernels if k.math == "tf32")
    assert value(finding, "saving").value == pytest.approx(100 * spent / (26.2 * MS) * (1 - 370 / 670))
    assert (finding.computed, finding.config) == (True, "amp_bf16")
    assert finding.trial is not None
    worse = replace(
        LAB,
        runs=tuple(
            replace(r, step_ns=around(30 * MS), repeat=None) if r.config.name == "amp_bf16" else r for r in LAB.runs
        ),
    )
    assert one(worse, "half_precision").severity == "info"


# --- what-ifs of the dominant layer


def test_what_ifs_give_the_step_at_the_efficiency_of_now() -> None:
    finding = one(LAB, "dominant_layer")
    spent = sum(item.kernel_ns for item in LAB.runs[0].modules if item.path == "conv2")
    rest = 26.2 * MS - spent
    assert value(finding, "step with half the kernel size").value == pytest.approx(rest + spent / 4)
    two = value(finding, "step with two layers instead of one").value
    assert two == pytest.approx(rest + spent * (30 * 50 * 16 + 50 * 50 * 16) / (30 * 50 * 256))
    assert finding.computed


def test_the_host_or_an_fft_leave_the_new_step_unknown() -> None:
    idle = with_baseline(LAB, step_ns=around(60 * MS))
    assert not any(piece.name.startswith("step with") for piece in one(idle, "dominant_layer").evidence)
    whole = v1()
    only = report(whole.runs[3], counts=whole.static)  # an FFT takes as long for a smaller kernel
    assert not any(piece.name.startswith("step with") for piece in one(only, "dominant_layer").evidence)


# --- memory


def test_a_memory_limit_changes_the_algorithm_or_fails() -> None:
    slower = one(CAPPED, "under_a_cap")  # first, although the fallback fails
    assert '"cudnn-off+memory_limit=1GiB" ran out of memory' in slower.explanation
    fallback = one(replace(CAPPED, runs=CAPPED.runs[2:]), "under_a_cap")
    assert all(part in fallback.title for part in ("memory limit", "1 GiB", '"cudnn-off"'))
    assert fallback.severity == "low"
    as_choice = tuple(replace(run, config=replace(run.config, enabled=True)) for run in CAPPED.runs[2:])
    assert one(replace(CAPPED, runs=as_choice), "under_a_cap").severity == "high"
    assert all(part in slower.title for part in ('"no-tf32"', "57.1 %", "1 GiB", "12.23 ms", "19.21 ms"))
    assert slower.severity == "medium"
    parts = ("conv_r1", "FFT to direct convolution (older cuDNN kernels)", "1.473 GiB", "186 MiB")
    assert all(part in slower.explanation for part in parts)
    assert (slower.config, slower.trial is not None and slower.trial.verdict) == ("no-tf32+memory_limit=1GiB", "worse")


def test_a_memory_limit_by_parts_and_one_without_effect() -> None:
    def part(family: str, ns: int) -> tuple[ConvolutionTiming, ...]:
        return (
            ConvolutionTiming(path="c", part="dgrad", calls=1, kernel_ns=ns, layout_ns=0, family=family, kernel="k"),
        )

    free, cap = CAPPED.runs[:2]
    source = report(replace(free, convolutions=part(FFT, 2 * MS)), replace(cap, convolutions=part(DIRECT, 9 * MS)))
    finding = one(source, "under_a_cap")
    parts = ("of c", "FFT to direct convolution (older cuDNN kernels)", "2 ms becomes 9 ms")
    assert all(part in finding.explanation for part in parts)
    assert len([piece for piece in finding.evidence if piece.name == "algorithm"]) == 1
    same = one(report(free, also(free, 12.23, memory_limit="4GiB")), "under_a_cap")
    assert same.severity == "info"
    assert [piece for piece in same.evidence if piece.name == "algorithm"] == []
    assert silent(report(cap), "under_a_cap")  # nothing to compare with


def test_activations_that_make_the_peak_name_a_module_to_checkpoint() -> None:
    finding = one(TROUBLED, "activations_peak")
    assert (finding.config, finding.paths) == ("checkpoint=dilated", ("dilated",))
    assert value(finding, "share of the peak").value == pytest.approx(62.5)
    assert finding.severity == "info"
    device = TROUBLED.runs[0].environment
    assert device is not None
    near = with_baseline(TROUBLED, environment=replace(device, device_memory_bytes=450 * MIB))
    assert one(near, "activations_peak").severity == "medium"


@pytest.mark.parametrize(("share", "fires"), [(49, False), (51, True)])
def test_activations_by_share(share: int, fires: bool) -> None:
    memory = DEFAULT.memory
    assert isinstance(memory, PeakMemory)
    run = replace(DEFAULT, memory=replace(memory, peak_bytes=100 * MIB, saved_activations=share * MIB))
    assert silent(report(run), "activations_peak") is not fires
    infer = replace(report(run), target=replace(v0().target, mode="infer"))
    assert silent(infer, "activations_peak")


# --- the device's state


@pytest.mark.parametrize(("change", "fires"), [(1.029, False), (1.031, True), (0.969, True)])
def test_steps_that_drift_by_their_halves(change: float, fires: bool) -> None:
    steps = (10 * MS,) * 10 + (round(10 * MS * change),) * 10
    assert silent(report(replace(DEFAULT, steps_ns=steps)), "unsteady") is not fires
    assert silent(report(replace(DEFAULT, steps_ns=steps[3:17])), "unsteady")  # too few to say


def test_a_throttled_clock() -> None:
    drifted, throttled = of_rule(diagnose(TROUBLED), "unsteady")
    assert "5.0 %" in drifted.title
    assert "1,200 MHz and 88 degrees Celsius" in drifted.explanation
    parts = ('"default" and "cudnn-off"', "power cap and hardware slowdown")
    assert all(part in throttled.title for part in parts)
    cool = replace(TROUBLED.runs[0], device_state=DeviceState(sm_clock_hz=1), steps_ns=())
    assert silent(replace(TROUBLED, runs=(cool,)), "unsteady")


# --- launching


def test_launching_shows_what_was_tried_and_leaves_waiting_for_data_alone() -> None:
    kernel = TraceKernel(name="k", family="pointwise", calls=1000, kernel_ns=4 * MS)
    modules = (TraceModule(path="", phase="forward", kernel_ns=4 * MS, kernels=(kernel,)),)
    dispatch, data = IdleTime(cause="op dispatch", ns=6 * MS), IdleTime(cause="waiting for data", ns=6 * MS)
    run = with_traced(
        DEFAULT,
        modules=modules,
        kernels=(kernel,),
        unattributed_ns=0,
        step_ns=around(10 * MS),
        span_ns=10 * MS,
        idle=(dispatch,),
    )
    source = report(run, also(run, 5.0, cuda_graph="on"), also(run, 6.0, compile="on"))
    finding = one(source, "launch_bound")
    assert (finding.config, finding.trial is not None and finding.trial.verdict) == ("cuda_graph", "better")
    assert '"compile" (40.0 % less time)' in finding.explanation
    assert silent(report(with_traced(run, idle=(data,))), "launch_bound")


# --- what two processes of one configuration tell besides their times


def test_what_the_first_process_paid_on_top_is_said() -> None:
    cold = replace(
        BENCHMARK, first_step_ns=5000 * MS, repeat=Repeat(first_step_ns=2000 * MS, step_ns=BENCHMARK.step_ns)
    )
    explanation = one(report(DEFAULT, cold), "benchmark_pays").explanation
    assert all(words in explanation for words in ("5 s in the first process", "2 s in the second"))
    warm = replace(cold, first_step_ns=2100 * MS)
    assert "from disk" not in one(report(DEFAULT, warm), "benchmark_pays").explanation


def test_a_loss_that_differs_by_itself_is_no_false_reproducibility_to_act_on() -> None:
    same = replace(
        BENCHMARK, repeatable=True, repeatable_outputs=True, repeatable_loss=True, repeatable_gradients=True,
        output_digest="o", loss_digest="l", gradient_digest="g",
    )  # fmt: skip
    for other, severity in ((Repeat(loss_digest="x"), "info"), (Repeat(gradient_digest="x"), "low")):
        second = replace(same, repeat=replace(other, output_digest="o"))
        assert one(report(DEFAULT, second), "false_reproducibility").severity == severity
