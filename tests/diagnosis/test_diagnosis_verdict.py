"""The verdict: cost, bound, cause, remedy and what is left; remedies by measured gain, then by estimate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
from sample_reports import count_only, failed, v0_cpu, v0_h100
from trace_reports import Idle, Phases, empty, host_only, ms, steps, trace, traces, two_ranks

from profiler_kit.diagnosis import diagnose_traces
from profiler_kit.diagnosis.phrases import advise
from profiler_kit.diagnosis.ranking import rank
from profiler_kit.diagnosis.verdict import verdict
from profiler_kit.records.claims import claim_of_text
from profiler_kit.records.configs import NamedValue
from profiler_kit.records.counts import Cost
from profiler_kit.records.report import Finding, Remedy, Report, TraceReport, Trial
from profiler_kit.records.samples import Interval, Outcome
from profiler_kit.records.traces import IdleTime, TraceOperator
from profiler_kit.records.verdict import Verdict


def finding(rule: str, advice: str = "", weight: float = 0.0, *claims: str, **more: Any) -> Finding:
    fields: dict[str, Any] = {"severity": "high", "title": f"{rule} title", "explanation": "", "evidence": ()} | more
    return Finding(rule=rule, advice=advice, weight=weight, claims=tuple(map(claim_of_text, claims)), **fields)


def judged(report: Report | TraceReport, *findings: Finding) -> Verdict:
    return verdict(replace(report, findings=rank(report, findings)))


def trial(report: Report, config: str, gain: float, outcome: Literal[Outcome, "failed"], **more: Any) -> Trial:
    run = report.baseline()
    assert run is not None
    assert run.step_ns is not None
    after = round(run.step_ns.median * (1 - gain / 100))
    fields: dict[str, Any] = {
        "gain_percent": gain,
        "gain_low_percent": gain - 1,
        "gain_high_percent": gain + 1,
        "tried": True,
    } | more
    return Trial(
        config=config, before_ns=run.step_ns, after_ns=Interval(median=after, low=after, high=after), verdict=outcome,
        **fields,
    )  # fmt: skip


def test_a_trace_of_a_device() -> None:
    report = traces(
        trace(
            phases={"forward": (10.0, 30.0, 0.0)},
            idle={("python", "forward"): 50.0, ("launch latency", "forward"): 20.0},
            **steps(4, 25.0, 20.0),
        )
    )
    result = judged(report, finding("launch_bound", "Launch less: torch.compile(model). More.", 0.6, "idle:python"))
    assert result.sentences == (
        "A step takes 25 ms on the device, the median of 3 steady steps.",
        "Bound by Python code on the host: the device is idle 70.0 % of the time (Python 50.0 %, launch latency 20.0 %).",
        "Main cause, 50.0 % of the time: launch_bound title [1].",
        "Try first: Launch less: torch.compile(model) [1].",
        "Not explained by any finding: 30.0 % busy and 20.0 % idle time.",
    )
    assert (result.bound, result.cause) == ("python", 1)
    assert result.busy == pytest.approx(0.3)
    assert result.unexplained_idle == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("idle", "phases", "bound"),
    [
        ({("waiting for data", "forward"): 60.0}, {"forward": (1.0, 30.0, 0.0)}, "data"),
        ({("synchronization", "forward"): 60.0}, {"forward": (1.0, 30.0, 0.0)}, "synchronization"),
        ({("op dispatch", "forward"): 60.0}, {"forward": (1.0, 30.0, 0.0)}, "launches"),
        ({("unknown", "forward"): 60.0}, {"forward": (1.0, 30.0, 0.0)}, "unknown"),
        ({("cold start", "forward"): 60.0}, {"forward": (1.0, 30.0, 0.0)}, "cold start"),
        ({("compilation", "forward"): 60.0}, {"forward": (1.0, 30.0, 0.0)}, "compilation"),
        ({("memory allocation", "forward"): 60.0}, {"forward": (1.0, 30.0, 0.0)}, "memory allocation"),
        ({}, {"forward": (1.0, 30.0, 0.0), "communication": (None, 60.0, 0.0)}, "communication"),
        ({("waiting for data", "forward"): 20.0}, {"forward": (1.0, 30.0, 0.0)}, "kernels"),
    ],
)
def test_the_largest_part_is_the_bound(idle: Idle, phases: Phases, bound: str) -> None:
    assert judged(traces(trace(idle=idle, phases=phases))).bound == bound


def test_idle_time_of_unknown_cause_asks_for_whole_steps() -> None:
    case = trace(phases={"forward": (1.0, 40.0, 0.0)}, idle={("unknown", "forward"): 60.0})
    assert any("torch.cuda.synchronize()" in sentence for sentence in judged(traces(case)).sentences)
    known = trace(phases={"forward": (1.0, 40.0, 0.0)}, idle={("python", "forward"): 60.0})
    assert not any("torch.cuda.synchronize()" in sentence for sentence in judged(traces(known)).sentences)


def test_times_of_replayed_kernels_are_not_judged() -> None:
    report = traces(replace(host_only(), hardware_counters=True))
    assert judged(report).sentences == (
        "The profiler replayed the kernels one by one to count their work: times are not those of the program.",
    )
    assert diagnose_traces(report) == ()


def test_marked_steps_that_cover_little_of_a_trace_are_compared_with_it() -> None:
    few = replace(host_only(), **(steps(1, 10.0, 20.0) | {"step_ns": None}))
    assert judged(traces(few)).sentences[0] == (
        "A step takes 20 ms on the host; the trace has no device work. The marked steps cover 20 ms of 90 ms."
    )


@pytest.mark.parametrize(("untraced_ms", "is_stated"), [(23.0, False), (22.0, True)])
def test_a_profiler_that_takes_a_tenth_of_the_step_is_stated(untraced_ms: float, is_stated: bool) -> None:
    ns = round(1e6 * untraced_ms)
    slowed = trace(**steps(4, 25.0, 25.0), untraced_step_ns=Interval(median=ns, low=ns // 2, high=2 * ns))
    assert ("without the profiler, about 22 ms (11 ms to 44 ms)" in judged(traces(slowed)).sentences[0]) is is_stated


def test_other_kinds_of_reports_have_a_cost() -> None:
    assert judged(traces(host_only())).sentences[:2] == (
        "The trace covers 90 ms of host time; it has no steps and no device work.",
        "Bound by computation (matrix products and convolutions): operators take 100.0 % of the time.",
    )
    assert judged(traces(empty())).sentences == ("The trace has no device events and no operators.",)
    assert judged(replace(traces(empty()), traces=())).sentences == ()
    assert judged(two_ranks()).sentences[0] == "A step of 2 ranks takes 31 ms."
    assert judged(count_only()).sentences == (
        "A training step needs 1.214 T FLOPs and 375.4 MiB of memory; counted, not run: no times.",
        "Most work: conv2 with 99.5 % of the FLOPs.",
    )
    counted = count_only()
    assert counted.static is not None
    even = replace(counted, static=replace(counted.static, loss=Cost(flops=99 * counted.static.step.flops)))
    assert judged(even).sentences[1] == "No layer has more than 1.0 % of the FLOPs."
    assert judged(failed()).sentences[0] == "Nothing was measured: all 2 runs failed (error and timeout)."
    assert judged(v0_cpu()).bound == "compute"
    assert judged(v0_h100()).bound == "compute"


def test_measured_gains_come_before_estimates_and_failures_are_apart() -> None:
    report = v0_h100()
    result = judged(
        report,
        finding("dominant_layer", "Change this layer first.", 0.9, "busy:module:conv2", paths=("conv2",)),
        finding("half_precision", "Use bfloat16.", 0.4, config="amp_bf16", computed=True),
        finding("launch_bound", "Capture it.", config="cuda_graph", trial=trial(report, "cuda_graph", 0.2, "same")),
        finding("benchmark_pays", "Set it.", config="benchmark", trial=trial(report, "benchmark", 38.0, "better")),
        finding("slow_algorithm", "Set it, too.", config="benchmark", trial=trial(report, "benchmark", 38.0, "better")),
        finding("layout_overhead", "Change the layout.", 0.1, config="channels_last",
                trial=trial(report, "channels_last", -5.0, "worse")),
        finding("wrong_phase", "Read this otherwise.", 0.9),
        finding("tf32_in_use", "Nothing to do.", 0.9, severity="info"),
    )  # fmt: skip
    assert [(r.status, r.findings, r.code) for r in result.remedies] == [
        ("tried", (4, 5), "torch.backends.cudnn.benchmark = True"),
        ("estimated", (1,), ""),
        ("estimated", (2,), 'with torch.autocast("cuda", dtype=torch.bfloat16):'),
    ]
    assert [r.config for r in result.without_gain] == ["cuda_graph", "channels_last"]
    best = "Best measured: torch.backends.cudnn.benchmark = True saves 38.0 % of the time (37.0 to 39.0 %) [4]."
    assert best in result.sentences


def test_the_baseline_itself_is_no_remedy() -> None:
    report = v0_h100()
    run = report.baseline()
    assert run is not None
    same = finding("slow_algorithm", "Set it.", 0.5, config=run.config.name)
    elsewhere = finding(
        "slow_algorithm", "Set it.", 0.5, config="benchmark+no-tf32",
        trial=replace(trial(report, "benchmark+no-tf32", 40.0, "better", tried=False),
                      before_ns=Interval(median=1, low=1, high=1)),
    )  # fmt: skip
    assert judged(report, same, elsewhere).remedies == ()


def test_a_trial_gives_its_effects() -> None:
    report = v0_h100()
    tried = trial(
        report, "benchmark", 10.0, "better", before_peak_bytes=2**20, after_peak_bytes=2**21, before_error=1e-3,
        after_error=2e-3,
    )  # fmt: skip
    (remedy,) = judged(report, finding("benchmark_pays", "Set it.", config="benchmark", trial=tried)).remedies
    assert (remedy.memory, remedy.numerics) == ("peak 1 MiB -> 2 MiB", "error 0.001 -> 0.002")


def test_the_smallest_estimates_are_left_out() -> None:
    report = traces(trace(phases={"forward": (1.0, 98.0, 0.0)}, idle={("python", "forward"): 2.0}))
    assert judged(report, finding("launch_bound", "Launch less.", 0.02, "idle:python")).remedies == ()


@pytest.mark.parametrize(
    ("sentences", "code", "action"),
    [
        ("Set {code}: cuDNN searches.", "torch.backends.cudnn.benchmark = True", "Set torch.backends.cudnn.benchmark = True"),
        ("Use float32: `{code}`. Look for more.", "model = model.float(); x = x.float()", "Use float32"),
        ("Split once, `{code}` instead of x[:, i]. Then wait.", "for row in x.unbind(1):",
         "Split once, `for row in x.unbind(1):` instead of x[:, i]"),
        ("Use a larger batch: 2.5 times. Then measure.", "", "Use a larger batch: 2.5 times"),
    ],
)  # fmt: skip
def test_advice_has_its_line_and_its_action(sentences: str, code: str, action: str) -> None:
    advice = advise(sentences, code)
    assert (advice.code, advice.action) == (code, action)
    assert code in advice.text


def test_an_estimate_is_the_affected_share_and_needs_time_of_its_own() -> None:
    report = traces(trace(phases={"forward": (1.0, 55.0, 0.0)}, idle={("python", "forward"): 45.0}))
    all_idle = finding("launch_bound", "Launch less.", 0.45, "idle")
    inside = finding("host_overhead", "Run less Python.", 0.4, "idle:python")
    assert [remedy.action for remedy in judged(report, inside, all_idle).remedies] == ["Launch less"]
    busy = finding("memory_bound", "Fuse.", 0.4, "busy", "idle:python")
    (first, second) = judged(report, busy, all_idle).remedies
    assert (first.gain_percent, second.gain_percent) == (45.0, 40.0)


def test_idle_time_without_a_finding_is_shown_as_unexplained() -> None:
    report = traces(trace(phases={"forward": (1.0, 40.0, 0.0)}, idle={("unknown", "forward"): 60.0}))
    assert judged(report).sentences[-1] == "Not explained by any finding: 60.0 % idle time."
    assert "Not explained" not in judged(traces(trace())).sentences[-1]


def cpu_step(*operators: tuple[str, str, float, int], python_ms: float = 0.0) -> TraceReport:
    """A trace of one step without a device: operators as (name, family, ms, calls)."""
    items = tuple(
        TraceOperator(name=name, family=family, calls=calls, kernel_ns=ms(total), host_self_ns=ms(total))
        for name, family, total, calls in operators
    )
    source = trace(
        "cpu.json", phases={"forward": (None, sum(total for _, _, total, _ in operators), 0.0)}, clock="host", devices=(),
        device_events=0, linked=0, streams=(), kernels=(), operators=items, **steps(1, 20.0, 0.0),
    )  # fmt: skip
    gaps = (IdleTime(cause="python", phase="forward", ns=ms(python_ms), gaps=1000),)
    return traces(replace(source, span_ns=source.busy_ns + ms(python_ms), idle=gaps))


def test_the_kinds_of_work_are_named_where_no_cause_stands_out() -> None:
    products = ("aten::mm", "gemm", 14.0, 10)
    result = judged(cpu_step(products, ("aten::relu", "pointwise", 5.5, 10), ("aten::sum", "reduce", 0.5, 1)))
    assert result.bound == "compute"
    assert result.sentences[2:] == (
        "No single cause stands out. The time goes to matrix product (70.0 %) and pointwise operations (27.5 %).",
    )
    mixed = judged(cpu_step(("aten::mm", "gemm", 8.0, 10), ("aten::relu", "pointwise", 12.0, 10)))
    assert mixed.bound == "operators"


def test_short_operators_bound_a_step() -> None:
    short = ("aten::view", "view", 6.0, 3000)
    assert judged(cpu_step(short, ("aten::mm", "gemm", 8.0, 10), python_ms=6.0)).bound == "overhead"
    assert judged(cpu_step(short, python_ms=9.0)).bound == "overhead", "the gaps between short calls are no other work"


def test_a_finding_about_little_time_is_not_the_main_cause() -> None:
    report = cpu_step(("aten::mm", "gemm", 19.6, 10), python_ms=0.4)
    result = judged(report, finding("host_overhead", "Run less Python.", 0.02, "idle:python", severity="high"))
    assert result.cause is None
    assert not any(sentence.startswith("Main cause") for sentence in result.sentences)
    assert any(sentence.startswith("No single cause stands out") for sentence in result.sentences)


def test_a_single_measured_run_asks_for_more_settings() -> None:
    report = v0_cpu()
    sentence = "Try first: a longer --budget, to measure other settings too (bfloat16, memory layout)."
    assert sentence in judged(report).sentences
    (run,) = report.runs
    other = replace(
        run, config=replace(run.config, name="amp_bf16", settings=(NamedValue(name="amp_bf16", value="on"),))
    )
    assert sentence not in judged(replace(report, runs=(run, other))).sentences


def test_a_measured_gain_shows_the_line_of_its_configuration() -> None:
    report = v0_h100()
    advice = "Use fewer calls: model = torch.compile(model)."
    tried = replace(trial(report, "batch=2x", 30.0, "better"), per_example=True)
    (remedy,) = judged(report, finding("host_overhead", advice, 0.5, config="batch=2x", trial=tried)).remedies
    assert remedy.code == "batch_size = 2 * batch_size"
    remedy = Remedy(setting="batch=2x", code="model = torch.compile(model)", text="Use fewer calls")
    untried = replace(finding("host_overhead", advice, 0.5, config="batch=2x"), remedy=remedy)
    (ranked,) = judged(report, untried).remedies
    assert ranked.code == remedy.code
    swept = finding(
        "optimizer_bound", "Use the fused optimizer.", 0.5, config="batch=2x", tries=("fused_optimizer", "batch=2x"),
        trial=trial(report, "fused_optimizer", 0.0, "same"),
    )  # fmt: skip
    (remedy,) = judged(report, swept).without_gain
    assert remedy.action == "Use the fused optimizer"
    assert remedy.code.endswith("fused=True)")
    other = replace(swept, trial=tried)
    (remedy,) = judged(report, other).remedies
    assert (remedy.action, remedy.config) == ('Use "batch=2x"', "batch=2x")
