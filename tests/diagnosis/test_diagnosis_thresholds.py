"""Each rule on both sides of each of its limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from diagnose_cases import (
    CUTLASS,
    DIRECT,
    MIB,
    MS,
    XMMA,
    around,
    conv,
    cpu,
    layer,
    of_rule,
    report,
    static,
    v0,
    v1,
    value,
    with_loading,
)
from traced_runs import with_traced

from profiler_kit.diagnosis import diagnose
from profiler_kit.records.experiments import Repeat
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import IdleTime, PhaseTime, TraceKernel, TraceModule

DEFAULT, BENCHMARK, DETERMINISTIC = v0().runs[:3]


def first(source: Report, rule: str) -> Finding | None:
    return next(iter(of_rule(diagnose(source), rule)), None)


def severity(source: Report, rule: str) -> str | None:
    found = first(source, rule)
    return found.severity if found is not None else None


def at(run: ConfigRun, step_ms: float) -> ConfigRun:
    """`run` with a step that kernels fill, in so many equal processes that small differences are established."""
    step_ns = around(round(step_ms * MS), 0.00001)
    kernel_ns = sum(item.kernel_ns for item in run.modules)
    repeats = (Repeat(step_ns=step_ns),) * 30
    return with_traced(run, step_ns=step_ns, further_repeats=repeats, unattributed_ns=step_ns.median - kernel_ns)


@pytest.mark.parametrize(
    ("saved", "expected"), [(0.021, "low"), (0.049, "low"), (0.051, "medium"), (0.199, "medium"), (0.201, "high")]
)
def test_benchmark_by_saving(saved: float, expected: str) -> None:
    source = report(at(DEFAULT, 100), at(BENCHMARK, 100 * (1 - saved)))
    assert severity(source, "benchmark_pays") == expected


@pytest.mark.parametrize(("saved", "pays"), [(0.019, False), (0.021, True)])
def test_a_saving_has_to_be_worth_it(saved: float, pays: bool) -> None:
    found = first(report(at(DEFAULT, 100), at(BENCHMARK, 100 * (1 - saved))), "benchmark_pays")
    assert found is not None
    assert (value(found, "break-even steps").value != "never") is pays


@pytest.mark.parametrize(
    ("price", "expected"),
    [(0.019, "info"), (0.021, "low"), (0.099, "low"), (0.101, "medium"), (0.49, "medium"), (0.51, "high")],
)
def test_determinism_by_price(price: float, expected: str) -> None:
    assert severity(report(at(DEFAULT, 100), at(DETERMINISTIC, 100 * (1 + price))), "determinism_price") == expected


def test_a_setting_is_compared_by_memory_too() -> None:
    off = v0().run("cudnn-off")
    assert off is not None
    found = first(report(DEFAULT, replace(off, peak_allocated_bytes=533 * MIB)), "cudnn_off_fallback")
    assert found is not None
    assert [item.value for item in found.evidence if item.name == "peak"] == [480 * MIB, 533 * MIB]


@pytest.mark.parametrize(("share", "expected"), [(19, None), (21, "medium"), (49, "medium"), (51, "high")])
def test_data_by_share(share: int, expected: str | None) -> None:
    run = cpu().runs[0]
    assert severity(report(with_loading(run, share / 100)), "data_bound") == expected


@pytest.mark.parametrize(("channels", "fires"), [(190, False), (210, True)])
def test_dominance_by_work(channels: int, fires: bool) -> None:
    # one layer of `channels` against one of 50: 79.2 % and 80.8 %
    source = report(counts=static(conv("big", 1, channels, 1, 8), conv("small", 1, 50, 1, 8)))
    assert (first(source, "dominant_layer") is not None) is fires


@pytest.mark.parametrize(("share", "fires"), [(59, False), (61, True)])
def test_dominance_by_time(share: int, fires: bool) -> None:
    modules = (
        TraceModule(path="big", phase="forward", kernel_ns=share * MS),
        TraceModule(path="small", phase="forward", kernel_ns=(100 - share) * MS),
    )
    source = report(with_traced(DEFAULT, modules=modules, unattributed_ns=0))
    assert (first(source, "dominant_layer") is not None) is fires


@pytest.mark.parametrize(
    ("spent", "expected"), [(19, "low"), (24, "low"), (26, "medium"), (49, "medium"), (51, "high")]
)
def test_dominance_is_as_grave_as_the_time_it_takes(spent: int, expected: str) -> None:
    modules = (
        TraceModule(path="big", phase="forward", kernel_ns=spent * MS),
        TraceModule(path="small", phase="forward", kernel_ns=(100 - spent) * MS),
    )
    counts = static(conv("big", 64, 64, 5, 64), conv("small", 1, 1, 1, 8))
    found = first(report(with_traced(DEFAULT, modules=modules, unattributed_ns=0), counts=counts), "dominant_layer")
    assert found is not None
    assert found.severity == expected
    assert ("Change this layer first" in found.advice) is (expected == "high")
    assert found.computed is (expected != "low")


def test_dominance_without_a_measurement_is_grave() -> None:
    source = report(counts=static(conv("big", 64, 64, 5, 64), conv("small", 1, 1, 1, 8)))
    assert severity(source, "dominant_layer") == "high"


@pytest.mark.parametrize(("path", "said"), [("0", "Layer 0 does"), ("1.2", "Layer 1.2 does"), ("net.0", "net.0 does")])
def test_a_layer_called_by_a_number_is_no_figure(path: str, said: str) -> None:
    found = first(report(counts=static(conv(path, 64, 64, 5, 64), conv("s", 1, 1, 1, 8))), "dominant_layer")
    assert found is not None
    assert found.title.startswith(said)


@pytest.mark.parametrize(("kernel", "halved"), [(4, False), (5, True)])
def test_halving_by_kernel_size(kernel: int, halved: bool) -> None:
    found = first(report(counts=static(conv("big", 64, 64, kernel, 64), conv("s", 1, 1, 1, 8))), "dominant_layer")
    assert found is not None
    assert ("half the kernel" in found.advice) is halved


@pytest.mark.parametrize(("inside", "fires"), [(0.81, False), (0.79, True)])
def test_host_overhead_by_share(inside: float, fires: bool) -> None:
    run = cpu().runs[0]
    assert run.device_ns is not None
    source = report(replace(run, step_ns=around(round(run.device_ns / inside))))
    assert (first(source, "host_overhead") is not None) is fires


@pytest.mark.parametrize(("outside", "fires"), [(0.19, False), (0.21, True)])
def test_fetching_the_batch_is_no_host_overhead(outside: float, fires: bool) -> None:
    run = cpu().runs[0]
    assert run.device_ns is not None
    rest_ns = round(run.device_ns / (1 - outside))
    loading = TraceModule(path="(data)", phase="data", kernel_ns=7 * MS)  # collating runs operators too
    slow = with_traced(
        run,
        step_ns=around(3 * rest_ns),
        phases=(*run.phases, PhaseTime(phase="data", stopwatch_ns=2 * rest_ns)),
        modules=(*run.modules, loading),
    )
    found = first(report(slow), "host_overhead")
    assert (found is not None) is fires
    if found is not None:
        assert "7.0 %" in found.title
        assert found.weight == pytest.approx(0.21 / 3, rel=0.01)


@pytest.mark.parametrize(
    ("busy", "expected"),
    [(0.59, "high"), (0.62, "medium"), (0.79, "medium"), (0.81, "low"), (0.89, "low"), (0.91, None)],
)
def test_launching_by_share(busy: float, expected: str | None) -> None:
    kernel = TraceKernel(name="k", family="pointwise", calls=1000, kernel_ns=9_900_000)
    modules = (TraceModule(path="", phase="forward", kernel_ns=kernel.kernel_ns, kernels=(kernel,)),)
    span_ns = round(kernel.kernel_ns / busy)
    idle = (IdleTime(cause="op dispatch", ns=span_ns - kernel.kernel_ns),)
    run = with_traced(
        DEFAULT,
        modules=modules,
        kernels=(kernel,),
        unattributed_ns=0,
        span_ns=span_ns,
        idle=idle,
        step_ns=around(span_ns),
    )
    found = first(report(run), "launch_bound")
    assert (found.severity if found is not None else None) == expected
    if found is not None:
        assert found.title.startswith("Partly launch-bound" if busy > 0.6 else "Launch-bound")
        assert (found.tries, found.config) == (("cuda_graph", "compile", "batch=2x", "fused_optimizer"), "cuda_graph")


def two_layers(slow_ns: int, family: str, whole_ns: int) -> tuple[TraceModule, ...]:
    return (layer("c", "forward", slow_ns, family), TraceModule(path="", phase="forward", kernel_ns=whole_ns - slow_ns))


@pytest.mark.parametrize(("times", "fires"), [(1.45, False), (1.55, True)])
def test_a_bad_pick_by_factor(times: float, fires: bool) -> None:
    slow = with_traced(DEFAULT, modules=two_layers(60_000, XMMA, 100_000), unattributed_ns=0)
    quick = with_traced(BENCHMARK, modules=two_layers(round(60_000 / times), CUTLASS, 100_000), unattributed_ns=0)
    assert (first(report(slow, quick), "slow_algorithm") is not None) is fires


@pytest.mark.parametrize(("share", "expected"), [(9, None), (11, "medium"), (19, "medium"), (21, "high")])
def test_a_last_resort_by_share(share: int, expected: str | None) -> None:
    run = with_traced(DEFAULT, modules=two_layers(share * 1000, DIRECT, 100_000), unattributed_ns=0)
    assert severity(report(run), "slow_algorithm") == expected


@pytest.mark.parametrize(("better", "tried"), [(1.04, "benchmark"), (1.06, "benchmark+deterministic")])
def test_fewer_flags_win_among_equals(better: float, tried: str) -> None:
    def changed(run: ConfigRun, ns: float, family: str) -> ConfigRun:
        return with_traced(run, modules=two_layers(round(ns), family, 100_000), unattributed_ns=0)

    both = v0().runs[3]
    source = report(
        changed(DEFAULT, 60_000, XMMA), changed(both, 20_000, CUTLASS), changed(BENCHMARK, 20_000 * better, CUTLASS)
    )
    found = first(source, "slow_algorithm")
    assert found is not None
    assert found.config == tried


@pytest.mark.parametrize(("factor", "fires"), [(1.29, False), (1.31, True)])
def test_start_up_by_factor(factor: float, fires: bool) -> None:
    run = replace(BENCHMARK, peak_allocated_bytes=1000 * MIB, first_step_peak_bytes=round(1000 * factor) * MIB)
    assert (first(report(run), "startup_peak") is not None) is fires


@pytest.mark.parametrize(("of_device", "expected"), [(0.79, "low"), (0.81, "medium")])
def test_start_up_by_the_devices_memory(of_device: float, expected: str) -> None:
    assert BENCHMARK.environment is not None
    place = replace(BENCHMARK.environment, device_memory_bytes=round(2000 * MIB / of_device))
    run = replace(BENCHMARK, environment=place, peak_allocated_bytes=1000 * MIB, first_step_peak_bytes=2000 * MIB)
    assert severity(report(DEFAULT, run), "startup_peak") == expected


@pytest.mark.parametrize(
    ("workspace", "saved", "fires"),
    [(19, 50, False), (21, 50, True), (6, 5, True), (4, 3, False), (6, 7, False)],
)
def test_workspace_by_share_and_by_activations(workspace: int, saved: int, fires: bool) -> None:
    memory = DEFAULT.memory
    assert memory is not None
    run = replace(
        DEFAULT,
        memory=replace(memory, peak_bytes=100 * MIB, workspace=workspace * MIB, saved_activations=saved * MIB),
    )
    assert (first(report(run), "workspace_peak") is not None) is fires


@pytest.mark.parametrize(("peak", "named"), [(0.91, False), (0.89, True)])
def test_a_way_out_of_the_peak_has_to_be_clearly_lower(peak: float, named: bool) -> None:
    hog = v1().runs[2]
    lower = replace(v1().runs[0], peak_allocated_bytes=round(1508 * peak) * MIB)
    found = first(report(lower, hog), "workspace_peak")
    assert found is not None
    assert (f'"{lower.config.name}"' in found.advice) is named


@pytest.mark.parametrize(("points", "fires"), [(19, False), (21, True)])
def test_the_clocks_by_points(points: int, fires: bool) -> None:
    phases = (
        PhaseTime(phase="forward", stopwatch_ns=70 - points, kernel_ns=70),
        PhaseTime(phase="loss", stopwatch_ns=30 + points, kernel_ns=30),
    )
    run = with_traced(DEFAULT, phases=phases, modules=(), kernels=(), unattributed_ns=20 * MS)
    assert (first(report(run), "wrong_phase") is not None) is fires


@pytest.mark.parametrize(("busy", "waits"), [(0.59, False), (0.61, True)])
def test_the_host_waits_for_a_busy_device(busy: float, waits: bool) -> None:
    assert DEFAULT.device_ns is not None
    found = first(report(replace(DEFAULT, step_ns=around(round(DEFAULT.device_ns / busy)))), "wrong_phase")
    assert found is not None
    assert ("loss.item()" in found.explanation) is waits
