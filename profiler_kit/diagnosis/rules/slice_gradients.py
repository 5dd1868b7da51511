"""Gradients of single rows that are written as full tensors: indexing in a loop."""

from __future__ import annotations

import re
from typing import Final

from profiler_kit.diagnosis.phrases import join_list, layer_name, limit_percent
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork, Work, total_calls, total_ns, work_claims
from profiler_kit.diagnosis.work_groups import is_fill
from profiler_kit.records.report import Report, TraceReport
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


def _slice_gradients(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    """Return the gradients of slices in `work`; None below the limits."""
    if work.on_device:
        return None  # its operators have the time of kernels, and do not separate the fills of other gradients
    slices = work.select(_is_slice_backward)
    calls = total_calls(slices)
    if calls < MIN_CALLS * work.steps:
        return None
    fills, additions = work.select(is_fill), work.select(lambda item: _ADD.match(item.name) is not None)
    ns = total_ns(slices) + sum(
        round(total_ns(items) * min(1.0, calls / max(item.calls for item in items)))
        for items in (fills, additions)
        if items
    )
    share, paths = work.share(ns), _modules(work)
    if share < MIN_SHARE:
        return None
    return StepPart(
        share=share,
        severity=severity_of(share, high=LARGE_SHARE),
        title=f"Indexing in a loop: the gradients of slices take {percent(share)} of the {work.facts.whole}",
        sentences=(
            f"The backward pass of {calls // work.steps:,} slices{work.facts.each}, with the fills and the additions of their "
            f"gradients, takes {text(ns, 'ns')} {work.per_step}.",
            f"Most slices are those of {join_list([layer_name(path) for path in paths])}." if paths else "",
            "The gradient of each slice is as large as the whole tensor, and zero outside the slice.",
        ),
        advice="Split the tensor once, before the loop: `{code}` instead of x[:, i] in the loop. The backward pass then "
        "stacks the gradients once.",
        code="for row in x.unbind(1):",
        measures=(("slices per step", calls // work.steps, "count"), ("time of their gradients", ns, "ns")),
        paths=paths,
        claims=work_claims(work, (*slices, *fills, *additions)),
    )


def _is_slice_backward(item: Work) -> bool:
    return _SLICE_BACKWARD.match(item.name) is not None


def _modules(work: StepWork) -> tuple[str, ...]:
    """Return the modules with most time of slices, together at least half of it."""
    times, paths = work.layers(_is_slice_backward), list[str]()
    for path in times:
        if 2 * sum(times[name] for name in paths) >= sum(times.values()):
            break
        paths.append(path)
    return tuple(paths)


RULE = step_rule("slice_gradients", DOC, _slice_gradients)
