"""Operators on a CPU that are so short that their dispatch takes most of their time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.phrases import join_sentences, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.rules.optimizer_bound import optimizer_time
from profiler_kit.diagnosis.step_work import StepWork, total_calls, total_ns, trials_of, worst_step
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.units import percent, text

# The dispatch of an operator takes 1 to 10 us on a CPU, whatever its size.
MAX_MEAN_NS: Final = 10_000
# From half of the operator time on, most operators compute less than they cost.
MIN_OPERATOR_SHARE: Final = 0.50
# A step of fewer operators is not slow because of their number.
MIN_CALLS: Final = 50
# The gaps between the calls of operators and modules are of this length. Longer gaps are other Python code.
MAX_MEAN_GAP_NS: Final = 30_000
# From this share of the step on, the optimizer is the cause of the short operators, and its rule covers its part.
OPTIMIZER_SHARE: Final = 0.50
MIN_SHARE: Final = 0.25
LARGE_SHARE: Final = 0.50

DOC = f"""
Fires on a CPU if operators with a mean self time of at most {MAX_MEAN_NS // 1000} us take at least
{limit_percent(MIN_OPERATOR_SHARE)} of the operator time, there are at least {MIN_CALLS} calls per step, and they take at least
{limit_percent(MIN_SHARE)} of the step, with the short gaps of Python between them. `high` from {limit_percent(LARGE_SHARE)} on,
`medium` below. An optimizer that takes at least {limit_percent(OPTIMIZER_SHARE)} of the step does not count: rule
`optimizer_bound` covers it. Neither do operators that make batches (rule `data_bound`). In a trace the same limits hold. Rule
`launch_bound` covers devices.

Each call of an operator costs some microseconds of dispatch, autograd and Python, whatever its size. A step of short operators
takes this cost times their number, so a larger batch costs almost nothing.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SmallOperators:
    """Short operators per step: their calls, their time, that of the gaps between them, and the share of both of the step."""

    calls: int
    ns: int
    gaps_ns: int
    share: float


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding: for the baseline, or for the trace with the largest share of short operators."""
    if (worst := worst_step(report, _small_operators, lambda match: match.share)) is None:
        return
    work, match = worst.work, worst.match
    yield RULE.finding(
        severity="high" if match.share >= LARGE_SHARE else "medium",
        title=f"Short operators{_AND_PYTHON if match.gaps_ns else ''} take {percent(match.share)} of the step",
        explanation=join_sentences(
            f"{work.sentence_prefix}{match.calls:,} calls per step take {text(match.ns // match.calls, 'ns')} each.",
            f"Python between them takes {text(match.gaps_ns, 'ns')} per step." if match.gaps_ns else "",
            "Dispatch takes most of this time, whatever the size of the tensors.",
            worst.others_sentence(),
        ),
        advice="Use a larger batch: it costs almost no extra time here. Or use fewer calls: model = torch.compile(model), fewer "
        "small layers, one operator instead of a loop.",
        evidence=(
            Evidence(name="share of the step", value=100.0 * match.share, unit="percent", where=work.source),
            Evidence(name="calls per step", value=match.calls, unit="count", where=work.source),
            Evidence(name="time of short operators per step", value=match.ns, unit="ns", where=work.source),
        ),
        trials=trials_of(report, "batch=2x", "compile"),
        weight=match.share,
        claims=("busy", *(("idle:python",) if match.gaps_ns else ())),
    )


_AND_PYTHON: Final = " and the Python between them"


def _small_operators(work: StepWork) -> _SmallOperators | None:
    short = work.select(lambda item: work.clock == "operator" and item.ns <= MAX_MEAN_NS * item.calls)
    calls, ns = total_calls(short) // work.steps, total_ns(short)
    gaps = [part for part in work.idle if part.cause == "python" and 0 < part.ns <= MAX_MEAN_GAP_NS * part.gaps]
    if calls < MIN_CALLS or ns < MIN_OPERATOR_SHARE * work.busy_ns:
        return None
    ns -= min(ns, work.host_data_ns)
    gaps = [part for part in gaps if part.phase != "data"]
    optimizer = optimizer_time(work)
    if optimizer is not None and optimizer.share >= OPTIMIZER_SHARE:
        ns -= min(ns, optimizer.ns)
        gaps = [part for part in gaps if part.phase != "optimizer"]
    gaps_ns = sum(part.ns for part in gaps)
    share = work.share(ns + gaps_ns)
    if share < MIN_SHARE or not ns:
        return None
    return _SmallOperators(calls=calls, ns=ns // work.steps, gaps_ns=gaps_ns // work.steps, share=share)


RULE = Rule("small_operators", DOC, check, "cause", check, symptoms=("host_overhead",))
