"""A step on a CPU that runs outside operators: Python, autograd, dispatch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.phrases import join_sentences, limit_percent, quoted_name
from profiler_kit.diagnosis.rule import Rule, evidence_of
from profiler_kit.diagnosis.timing import ratio
from profiler_kit.diagnosis.trace_facts import worst_trace
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.records.traces import TraceSummary
from profiler_kit.units import percent, text

# Every step has some Python and dispatch. Above this share, reducing them saves more than a faster operator.
MAX_OUTSIDE_SHARE: Final = 0.30

# A shorter span is not a training loop.
MIN_SPAN_NS: Final = 1_000_000

ADVICE: Final = (
    "Use larger or fewer operators: a larger batch, torch.compile, fewer small modules. A faster operator saves "
    "little here."
)

DOC = f"""
Fires on a CPU if the self time of operators is less than {limit_percent(1 - MAX_OUTSIDE_SHARE)} of the median timed step.
The rest is Python and autograd. Always `medium`.

- Operator time comes from traced steps. The profiler makes operators look slower than they are, so the share outside
  operators is a lower bound.
- Data loading is not counted: the data phase is subtracted from the step, and its operators from the operator time. Rule
  `data_bound` covers it.
- In a trace without device events, the limit holds for the span from the first operator to the last, including data loading.
  Times of operators in several threads add up.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for a baseline on a CPU."""
    run = report.baseline()
    if run is None or run.clock != "operator" or run.step_ns is None or run.device_ns is None:
        return
    data_ns = sum(timing.stopwatch_ns or 0 for timing in run.phases if timing.phase == "data")
    step_ns = run.step_ns.median - data_ns
    operators_ns = run.device_ns - sum(item.kernel_ns for item in run.modules if item.phase == "data")
    operator_share = ratio(operators_ns, step_ns)
    if operator_share is None or 1.0 - operator_share <= MAX_OUTSIDE_SHARE:
        return
    without_data = " (without data loading)" if data_ns else ""
    yield RULE.finding(
        severity="medium",
        title=f"Host overhead: at least {percent(1.0 - operator_share)} of the step{without_data} runs outside operators",
        explanation=f"In {quoted_name(run)}, a step{without_data} takes {text(step_ns, 'ns')}, and its operators take "
        f"{text(operators_ns, 'ns')}. Python, autograd and waiting threads take the other "
        f"{text(step_ns - operators_ns, 'ns')}.",
        advice=ADVICE,
        evidence=evidence_of(
            run.config.name,
            ("share outside operators", 100.0 * (1.0 - operator_share), "percent"),
            ("median step", run.step_ns.median, "ns"),
            ("data phase", data_ns or None, "ns"),
            ("operator time", operators_ns, "ns"),
        ),
        weight=(step_ns - operators_ns) / run.step_ns.median,
    )


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace without a device that has the largest share outside operators."""
    if (worst := worst_trace(report, _outside_share, lambda share: share)) is None:
        return
    trace, share = worst.trace, worst.match
    yield RULE.finding(
        severity="medium",
        title=f"Host overhead: {percent(share)} of the time is spent outside operators",
        explanation=join_sentences(
            f"{worst.sentence_prefix}Operators take {text(trace.busy_ns, 'ns')} of {text(trace.span_ns, 'ns')}. The "
            "rest is Python, data loading, autograd, the profiler and waiting threads.",
            worst.others_sentence(),
        ),
        advice=ADVICE,
        evidence=(
            Evidence(name="share outside operators", value=100.0 * share, unit="percent", where=worst.where),
            Evidence(name="span", value=trace.span_ns, unit="ns", where=worst.where),
            Evidence(name="operator time", value=trace.busy_ns, unit="ns", where=worst.where),
        ),
        weight=share,
    )


def _outside_share(trace: TraceSummary) -> float | None:
    if trace.clock != "host" or trace.span_ns < MIN_SPAN_NS or not trace.busy_ns:
        return None
    share = 1.0 - trace.busy_ns / trace.span_ns
    return share if share > MAX_OUTSIDE_SHARE else None


RULE = Rule("host_overhead", DOC, check, "place", check_trace)
