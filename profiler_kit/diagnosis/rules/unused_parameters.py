"""DistributedDataParallel that searches for unused parameters in every step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.phrases import join_sentences, limit_percent, plural
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import all_steps, worst_step
from profiler_kit.records.claims import idle_claims
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.records.traces import TraceOperator, TraceSummary
from profiler_kit.units import percent, text

# Source: torch/csrc/distributed/c10d/reducer.cpp, Reducer::search_unused_parameters.
SEARCH: Final = "torch.distributed.ddp.reducer::search_unused_parameters"
# The host's time of the search. Below this, the option costs nothing that a user could measure.
MEDIUM_SHARE: Final = 0.03

DOC = f"""
Fires on a trace with `{SEARCH}`: `DistributedDataParallel` was created with `find_unused_parameters=True`.

- `medium`: the search takes at least {limit_percent(MEDIUM_SHARE)} of the span on the host.
- `low`: below that.

The search visits the whole graph in every step, and an extra all-reduce follows. If each parameter gets a gradient in each step,
both are for nothing. The trace does not show whether parameters are unused.
"""


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace with the longest search."""
    if (
        worst := worst_step(
            all_steps(report), lambda step: _search(step.trace), lambda search: float(search.host_self_ns)
        )
    ) is None:
        return
    search, trace = worst.match, worst.step.trace
    share = min(1.0, search.host_self_ns / trace.span_ns)
    yield RULE.finding(
        severity="medium" if share >= MEDIUM_SHARE else "low",
        title=f"DDP searches for unused parameters: {percent(share)} of the time on the host",
        explanation=join_sentences(
            f"{worst.step.prefix}find_unused_parameters=True makes DDP visit the graph in each step: "
            f"{plural(search.calls, 'search', 'searches')}, {text(search.host_self_ns, 'ns')}, and an extra all-reduce.",
            worst.others_sentence(),
        ),
        advice="If all parameters get gradients in each step: {code}. If the set of unused ones never changes: "
        "static_graph=True.",
        code="DistributedDataParallel(model, find_unused_parameters=False)",
        evidence=(
            Evidence(name="search, share of the time", value=100.0 * share, unit="percent", where=worst.step.name),
            Evidence(name="searches", value=search.calls, unit="count", where=worst.step.name),
        ),
        weight=share,
        claims=idle_claims("op dispatch") if share >= MEDIUM_SHARE else (),
    )


def _search(trace: TraceSummary) -> TraceOperator | None:
    if trace.span_ns <= 0:
        return None
    return next((operator for operator in trace.operators if operator.name == SEARCH), None)


RULE = Rule("unused_parameters", DOC, check, "cause", "both")
