"""Which rules fire on the measured networks, with which numbers; and what they need in order to fire."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from diagnose_cases import (
    DIRECT,
    FFT,
    MIB,
    MS,
    XMMA,
    again,
    all_failed,
    around,
    config,
    conv,
    cpu,
    layer,
    of_rule,
    report,
    single_conv,
    static,
    target,
    v0,
    v1,
    value,
    with_loading,
)
from sample_reports import v0_h100, v1_h100
from traced_runs import with_traced

from profiler_kit.diagnosis import diagnose
from profiler_kit.pipeline.reports import with_verdict
from profiler_kit.records.counts import Cost, ModuleNode, UncountedOp
from profiler_kit.records.experiments import Repeat
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.traces import IdleTime, PhaseTime, TraceKernel, TraceModule

V0, V1 = v0(), v1()


def one(source: Report, rule: str) -> Finding:
    found = of_rule(diagnose(source), rule)
    assert len(found) == 1, f"{rule} fired {len(found)} times"
    return found[0]


def many(run: ConfigRun) -> ConfigRun:
    """`run` in so many equal processes that small differences are established."""
    return replace(run, further_repeats=(Repeat(step_ns=run.step_ns),) * 30)


def silent(source: Report, rule: str) -> bool:
    return of_rule(diagnose(source), rule) == ()


def baseline(source: Report) -> ConfigRun:
    run = source.baseline()
    assert run is not None
    return run


def with_baseline(source: Report, run: ConfigRun) -> Report:
    return replace(source, runs=(run, *source.runs[1:]))


# --- which rules fire


def test_v0_on_an_h100() -> None:
    assert {f.rule for f in diagnose(V0)} == {
        "dominant_layer", "wrong_phase", "benchmark_pays", "slow_algorithm", "tf32_in_use", "cudnn_off_fallback",
        "determinism_price", "not_repeatable", "channels_multiple",
    }  # fmt: skip


def test_v1_on_an_h100() -> None:
    assert {f.rule for f in diagnose(V1)} == {
        "dominant_layer", "wrong_phase", "benchmark_pays", "slow_algorithm", "workspace_peak", "startup_peak", "tf32_in_use",
        "cudnn_off_fallback", "not_repeatable", "channels_multiple",
    }  # fmt: skip


def test_one_convolution_on_an_h100() -> None:
    assert {f.rule for f in diagnose(single_conv())} == {
        "wrong_phase",
        "benchmark_pays",
        "activations_peak",
        "memory_bound",
    }


def test_a_cpu_run_has_no_findings_about_devices() -> None:
    assert {f.rule for f in diagnose(cpu())} == {"dominant_layer"}


def test_the_dominant_layer_of_a_cpu_run_is_measured_in_operator_time() -> None:
    finding = one(cpu(), "dominant_layer")
    assert "operator time" in finding.title
    assert any(item.name == "share of operator time" for item in finding.evidence)
    assert not re.search("device|kernel time", f"{finding.title} {finding.explanation} {finding.advice}")


def test_nothing_but_failures() -> None:
    assert [f.rule for f in diagnose(all_failed())] == ["failed_runs", "dominant_layer"]


@pytest.mark.parametrize("source", [V0, V1], ids=["v0", "v1"])
def test_where_what_to_do_why_and_what_misleads_come_in_this_order(source: Report) -> None:
    assert [f.rule for f in diagnose(source) if f.severity == "high"] == [
        "dominant_layer", "benchmark_pays", "slow_algorithm", "wrong_phase",
    ]  # fmt: skip


# --- wrong_phase


@pytest.mark.parametrize(("source", "watch"), [(V0, "90.9 %"), (V1, "69.0 %")], ids=["v0", "v1"])
def test_a_loss_that_is_slow_on_the_stopwatch_only(source: Report, watch: str) -> None:
    finding = one(source, "wrong_phase")
    assert all(part in finding.title for part in ("loss", watch, "0.0 %"))
    assert finding.evidence[0].name == "loss by stopwatch"
    assert "loss.item()" in finding.explanation
    assert finding.severity == "high"


def test_the_range_of_the_stopwatch_over_all_configurations() -> None:
    assert "54.0 % to 95.0 %" in one(V0, "wrong_phase").explanation
    assert "42.0 % to 78.8 %" in one(V1, "wrong_phase").explanation


def test_both_clocks_of_all_phases_are_evidence() -> None:
    finding = one(V0, "wrong_phase")
    assert value(finding, "backward by kernel time").value == pytest.approx(63, abs=0.5)
    assert value(finding, "backward by stopwatch").value == pytest.approx(6, abs=0.5)
    assert value(finding, "forward by kernel time").value == pytest.approx(37, abs=0.5)


def test_clocks_within_twenty_points_are_no_finding() -> None:
    shares = (("forward", 25, 29), ("loss", 6, 2), ("backward", 58, 68), ("optimizer", 11, 1))
    phases = tuple(PhaseTime(phase=p, stopwatch_ns=w * MS, kernel_ns=k * MS) for p, w, k in shares)  # type: ignore[arg-type]
    assert silent(report(with_traced(baseline(V0), phases=phases)), "wrong_phase")


def test_the_host_does_not_wait_for_an_idle_device() -> None:
    run = baseline(V0)
    quarter = tuple(replace(m, kernel_ns=m.kernel_ns // 4) for m in run.modules)
    finding = one(report(with_traced(run, modules=quarter, unattributed_ns=0)), "wrong_phase")
    assert "loss.item()" not in finding.explanation


# --- dominant_layer


def test_v0_is_all_conv2() -> None:
    finding = one(V0, "dominant_layer")
    assert finding.paths == ("conv2",)
    assert "99.4 % of the forward pass's MACs" in finding.title
    assert (
        "30 x 50 x 16x16 x 256x256 = 25,165,824,000 multiply-accumulates (MACs) for each of 8 images"
        in finding.explanation
    )
    assert value(finding, "share of forward MACs").value == pytest.approx(99.363, abs=0.001)
    assert value(finding, "effective rate").value == pytest.approx(43e12, rel=0.03)


def test_savings_are_computed_from_the_counts_and_said_to_be() -> None:
    finding = one(V0, "dominant_layer")
    total, own = 8 * 25_327_125_920, 8 * 25_165_824_000
    assert value(finding, "forward MACs with half the kernel size").value == total - own + own // 4
    assert value(finding, "forward MACs with stride 2 before it").value == total - own + own // 4
    assert "computed from the counts, not measured" in finding.advice
    assert "3.93x fewer" in finding.advice


def test_v1_is_all_conv_r1_and_an_odd_kernel_is_halved_downwards() -> None:
    finding = one(V1, "dominant_layer")
    assert finding.paths == ("conv_r1",)
    assert "96.8 %" in finding.title
    assert "kernel size (7x7" in finding.advice
    total, own = 8 * 7_619_297_280, 8 * 7_372_800_000
    assert value(finding, "forward MACs with half the kernel size").value == total - own + own * 49 // 225


def test_a_small_kernel_is_not_halved() -> None:
    counts = static(conv("a", 64, 64, 3, 128), conv("b", 3, 4, 3, 64))
    finding = one(report(counts=counts), "dominant_layer")
    assert "half the kernel" not in finding.advice
    assert "stride 2" in finding.advice


def test_work_spread_evenly_is_no_finding() -> None:
    assert silent(report(counts=static(*(conv(f"c{i}", 16, 16, 3, 64) for i in range(4)))), "dominant_layer")


def test_a_model_of_one_layer_is_left_alone() -> None:
    assert silent(report(counts=static(conv("conv", 3, 64, 3, 256))), "dominant_layer")


def test_time_alone_is_enough_and_needs_no_count() -> None:
    run = with_traced(
        baseline(V0),
        modules=(
            TraceModule(path="slow", phase="forward", kernel_ns=65 * MS),
            TraceModule(path="quick", phase="forward", kernel_ns=35 * MS),
        ),
        unattributed_ns=0,
    )
    finding = one(report(run), "dominant_layer")
    assert finding.title == "slow takes 65.0 % of the device time"
    assert finding.paths == ("slow",)


def test_a_layer_that_is_no_convolution_gets_no_closed_form() -> None:
    linear = ModuleNode(path="fc", class_name="Linear", calls=1, forward=Cost(macs=10**9, flops=2 * 10**9))
    finding = one(report(counts=static(linear, conv("c", 1, 1, 1, 8))), "dominant_layer")
    assert all(words in finding.explanation for words in ("Linear", "1 GMACs"))
    assert "computed" not in finding.advice


# --- benchmark_pays


@pytest.mark.parametrize(
    ("source", "even", "saved"), [(V0, 443, 42.7), (V1, 1241, 35.2)], ids=["v0", "v1"]
)  # the table rounds its steps: it says 443 and 1242
def test_benchmark_pays_after_so_many_steps(source: Report, even: int, saved: float) -> None:
    finding = one(source, "benchmark_pays")
    assert value(finding, "break-even steps").value == even
    assert value(finding, "saving").value == pytest.approx(saved, abs=0.05)
    assert f"after {even:,} steps" in finding.title
    assert finding.severity == "high"
    assert finding.config == "benchmark"
    assert finding.trial is not None
    assert finding.trial.verdict == "better"


def test_the_searchs_memory_is_told() -> None:
    explanation = one(V1, "benchmark_pays").explanation
    assert all(size in explanation for size in ("1.474 GiB", "825 MiB"))


def test_the_other_pairs_are_told() -> None:
    explanation = one(V0, "benchmark_pays").explanation
    assert all(part in explanation for part in ('"benchmark+no-tf32"', "49.54 ms", "43.98 ms"))


def test_benchmark_never_pays_for_one_convolution() -> None:
    finding = one(single_conv(), "benchmark_pays")
    assert "no difference is established" in finding.title
    assert not any(item.name == "break-even steps" for item in finding.evidence)
    assert finding.severity == "info"
    assert finding.trial is not None
    assert finding.trial.verdict == "same"


def test_a_sure_saving_below_two_percent_never_pays() -> None:
    off = many(baseline(V0))
    barely = many(replace(V0.runs[1], step_ns=around(round(26.2 * 0.985 * MS), 0.0001), tuning_ns=MS))
    finding = one(report(off, barely), "benchmark_pays")
    assert "1.5 %" in finding.title
    assert value(finding, "break-even steps").value == "never"


def test_a_gain_within_the_a_a_gap_never_pays() -> None:
    off, on = baseline(V0), V0.runs[1]
    assert "breaks even after" in one(report(off, on, again(off, 1.05)), "benchmark_pays").title
    finding = one(report(off, on, again(off, 1.5)), "benchmark_pays")
    assert "no difference is established" in finding.title
    assert finding.trial is not None
    assert finding.trial.verdict == "same"


def test_benchmark_that_is_slower_is_told_so() -> None:
    off, slower = many(baseline(V0)), many(replace(V0.runs[1], step_ns=around(30 * MS)))
    finding = one(report(off, slower), "benchmark_pays")
    assert "14.5 % longer" in finding.title
    assert finding.severity == "low"
    assert finding.advice == "Leave torch.backends.cudnn.benchmark at False."


def test_an_unknown_tuning_cost_is_not_made_up() -> None:
    finding = one(report(baseline(V0), replace(V0.runs[1], tuning_ns=None), again(baseline(V0))), "benchmark_pays")
    assert not any(e.name in ("tuning", "break-even steps") for e in finding.evidence)
    assert "breaks even" not in finding.title


# --- slow_algorithm


def test_the_heuristic_selected_a_slow_algorithm_for_v0() -> None:
    picked, last = of_rule(diagnose(V0), "slow_algorithm")
    assert picked.paths == last.paths == ("conv2",)
    assert picked.severity == "high"
    assert all(part in picked.title for part in ("conv2", "implicit GEMM (CUTLASS)", "implicit GEMM (xmma)"))
    assert value(picked, "factor", "backward").value == pytest.approx(1.55, abs=0.02)
    assert value(picked, "factor", "forward").value == pytest.approx(2.2, abs=0.05)
    # of two configurations as fast as each other, the one that changes fewer flags is tried
    assert picked.config == "benchmark"


def test_v0_without_tf32_falls_back_to_direct_convolution() -> None:
    _, last = of_rule(diagnose(V0), "slow_algorithm")
    assert last.severity == "low"
    assert all(part in last.title for part in ("conv2", "direct convolution (older cuDNN kernels)", '"no-tf32"'))
    assert value(last, "effective rate", "forward").value == pytest.approx(18e12, rel=0.1)
    assert value(last, "share of fp32 peak", "forward").value == pytest.approx(29, abs=1)
    assert last.config == "default"
    assert last.trial is not None
    assert last.trial.verdict == "better"


def test_a_change_of_arithmetic_is_not_a_better_algorithm() -> None:
    # without TF32 both configurations run direct convolution; the TF32 runs are faster, in other arithmetic
    only_fp32 = report(*(r for r in V0.runs if "no-tf32" in r.config.name), counts=V0.static)
    (finding,) = of_rule(diagnose(only_fp32), "slow_algorithm")
    assert not any(e.name == "factor" for e in finding.evidence)


def test_fft_has_no_share_of_the_peak() -> None:
    only_fft = report(*(r for r in V1.runs if "no-tf32" in r.config.name), counts=V1.static)
    finding = one(only_fft, "dominant_layer")
    assert "FFT" in finding.explanation
    assert not any("peak" in e.name for e in finding.evidence)
    assert value(finding, "effective rate").value == pytest.approx(84e12, rel=0.2)


def test_small_layers_are_ignored() -> None:
    run = baseline(V0)
    small = (layer("small", "forward", 9 * MS, DIRECT), TraceModule(path="", phase="forward", kernel_ns=91 * MS))
    assert silent(report(with_traced(run, modules=small, unattributed_ns=0)), "slow_algorithm")
    large = (layer("large", "forward", 11 * MS, DIRECT), TraceModule(path="", phase="forward", kernel_ns=89 * MS))
    finding = one(report(with_traced(run, modules=large, unattributed_ns=0)), "slow_algorithm")
    assert "11 ms" in finding.explanation


def test_cudnn_off_is_not_blamed_for_its_fallback() -> None:
    off = V0.run("cudnn-off")
    assert off is not None
    assert silent(report(off), "slow_algorithm")


# --- workspace_peak


def on_small_device(run: ConfigRun) -> ConfigRun:
    """The run on a device whose memory its peak almost fills."""
    assert run.memory is not None
    assert run.environment is not None
    device_bytes = run.memory.peak_bytes * 10 // 9
    return replace(run, environment=replace(run.environment, device_memory_bytes=device_bytes))


def test_fft_workspace_not_activations_makes_v1s_peak_without_tf32() -> None:
    finding = one(V1, "workspace_peak")
    assert all(part in finding.title for part in ("FFT", "conv_r1", "1.184 GiB", '"no-tf32"'))
    assert "69 MiB" in finding.explanation
    assert finding.paths == ("conv_r1",)
    assert value(finding, "workspace").value == 1212 * MIB
    assert value(finding, "activations at the peak").value == 69 * MIB
    assert value(finding, "share of the peak").value == pytest.approx(80.4, abs=0.05)
    assert '"benchmark+no-tf32"' in finding.explanation


def test_v0s_peak_is_activations() -> None:
    assert silent(V0, "workspace_peak")


def test_workspace_larger_than_few_activations_counts() -> None:
    run = baseline(V1)
    assert run.memory is not None
    infer = replace(run, memory=replace(run.memory, saved_activations=MIB, workspace=60 * MIB))
    assert one(report(infer), "workspace_peak").severity == "low", "the device has 80 GiB"
    assert one(report(on_small_device(infer)), "workspace_peak").severity == "high"
    little = replace(run, memory=replace(run.memory, saved_activations=MIB, workspace=20 * MIB))
    assert silent(report(little), "workspace_peak")


def test_workspace_beside_more_activations_is_a_share_not_the_maker() -> None:
    run = baseline(V1)
    assert run.memory is not None
    shared = replace(run, memory=replace(run.memory, saved_activations=400 * MIB, workspace=200 * MIB))
    finding = one(report(on_small_device(shared)), "workspace_peak")
    assert "29.2 %" in finding.title
    assert finding.severity == "medium"


# --- determinism_price


def test_determinism_is_nearly_free_for_v0() -> None:
    finding = one(V0, "determinism_price")
    assert finding.severity == "info"
    assert all(words in finding.title for words in ("0.7 %", "no difference is established"))
    assert finding.config == "deterministic"


@pytest.mark.parametrize(
    ("step_ms", "severity"), [(26.21, "info"), (28.0, "low"), (29.5, "medium"), (52.4, "high"), (20.0, "info")]
)
def test_the_price_sets_the_severity(step_ms: float, severity: str) -> None:
    off, on = many(baseline(V0)), V0.runs[2]
    layers = tuple(
        replace(layer, kernels=()) for layer in on.modules
    )  # with the same kernels, only the host can differ
    dear = many(with_traced(on, step_ns=around(round(step_ms * MS), 0.0001), modules=layers, kernels=()))
    assert one(report(off, dear), "determinism_price").severity == severity


def test_the_layer_that_pays_is_named_with_both_algorithms() -> None:
    off, on = baseline(V0), V0.runs[2]
    slower = tuple(
        layer("conv2", "backward", 40 * MS, DIRECT) if m.path == "conv2" and m.phase == "backward" else m
        for m in on.modules
    )
    finding = one(
        report(off, with_traced(on, modules=slower, step_ns=around(50 * MS)), again(off)), "determinism_price"
    )
    assert finding.paths == ("conv2",)
    (change,) = [str(item.value) for item in finding.evidence if item.name == "algorithm"]
    assert change.index("implicit GEMM (xmma)") < change.index("direct convolution")


# --- tf32_in_use


def test_tf32_comes_with_error_and_speed() -> None:
    finding = one(V0, "tf32_in_use")
    assert finding.severity == "info"
    assert all(part in finding.explanation for part in ("0.0004", "1e-06", "49.54 ms", "26.2 ms"))
    assert (finding.config, finding.trial is not None and finding.trial.verdict) == ("no-tf32", "worse")
    assert finding.paths == ("conv2",)


def test_tf32_is_recognized_by_kernels_not_by_flags() -> None:
    run = replace(V0.runs[4], config=config("default"))
    assert silent(report(run), "tf32_in_use")  # allowed, but no kernel used it
    inert = replace(baseline(V0), config=config("no-tf32"))
    assert silent(report(inert), "tf32_in_use")
    finding = one(report(inert), "precision_inert")
    assert finding.severity == "high"
    assert '"no-tf32"' in finding.title


def test_a_large_tf32_error_has_higher_severity() -> None:
    assert one(report(replace(baseline(V0), max_relative_error=2e-2)), "tf32_in_use").severity == "medium"


@pytest.mark.parametrize(
    "about", [target(dtype="float16"), replace(target(), amp="bfloat16"), replace(target(), dtype="float64")]
)
def test_tf32_does_not_concern_other_types(about: object) -> None:
    assert silent(replace(V0, target=about), "tf32_in_use")  # type: ignore[arg-type]


def test_an_embedding_models_integers_do_not_hide_its_float32() -> None:
    assert not silent(replace(V0, target=target(dtype="int64")), "tf32_in_use")


def test_a_failed_float32_run_leaves_no_trial() -> None:
    failed = ConfigRun(config=config("no-tf32"), failure=Failure(kind="out_of_memory", message="full"))
    finding = one(report(baseline(V0), failed), "tf32_in_use")
    assert finding.config is None
    assert finding.trial is None


# --- uncounted_ops


def test_uncounted_ops_make_counts_lower_bounds() -> None:
    ops = (UncountedOp(op="aten.svd", calls=2, paths=("head",)), UncountedOp(op="my.op", calls=5, paths=("head", "")))
    finding = one(report(counts=static(conv("c", 1, 1, 1, 8), uncounted=ops)), "uncounted_ops")
    assert all(part in finding.title for part in ("lower bounds", "2 ops", "7 calls"))
    assert "my.op and aten.svd" in finding.explanation
    assert finding.paths == ("head", "")
    assert value(finding, "calls per step", "my.op").value == 5


# --- cudnn_off_fallback


def test_cudnn_off_is_compared_with_float32() -> None:
    finding = one(V0, "cudnn_off_fallback")
    assert value(finding, "step over that without it").value == pytest.approx(1.66, abs=0.005)
    assert value(finding, "median step", "no-tf32").value == 49.54 * MS
    assert "82.21 ms" in finding.explanation
    assert all(words in finding.explanation for words in ("26.2 ms", '"default"', "2.163 GiB"))
    assert "im2col" in finding.explanation
    assert finding.config is None


def test_cudnn_off_that_is_faster_is_advice() -> None:
    off = V0.run("cudnn-off")
    assert off is not None
    finding = one(
        report(baseline(V0), replace(off, step_ns=around(20 * MS)), again(baseline(V0))), "cudnn_off_fallback"
    )
    assert (finding.severity, finding.config) == ("low", "cudnn-off")
    assert finding.trial is not None
    assert finding.trial.verdict == "better"


# --- not_finite


def test_nan_of_the_baseline_is_on_the_first_screen() -> None:
    run = replace(V0.runs[0], nan_in=("loss", "gradients"))
    finding = one(report(run), "not_finite")
    assert finding.severity == "high"
    assert value(finding, "NaN in", "default").value == "loss and gradients"
    measured = replace(report(run), findings=tuple(diagnose(report(run))))
    sentences = with_verdict(measured).verdict.sentences
    assert sum("loss and gradients contain NaN" in sentence for sentence in sentences) == 1
    assert silent(report(V0.runs[0]), "not_finite")


def test_nan_under_another_configuration_is_of_this_configuration() -> None:
    other = replace(V0.runs[1], nan_in=("outputs",))
    finding = one(report(V0.runs[0], other), "not_finite")
    assert finding.severity == "medium"
    assert V0.runs[1].config.name in finding.title


def test_infinite_outputs_alone_may_be_a_mask() -> None:
    run = replace(V0.runs[0], infinity_in=("outputs",))
    assert one(report(run), "not_finite").severity == "info"


# --- not_repeatable


def test_differing_gradients_are_named_and_the_remedy_tried() -> None:
    finding = one(V0, "not_repeatable")
    assert "gradients" in finding.title
    assert "outputs" in finding.explanation
    assert "atomics" in finding.explanation
    assert finding.config == "deterministic"
    assert value(finding, "repeatable gradients", "default").value is False


def test_unrepeatable_deterministic_runs_have_higher_severity() -> None:
    strict = replace(V0.runs[2], repeatable=False, repeatable_gradients=False)
    finding = one(report(strict), "not_repeatable")
    assert finding.severity == "medium"
    assert "use_deterministic_algorithms" in finding.advice


def test_repeating_within_a_process_only_is_false_reproducibility() -> None:
    run = replace(V0.runs[3], output_digest="a", gradient_digest="b")
    other = replace(again(run), gradient_digest="c")
    finding = one(report(run, other), "false_reproducibility")
    assert finding.severity == "medium"  # though deterministic is set
    assert "different gradients" in finding.title
    assert silent(report(run, other), "not_repeatable")
    assert silent(report(run, again(run)), "false_reproducibility")


# --- startup_peak


def test_the_search_peaks_three_times_higher_than_v1_itself() -> None:
    finding = one(V1, "startup_peak")
    assert finding.severity == "low"
    assert value(finding, "factor").value == pytest.approx(1509 / 430)
    assert all(part in finding.title for part in ("1.474 GiB", "430 MiB", "3.51x"))


def test_a_first_peak_near_the_devices_memory_has_higher_severity() -> None:
    run = V1.runs[1]
    assert run.environment is not None
    small = replace(run, environment=replace(run.environment, device_memory_bytes=1600 * MIB))
    finding = one(report(baseline(V1), small), "startup_peak")
    assert finding.severity == "medium"
    assert "94.3 %" in finding.explanation


def test_a_first_step_a_little_higher_is_no_finding() -> None:
    assert silent(V0, "startup_peak")  # 559 to 503 MiB


# --- launch_bound, layout_overhead


def launch_bound(kernel_ns: int, busy: float) -> Report:
    step_ns = 5 * MS
    calls = round(step_ns * busy / kernel_ns)
    kernels = (TraceKernel(name="k", family="pointwise", calls=calls, kernel_ns=calls * kernel_ns),)
    run = with_traced(
        baseline(V0),
        step_ns=around(step_ns),
        modules=(TraceModule(path="", phase="forward", kernel_ns=calls * kernel_ns, kernels=kernels),),
        kernels=kernels,
        unattributed_ns=0,
        span_ns=step_ns,
        idle=(IdleTime(cause="launch latency", ns=step_ns - calls * kernel_ns),),
    )
    return report(run)


def test_short_kernels_on_an_idle_device_are_launch_bound() -> None:
    finding = one(launch_bound(4_000, 0.4), "launch_bound")
    assert "40.0 %" in finding.title
    assert "4 us" in finding.explanation
    assert "launch latency 3 ms" in finding.explanation
    assert value(finding, "device events").value == 500


def test_a_busy_device_is_not() -> None:
    assert silent(launch_bound(4_000, 0.91), "launch_bound")


def test_layout_conversions_above_a_twentieth() -> None:
    run = baseline(V0)
    for share, fires in ((4, False), (6, True)):
        layout = TraceKernel(name="nchwToNhwcKernel", family="conv:layout", calls=6, kernel_ns=share * MS)
        rest = TraceKernel(name="x", family=XMMA, calls=1, kernel_ns=(100 - share) * MS, math="tf32")
        modules = (TraceModule(path="conv2", phase="forward", kernel_ns=100 * MS, kernels=(layout, rest)),)
        source = report(with_traced(run, modules=modules, kernels=(layout, rest), unattributed_ns=0))
        assert silent(source, "layout_overhead") is not fires
        if fires:
            finding = one(source, "layout_overhead")
            assert "6.0 %" in finding.title
            assert "--channels-last" in finding.advice
            already = replace(source, target=replace(source.target, channels_last=True))
            assert "--channels-last" not in one(already, "layout_overhead").advice


# --- failed_runs


def test_failures_of_one_reason_are_told_together() -> None:
    finding = one(all_failed(), "failed_runs")
    assert finding.severity == "high"
    assert all(words in finding.title for words in ('"default"', '"benchmark"', '"no-tf32"', "out of memory"))
    assert value(finding, "failed configurations").value == 3
    assert "CUDA out of memory" in finding.explanation


def test_of_a_long_message_the_first_line_is_told() -> None:
    long = ConfigRun(config=config("default"), failure=Failure(kind="error", message="it broke.\n  at a\n  at b\n"))
    assert one(report(long), "failed_runs").explanation.endswith(": it broke.")
    mute = ConfigRun(config=config("default"), failure=Failure(kind="crash", message=""))
    assert "no message" in one(report(mute), "failed_runs").explanation


def test_nothing_measured_comes_before_all_else() -> None:
    reasons = (Failure(kind="error", message="one"), Failure(kind="timeout", message="two"))
    runs = tuple(ConfigRun(config=config(n), failure=f) for n, f in zip(("default", "benchmark"), reasons, strict=True))
    assert [f.rule for f in diagnose(report(*runs, counts=V1.static))] == [
        "failed_runs",
        "failed_runs",
        "dominant_layer",
    ]


def test_one_failure_leaves_the_others_standing() -> None:
    failed = ConfigRun(config=config("benchmark"), failure=Failure(kind="timeout", message="no answer in 300 s"))
    finding = one(report(baseline(V0), failed), "failed_runs")
    assert finding.severity == "medium"
    assert value(finding, "failed configurations").value == 1
    assert "no answer in 300 s." in finding.explanation


# --- on a CPU, and with a loader


def test_a_step_outside_operators_on_a_cpu() -> None:
    run = replace(baseline(cpu()), step_ns=around(2 * 7_000 * MS))
    finding = one(report(run), "host_overhead")
    assert "50.0 %" in finding.title
    assert silent(cpu(), "host_overhead")
    assert silent(V0, "host_overhead")


def test_a_step_that_waits_for_its_batch() -> None:
    run = baseline(cpu())
    for data_ms, severity in ((100, None), (300, "medium"), (1500, "high")):
        source = report(with_loading(run, data_ms / (1000 + data_ms)))
        assert [f.severity for f in of_rule(diagnose(source), "data_bound")] == ([severity] if severity else [])
    assert value(one(source, "data_bound"), "data, share of the time").value == pytest.approx(60)


def test_v1_family_fixture_is_what_it_says() -> None:
    run = V1.run("no-tf32")
    assert run is not None
    assert {k.family for k in run.kernels} >= {FFT, DIRECT, "gemm:complex"}


# --- the recorded runs of the case study, as a user reads them


@pytest.mark.parametrize(("report", "path"), [(v0_h100(), "conv2"), (v1_h100(), "conv_r1")], ids=["v0", "v1"])
def test_the_recorded_runs_are_read_in_the_order_a_user_needs(report: Report, path: str) -> None:
    times = [
        run.step_ns.median / 1e6 for run in (report.run("default"), report.run("benchmark")) if run and run.step_ns
    ]
    what, remedy, why, *others = diagnose(report)
    loss = next(finding for finding in others if not finding.claims)
    assert (what.rule, what.paths) == ("dominant_layer", (path,))
    assert (why.rule, why.paths) == ("slow_algorithm", (path,))
    assert remedy.rule == "benchmark_pays"
    assert "from {:.4g} ms to {:.4g} ms".format(*times) in remedy.title
    assert "breaks even after" in remedy.title
    assert remedy.trial is not None
    assert remedy.trial.verdict == "better"
    assert (loss.rule, loss.evidence[0].name) == ("wrong_phase", "loss by stopwatch")
