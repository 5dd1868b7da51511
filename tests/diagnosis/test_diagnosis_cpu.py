"""Findings on a CPU: they speak of operator time and of the machine, never of device time or kernels."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from diagnose_cases import CPU, MS, around, conv, cpu, report, static, target
from diagnose_lab import moving, roofed, twice
from traced_runs import traced_run, with_traced

from profiler_kit.diagnosis import diagnose
from profiler_kit.diagnosis.roofline import roofline, step_arithmetic
from profiler_kit.records.configs import NamedValue, RunConfig
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.samples import Interval
from profiler_kit.records.traces import IdleTime, PhaseTime, TraceKernel, TraceModule

GPU_WORDS = re.compile(
    r"\bdevice time\b|\bkernels?\b|\bnoisy device\b|\bon the device\b|\batomics\b|cudnn", re.IGNORECASE
)
RULES = {"host_overhead", "memory_bound", "not_repeatable", "two_processes", "unsteady"}


def unsteady_cpu() -> Report:
    """A memory-bound model on a noisy CPU: 6 ms of operators in steps of 11 ms, whose results differ from pass to pass."""
    source = moving(0.8)
    drifting = (10 * MS,) * 10 + (12 * MS,) * 10
    modules = tuple(replace(item, kernel_ns=item.kernel_ns * 6 // 10, kernels=()) for item in source.runs[0].modules)
    run = with_traced(
        source.runs[0], config=RunConfig(name="default"), environment=CPU, clock="operator", modules=modules, kernels=(),
        steps_ns=drifting, repeatable=False, repeatable_gradients=False,
    )  # fmt: skip
    return roofed(replace(source, runs=(twice(run, 1.2),), roofline=()))


def words(finding: Finding) -> str:
    return "\n".join([finding.title, finding.explanation, finding.advice, *(piece.name for piece in finding.evidence)])


def test_findings_on_a_cpu_do_not_speak_of_devices() -> None:
    findings = [finding for finding in diagnose(unsteady_cpu()) if finding.rule in RULES]
    assert {finding.rule for finding in findings} == RULES
    for finding in findings:
        assert not GPU_WORDS.search(words(finding)), words(finding)
    (memory_bound,) = (finding for finding in findings if finding.rule == "memory_bound")
    assert "operator time" in memory_bound.explanation


def test_findings_on_a_gpu_speak_of_device_time() -> None:
    (finding,) = (finding for finding in diagnose(moving(0.6)) if finding.rule == "memory_bound")
    assert "device time" in finding.explanation


def test_the_roofline_of_a_cpu_does_not_name_kernels() -> None:
    source, gpu = cpu(), moving(0.8)
    static = source.static or gpu.static
    assert static is not None
    roof = gpu.roofline[0].roof
    on_cpu = roofline(static, source.target, roof, source.runs[0])
    assert on_cpu.arithmetic == step_arithmetic(source.target, roof, source.runs[0]).reason
    assert "kernels" in roofline(static, gpu.target, roof, gpu.runs[0]).arithmetic


def operators_of(name: str, family: str, total_ms: float, calls: int = 1) -> TraceKernel:
    return TraceKernel(name=f"aten::{name}", family=family, calls=calls, kernel_ns=round(total_ms * MS))


def step_on_cpu(
    *kernels: TraceKernel, step_ms: float, python_ms: float, gaps: int = 10, path: str = "a", **more: Any
) -> Report:
    """A report of one run whose traced step has `kernels`, and gaps of Python between them."""
    device_ns = sum(kernel.kernel_ns for kernel in kernels)
    step_ns = round(step_ms * MS)
    run = traced_run(
        config=RunConfig(name="default"),
        environment=CPU,
        steps_ns=(step_ns,) * 9,
        step_ns=Interval(median=step_ns, low=step_ns, high=step_ns),
        traced_steps=3,
        clock="operator",
        phases=(PhaseTime(phase="forward", kernel_ns=device_ns),),
        modules=(TraceModule(path=path, phase="forward", kernel_ns=device_ns, kernels=kernels),),
        kernels=kernels,
        unattributed_ns=0,
        span_ns=device_ns + round(python_ms * MS),
        idle=(IdleTime(cause="python", phase="forward", ns=round(python_ms * MS), gaps=gaps),),
    )
    return replace(report(with_traced(run, **more)), target=replace(target(), optimizer="rmsprop"))


def rule_finding(source: Report, rule: str) -> Finding | None:
    return next((finding for finding in diagnose(source) if finding.rule == rule), None)


def test_the_time_outside_operators_is_at_most_that_of_the_traced_steps() -> None:
    """A busy machine made the timed steps twice as long as the traced ones. That is not the work of the host."""
    product = operators_of("mm", "gemm", 20.0, 4)
    assert rule_finding(step_on_cpu(product, step_ms=40.0, python_ms=0.3), "host_overhead") is None
    outside = rule_finding(step_on_cpu(product, step_ms=40.0, python_ms=10.0), "host_overhead")
    assert outside is not None
    assert "33.3 % of the time" in outside.title


def test_the_optimizer_is_that_of_the_target() -> None:
    update = operators_of("mul_", "pointwise", 6.0, 60)
    source = step_on_cpu(
        update, operators_of("mm", "gemm", 4.0), step_ms=10.0, python_ms=0.0, gaps=0,
        phases=(PhaseTime(phase="optimizer", kernel_ns=6 * MS),),
        modules=(TraceModule(path="(optimizer)", phase="optimizer", kernel_ns=6 * MS, kernels=(update,)),
                 TraceModule(path="a", phase="forward", kernel_ns=4 * MS)),
    )  # fmt: skip
    finding = rule_finding(source, "optimizer_bound")
    assert finding is not None
    assert "RMSprop has no fused form" in finding.advice
    assert "foreach" not in finding.advice, "on a CPU, it is as slow as the loop"
    assert "fused_optimizer" not in finding.tries
    finding = rule_finding(replace(source, target=replace(source.target, optimizer="adamw")), "optimizer_bound")
    assert finding is not None
    assert "torch.optim.AdamW(model.parameters(), ..., fused=True)" in finding.advice
    assert finding.tries[0] == "fused_optimizer"


def test_a_setting_that_does_not_fit_the_model_is_a_low_finding() -> None:
    """A model that calls view() does not run in channels last. Nothing in it has to change."""
    source = step_on_cpu(operators_of("mm", "gemm", 9.0), step_ms=10.0, python_ms=1.0)
    failure = Failure(kind="target", message="net.py:19: view size is not compatible")
    setting = RunConfig(name="channels_last", settings=(NamedValue(name="channels_last", value="on"),))
    failed = ConfigRun(config=setting, environment=CPU, failure=failure)
    finding = rule_finding(replace(source, runs=(*source.runs, failed)), "failed_runs")
    assert finding is not None
    assert finding.severity == "low"
    assert finding.title == '"channels_last" does not work with this model'
    assert finding.advice.startswith("Leave this setting off")
    nothing = rule_finding(replace(source, runs=(failed,)), "failed_runs")
    assert nothing is not None
    assert nothing.severity == "high"


def test_a_layer_with_most_work_and_little_of_its_time_in_products_is_not_the_cause() -> None:
    counts = static(conv("a", 64, 64, 3, 64), conv("b", 4, 4, 1, 64))
    random = operators_of("bernoulli_", "random", 8.0, 4)
    product = operators_of("mkldnn_convolution", "conv", 2.0)
    source = replace(step_on_cpu(product, random, step_ms=10.0, python_ms=0.0, gaps=0), static=counts)
    assert rule_finding(source, "dominant_layer") is None
    assert rule_finding(source, "dominant_operator") is not None
    swapped = (replace(product, kernel_ns=random.kernel_ns), replace(random, kernel_ns=product.kernel_ns))
    source = replace(step_on_cpu(*swapped, step_ms=10.0, python_ms=0.0, gaps=0), static=counts)
    assert rule_finding(source, "dominant_layer") is not None


def test_flags_of_cudnn_do_not_matter_on_a_cpu() -> None:
    flag = NamedValue(name="benchmark", value="True")
    source = step_on_cpu(operators_of("mm", "gemm", 9.0), step_ms=10.0, python_ms=1.0)
    source = replace(source, target=replace(source.target, cudnn_flags=(flag,)))
    assert rule_finding(source, "cudnn_off_by_accident") is None
    on_gpu = replace(source, runs=(with_traced(source.runs[0], clock="kernel"),))
    assert rule_finding(on_gpu, "cudnn_off_by_accident") is not None


def test_traced_steps_show_python_where_traced_operators_exceed_the_timed_step() -> None:
    """Times of operators from a slow traced step leave no bound for the timed one."""
    source = cpu()
    run = source.runs[0]
    operators_ns = run.device_ns or 0
    traced = with_traced(
        run,
        step_ns=around(operators_ns // 2),
        span_ns=2 * operators_ns,
        idle=(IdleTime(cause="python", phase="forward", ns=operators_ns, gaps=90),),
    )
    (finding,) = (item for item in diagnose(replace(source, runs=(traced,))) if item.rule == "host_overhead")
    assert finding.severity == "medium"
    assert finding.weight == 0.5
    few = with_traced(traced, idle=(IdleTime(cause="python", phase="forward", ns=operators_ns // 2, gaps=90),))
    assert not [item for item in diagnose(replace(source, runs=(few,))) if item.rule == "host_overhead"]


@pytest.mark.parametrize(("step_ms", "fires"), [(3.0, False), (1.0, True)])
def test_traced_steps_that_take_much_longer_than_timed_ones_are_uncertain(step_ms: float, fires: bool) -> None:
    source = step_on_cpu(operators_of("mm", "gemm", 8.0), step_ms=step_ms, python_ms=1.0)
    finding = rule_finding(source, "unsteady")
    assert (finding is not None) is fires
    if finding is not None:
        assert "took 9x the timed ones" in finding.title
