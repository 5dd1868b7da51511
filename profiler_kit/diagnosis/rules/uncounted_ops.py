"""Ops without a FLOP formula, which make every count a lower bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.phrases import join_list, join_sentences, layer_name, plural
from profiler_kit.diagnosis.rule import Rule, new_finding
from profiler_kit.records.report import Evidence, Finding, Report

# More names would fill the screen. The table of uncounted ops lists all of them.
MAX_LISTED_OPS: Final = 8

DOC = """
Fires if the model has any op without a FLOP formula, because a single op can be most of the model. Always `medium`.

The FLOPs of these ops are unknown, not zero. FLOP figures that include them are lower bounds, and so are rates (FLOP/s).
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding."""
    if report.static is None or not report.static.uncounted:
        return
    ops = sorted(report.static.uncounted, key=lambda op: (-op.calls, op.op))
    calls = sum(op.calls for op in ops)
    paths = tuple(dict.fromkeys(path for op in ops for path in op.paths))
    names = join_list([op.op for op in ops], most=MAX_LISTED_OPS)
    yield new_finding(
        severity="medium",
        title=f"FLOPs are lower bounds: {plural(len(ops), 'op has', 'ops have')} no FLOP formula "
        f"({plural(calls, 'call')} per step)",
        explanation=join_sentences(
            f"profiler_kit has no formula for {names}.",
            f"{'It runs' if len(ops) == 1 else 'They run'} in {join_list([layer_name(path) for path in paths])}."
            if paths
            else "",
            "FLOPs, MACs and rates of these modules are lower bounds, and so are the totals.",
        ),
        advice="Add a formula in profiler_kit/counting/formulas/, or treat the totals as lower bounds.",
        evidence=(
            Evidence(name="uncounted ops", value=len(ops), unit="count"),
            Evidence(name="uncounted calls per step", value=calls, unit="count"),
            *(
                Evidence(name="calls per step", value=op.calls, unit="count", where=op.op)
                for op in ops[:MAX_LISTED_OPS]
            ),
        ),
        paths=paths,
    )


RULE = Rule("uncounted_ops", DOC, check, needs_runs=False)
