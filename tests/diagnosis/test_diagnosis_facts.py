"""Texts of findings state only what the recording holds: phases, steps, types, loaders, and what happens once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sample_reports import v0_cuda
from trace_reports import MS, ms, steps, trace, traces

from profiler_kit.diagnosis import diagnose_traces
from profiler_kit.diagnosis.facts import facts_of
from profiler_kit.diagnosis.verdict import verdict
from profiler_kit.records.report import Finding, TraceReport
from profiler_kit.records.traces import HostActivity, IdleTime, TraceOperator, TraceStep, TraceSummary


def findings_of(case: TraceSummary) -> dict[str, Finding]:
    return {finding.rule: finding for finding in diagnose_traces(traces(case))}


def ranked(case: TraceSummary) -> TraceReport:
    report = traces(case)
    return replace(report, findings=diagnose_traces(report))


def on_host(*operators: TraceOperator, phases: Any = None, python_ns: int = 0, **more: Any) -> TraceSummary:
    """A trace without a device and without steps, whose operators take all of the busy time."""
    busy_ns = sum(item.kernel_ns for item in operators)
    case = trace(
        phases=phases or {"other": (busy_ns / MS, busy_ns / MS, 0.0)}, clock="host", devices=(), device_events=0
    )
    gaps = (
        (IdleTime(cause="python", phase="other", ns=python_ns, gaps=299, longest_ns=python_ns // 299),)
        if python_ns
        else ()
    )
    made = replace(
        case,
        linked=0,
        streams=(),
        kernels=(),
        operators=operators,
        idle=gaps,
        idle_ns=python_ns,
        span_ns=busy_ns + python_ns,
    )
    return replace(made, **more)


SHORT = TraceOperator(name="aten::add", family="pointwise", calls=300, kernel_ns=1_200_000, host_self_ns=1_200_000)


def test_inference_without_steps_gets_no_advice_on_training_batches_or_steps() -> None:
    findings = findings_of(on_host(SHORT, python_ns=598_000))
    assert findings["host_overhead"].severity == "medium"
    for finding in findings.values():
        texts = f"{finding.title} {finding.explanation} {finding.advice}"
        for absent in ("DataLoader", "batch_size", "learning rate", "loss", "optimizer", "step"):
            assert absent not in texts, finding.rule


def test_training_with_marked_steps_is_called_so() -> None:
    phases = {"forward": (0.5, 0.5, 0.0), "backward": (0.5, 0.5, 0.0), "optimizer": (0.2, 0.2, 0.0)}
    case = on_host(SHORT, phases=phases, python_ns=598_000, **steps(3, 0.6, 0.6))
    findings = findings_of(case)
    assert "fused=True" in findings["host_overhead"].advice
    assert "fused" not in findings_of(replace(case, phases=case.phases[:2]))["host_overhead"].advice


def test_the_facts_of_a_report_and_of_traces() -> None:
    report = v0_cuda()
    facts = facts_of(report)
    assert (facts.trains, facts.has_optimizer, facts.whole, facts.each) == (True, True, "step", " per step")
    inference = facts_of(replace(report, target=replace(report.target, mode="infer", optimizer=None)))
    assert (inference.trains, inference.whole) == (False, "forward pass")
    typed = replace(SHORT, dtypes=("bfloat16", "float32"))
    case = on_host(typed, loaders=("_SingleProcessDataLoaderIter",))
    facts = facts_of(traces(case, on_host(SHORT)))
    assert (facts.has_loader, facts.half, facts.has_steps, facts.trains) == (True, True, False, False)
    assert (facts.lacks("float64"), facts.lacks("bfloat16"), facts_of(on_host(SHORT)).lacks("float64")) == (
        True,
        False,
        False,
    )


def gap(longest_ms: float, rest_ms: float, **more: Any) -> TraceSummary:
    """A trace of 2.8 ms of operators, with one long gap before the backward pass, and others."""
    work = TraceOperator(name="aten::addmm", family="gemm", calls=8, kernel_ns=ms(2.8), host_self_ns=ms(2.8))
    idle = (
        IdleTime(cause="python", phase="backward", ns=ms(longest_ms + rest_ms / 2), gaps=6, longest_ns=ms(longest_ms)),
        IdleTime(cause="python", phase="forward", ns=ms(rest_ms / 2), gaps=6, longest_ns=ms(rest_ms / 8)),
    )
    total = ms(longest_ms + rest_ms)
    return replace(on_host(work), idle=idle, idle_ns=total, span_ns=ms(2.8) + total, **more)


def marked(*idle_ms: float) -> dict[str, Any]:
    made = tuple(
        TraceStep(number=i, host_ns=ms(idle + 1), device_ns=None, kernel_ns=ms(1), idle_ns=ms(idle), steady=True)
        for i, idle in enumerate(idle_ms, start=1)
    )
    return {"steps": made, "host_step_ns": made[-1].host_ns}


def call(source: str) -> HostActivity:
    return HostActivity(
        name=source, source=source, phase="", calls=1, ns=ms(10.7), longest_ns=ms(10.7), long_ns=ms(10.7)
    )


@pytest.mark.parametrize(
    ("case", "rule"),
    [
        (gap(10.7, 0.03), "cold_start"),
        (gap(10.7, 0.03, **marked(10.71, 0.01, 0.01)), "cold_start"),
        (gap(10.7, 0.03, activities=(call(""),)), "cold_start"),
        # in a later step, in each step, or in a call of the program: no cold start
        (gap(10.7, 0.03, **marked(0.01, 10.71, 0.01)), "host_overhead"),
        (gap(10.7, 21.4, **marked(10.7, 10.7, 10.7)), "host_overhead"),
        (gap(10.7, 0.03, activities=(call("serve.py(3): tokenize"),)), "host_overhead"),
        # the events in the gap may have been removed from the file
        (gap(10.7, 0.03, host_events=10, missing_events=90), "host_overhead"),
    ],
)
def test_one_gap_that_happens_once_is_a_cold_start_and_no_steady_share(case: TraceSummary, rule: str) -> None:
    serious = [finding.rule for finding in diagnose_traces(traces(case)) if finding.severity in ("high", "medium")]
    assert serious[0] == rule
    assert len({"cold_start", "host_overhead"} & set(serious)) == 1


def test_a_cold_start_bounds_the_recording_and_asks_for_a_warm_up() -> None:
    said = verdict(ranked(gap(10.7, 0.03)))
    assert said.bound == "cold start"
    assert "warmup=" in said.remedies[0].code
    assert verdict(ranked(gap(10.7, 21.4, **marked(10.7, 10.7, 10.7)))).bound == "python"


def test_short_gaps_beside_a_cold_one_keep_their_own_share() -> None:
    findings = findings_of(gap(40.0, 8.0))
    assert findings["cold_start"].weight == pytest.approx(40.0 / 50.8)
    assert "host_overhead" not in findings, "8 of 50.8 ms are less than the limit"
    assert findings_of(gap(40.0, 13.0))["host_overhead"].weight == pytest.approx(13.0 / 55.8)
