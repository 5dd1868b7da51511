"""Ops without a FLOP formula, which make every count a lower bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.words import layer, listing, plural
from profiler_kit.records.report import Evidence, Finding, Report

# Names beyond these would push everything else off the screen; the table of uncounted ops has them all.
LISTED: Final = 8

DOC = """
The static count met ops for which no formula is known. Their FLOPs are not zero, they are unknown: every FLOP figure that
covers them is a lower bound, and so are the rates made of it. `medium`, and no threshold: one such op can be the whole
model.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires once where anything is uncounted."""
    if report.static is None or not report.static.uncounted:
        return
    ops = sorted(report.static.uncounted, key=lambda op: (-op.calls, op.op))
    calls = sum(op.calls for op in ops)
    paths = tuple(dict.fromkeys(path for op in ops for path in op.paths))
    names = listing([op.op for op in ops], most=LISTED)
    yield RULE.finding(
        severity="medium",
        title=f"{plural(len(ops), 'op has', 'ops have')} no FLOP formula ({plural(calls, 'call')} a step)",
        explanation=f"No formula is known for {names}. "
        + (f"They run in {listing([layer(path) for path in paths])}. " if paths else "")
        + "The FLOPs, MACs and rates shown for these modules, and the totals, are lower bounds.",
        advice="Add a formula in profiler_kit/counting/formulas/, or read the totals as 'at least'.",
        evidence=(
            Evidence(name="uncounted ops", value=len(ops), unit="count"),
            Evidence(name="uncounted calls a step", value=calls, unit="count"),
            *(Evidence(name="calls a step", value=op.calls, unit="count", where=op.op) for op in ops[:LISTED]),
        ),
        paths=paths,
    )


RULE = Rule("uncounted_ops", DOC, check)
