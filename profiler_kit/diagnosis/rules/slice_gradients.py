"""Gradients of single rows that are written as full tensors: indexing in a loop."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.phrases import join_list, join_sentences, layer_name, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import StepWork, Work, step_works, total_calls, total_ns, work_claims, worst_step
from profiler_kit.diagnosis.work_groups import is_fill
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.units import percent, text

# A network without a loop indexes a few tensors. A loop over positions does it once for each of them.
MIN_CALLS: Final = 16
MIN_SHARE: Final = 0.10
LARGE_SHARE: Final = 0.40

_SLICE_BACKWARD: Final = re.compile(r"aten::(select|slice|narrow)_backward\Z")
_ADD: Final = re.compile(r"aten::add_\Z")

DOC = f"""
Fires if there are at least {MIN_CALLS} calls of `select_backward` or `slice_backward` per step, and they, their fills and the
additions of their results take at least {limit_percent(MIN_SHARE)} of the step. `high` from {limit_percent(LARGE_SHARE)} on,
`medium` below.

The gradient of `x[:, i]` is a tensor as large as `x`, with zeros everywhere else. A loop over all `i` fills one for each `i` and
adds them up, so its backward pass grows with the square of the length. `x.unbind(1)` returns all rows at once, and its backward
pass stacks their gradients once.

A record does not link an operator to its caller. Fills and additions count in proportion to the calls: at most one fill and one
addition for each slice. The rule needs the names of operators, so it reads CPU runs and traces with operator times.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SliceGradients:
    """The operators of the gradients of slices, the slices per step, their time, and their share of the step."""

    items: tuple[Work, ...]
    calls: int
    ns: int
    share: float


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding: for the baseline, or for the trace with the largest share of the gradients of slices."""
    if (worst := worst_step(step_works(report), slice_gradients, lambda match: match.share)) is None:
        return
    work, match = worst.step, worst.match
    paths = _modules(report)
    yield RULE.finding(
        severity="high" if match.share >= LARGE_SHARE else "medium",
        title=f"Indexing in a loop: the gradients of slices take {percent(match.share)} of the {work.facts.whole}",
        explanation=join_sentences(
            f"{work.prefix}The backward pass of {match.calls:,} slices{work.facts.each}, with the fills and the "
            f"additions of their gradients, takes {text(match.ns, 'ns')} {work.per_step}.",
            f"Most slices are those of {join_list([layer_name(path) for path in paths])}." if paths else "",
            "The gradient of each slice is as large as the whole tensor, and zero outside the slice.",
            worst.others_sentence(),
        ),
        advice="Split the tensor once, before the loop: `{code}` instead of x[:, i] in the loop. The backward pass then "
        "stacks the gradients once.",
        code="for row in x.unbind(1):",
        evidence=(
            Evidence(name="share of the step", value=100.0 * match.share, unit="percent", where=work.name),
            Evidence(name="slices per step", value=match.calls, unit="count", where=work.name),
            Evidence(name="time of their gradients", value=match.ns, unit="ns", where=work.name),
        ),
        paths=paths,
        weight=match.share,
        claims=work_claims(work, match.items),
    )


def _modules(report: Report | TraceReport) -> tuple[str, ...]:
    """Return the modules of the baseline with most slices, together at least half of them; empty for a trace."""
    run = report.baseline() if isinstance(report, Report) else None
    calls = Counter[str]()
    for layer in run.modules if run is not None else ():
        calls[layer.path] += sum(k.calls for k in layer.kernels if _SLICE_BACKWARD.match(k.name))
    paths: list[str] = []
    for path, _ in calls.most_common():
        if 2 * sum(calls[name] for name in paths) >= calls.total():
            break
        paths.append(path)
    return tuple(paths)


def slice_gradients(work: StepWork) -> _SliceGradients | None:
    """Return the gradients of slices in `work`; None below the limits."""
    if work.on_device:
        return None  # its operators have the time of kernels, and do not separate the fills of other gradients
    slices = work.select(lambda item: _SLICE_BACKWARD.match(item.name) is not None)
    calls = total_calls(slices)
    if calls < MIN_CALLS * work.steps:
        return None
    fills, additions = work.select(is_fill), work.select(lambda item: _ADD.match(item.name) is not None)
    ns = total_ns(slices) + sum(
        round(total_ns(items) * min(1.0, calls / max(item.calls for item in items)))
        for items in (fills, additions)
        if items
    )
    share = work.share(ns)
    if share < MIN_SHARE:
        return None
    return _SliceGradients(items=(*slices, *fills, *additions), calls=calls // work.steps, ns=ns, share=share)


RULE = Rule(
    "slice_gradients",
    DOC,
    check,
    "cause",
    "both",
)
