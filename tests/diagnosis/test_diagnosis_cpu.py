"""Findings on a CPU: they speak of operator time and of the machine, never of device time or kernels."""

from __future__ import annotations

import re
from dataclasses import replace

from diagnose_cases import CPU, MS, around, cpu
from diagnose_lab import moving, roofed, twice

from profiler_kit.diagnosis import diagnose
from profiler_kit.diagnosis.arithmetic import step_arithmetic
from profiler_kit.diagnosis.roofline import roofline
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.traces import IdleTime

GPU_WORDS = re.compile(
    r"\bdevice time\b|\bkernels?\b|\bnoisy device\b|\bon the device\b|\batomics\b|cudnn", re.IGNORECASE
)
RULES = {"host_overhead", "memory_bound", "not_repeatable", "two_processes", "unsteady"}


def unsteady_cpu() -> Report:
    """A memory-bound model on a noisy CPU: 6 ms of operators in steps of 11 ms, whose results differ from pass to pass."""
    source = moving(0.8)
    drifting = (10 * MS,) * 10 + (12 * MS,) * 10
    modules = tuple(replace(item, kernel_ns=item.kernel_ns * 6 // 10, kernels=()) for item in source.runs[0].modules)
    run = replace(
        source.runs[0], config=RunConfig(name="default"), environment=CPU, clock="operator", kernels=(), modules=modules,
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
    assert "operator time" in memory_bound.title
    assert memory_bound.evidence[0].name == "share of operator time"


def test_findings_on_a_gpu_speak_of_device_time() -> None:
    (finding,) = (finding for finding in diagnose(moving(0.8)) if finding.rule == "memory_bound")
    assert "device time" in finding.title
    assert finding.evidence[0].name == "share of device time"


def test_the_roofline_of_a_cpu_does_not_name_kernels() -> None:
    source, gpu = cpu(), moving(0.8)
    static = source.static or gpu.static
    assert static is not None
    roof = gpu.roofline[0].roof
    on_cpu = roofline(static, source.target, roof, source.runs[0])
    assert on_cpu.arithmetic == step_arithmetic(source.target, roof, source.runs[0]).reason
    assert "kernels" in roofline(static, gpu.target, roof, gpu.runs[0]).arithmetic


def test_traced_steps_show_python_where_traced_operators_exceed_the_timed_step() -> None:
    """Times of operators from a slow traced step leave no bound for the timed one."""
    source = cpu()
    run = source.runs[0]
    operators_ns = run.device_ns or 0
    traced = replace(
        run,
        step_ns=around(operators_ns // 2),
        span_ns=2 * operators_ns,
        idle=(IdleTime(cause="python", phase="forward", ns=operators_ns, gaps=90),),
    )
    (finding,) = (item for item in diagnose(replace(source, runs=(traced,))) if item.rule == "host_overhead")
    assert finding.severity == "medium"
    assert finding.weight == 0.5
    assert "traced step" in finding.title
    few = replace(traced, idle=(IdleTime(cause="python", phase="forward", ns=operators_ns // 2, gaps=90),))
    assert not [item for item in diagnose(replace(source, runs=(few,))) if item.rule == "host_overhead"]
