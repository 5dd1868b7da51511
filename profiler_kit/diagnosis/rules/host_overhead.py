"""A step on a CPU that is spent outside the operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.rule import Rule, known
from profiler_kit.diagnosis.timing import ratio
from profiler_kit.diagnosis.traced import gravest
from profiler_kit.diagnosis.words import quoted, sentences, threshold
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.records.traces import TraceSummary
from profiler_kit.units import percent, text

# Python and dispatch cost some of every step; from here on they are worth more than a faster operator.
OUTSIDE: Final = 0.30

# In less than a millisecond there is no loop to speak of.
SHORTEST_NS: Final = 1_000_000

ADVICE: Final = (
    "Make operators larger or fewer: a larger batch, torch.compile, fewer small modules. A faster operator saves "
    "little here."
)

DOC = f"""
On a CPU, the operators' own time (from traced steps, which the profiler slows down) is less than {threshold(1 - OUTSIDE)} of the
median timed step. The rest is Python and autograd's bookkeeping. As tracing makes operators look slower than they
are, the share outside them is at least what is shown.

Fetching the batch is another matter (rule `data_bound`): the data phase is taken off the step, and the operators that ran in
it off the operators.

In a trace without work of a device it is the span from the first operator to the last, data loading included, over which the
operators' own times are less than {threshold(1 - OUTSIDE)}. Operators of several threads count together.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires once, for a baseline on the operator clock."""
    run = report.baseline()
    if run is None or run.clock != "operator" or run.step_ns is None or run.device_ns is None:
        return
    data_ns = sum(timing.stopwatch_ns or 0 for timing in run.phases if timing.phase == "data")
    step_ns = run.step_ns.median - data_ns
    operators_ns = run.device_ns - sum(item.kernel_ns for item in run.modules if item.phase == "data")
    inside = ratio(operators_ns, step_ns)
    if inside is None or 1.0 - inside <= OUTSIDE:
        return
    aside = ", data loading aside," if data_ns else ""
    step = "a step without its data loading" if data_ns else "a step"
    yield RULE.finding(
        severity="medium",
        title=f"At least {percent(1.0 - inside)} of the step{aside} is spent outside operators",
        explanation=f"In {quoted(run)} {step} takes {text(step_ns, 'ns')}, its operators {text(operators_ns, 'ns')}. The other "
        f"{text(step_ns - operators_ns, 'ns')} are Python, autograd's bookkeeping, and threads waiting.",
        advice=ADVICE,
        evidence=known(
            run.config.name,
            ("share outside operators", 100.0 * (1.0 - inside), "percent"),
            ("median step", run.step_ns.median, "ns"),
            ("data phase", data_ns or None, "ns"),
            ("operator time", operators_ns, "ns"),
        ),
        weight=(step_ns - operators_ns) / run.step_ns.median,
    )


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Fires for the trace, of those without a device, with the largest share outside operators."""
    if (seen := gravest(report, _outside, lambda share: share)) is None:
        return
    trace, share = seen.trace, seen.found
    yield RULE.finding(
        severity="medium",
        title=f"{percent(share)} of the time is spent outside operators",
        explanation=sentences(
            f"{seen.place}Over {text(trace.span_ns, 'ns')} operators take {text(trace.busy_ns, 'ns')}; the rest is Python, data "
            "loading, autograd's bookkeeping, the profiler itself, and threads waiting.",
            seen.others(),
        ),
        advice=ADVICE,
        evidence=(
            Evidence(name="share outside operators", value=100.0 * share, unit="percent", where=seen.where),
            Evidence(name="span", value=trace.span_ns, unit="ns", where=seen.where),
            Evidence(name="operator time", value=trace.busy_ns, unit="ns", where=seen.where),
        ),
        weight=share,
    )


def _outside(trace: TraceSummary) -> float | None:
    if trace.clock != "host" or trace.span_ns < SHORTEST_NS or not trace.busy_ns:
        return None
    share = 1.0 - trace.busy_ns / trace.span_ns
    return share if share > OUTSIDE else None


RULE = Rule("host_overhead", DOC, check, "place", check_trace)
