"""A step on a CPU that is spent outside the operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnose.rule import Rule
from profiler_kit.diagnose.timing import device_share
from profiler_kit.diagnose.words import percent, quoted, threshold
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.units import text

# Python and dispatch cost some of every step; from here on they are worth more than a faster operator.
OUTSIDE: Final = 0.30

DOC = f"""
On a CPU, the operators' own time (from traced steps, which the profiler slows down) is less than {threshold(1 - OUTSIDE)} of the
median timed step. The rest is Python, autograd's bookkeeping, and data. As tracing makes operators look slower than they
are, the share outside them is at least what is shown.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires once, for a baseline on the operator clock."""
    run = report.baseline()
    if run is None or run.clock != "operator" or run.step_ns is None or run.device_ns is None:
        return
    inside = device_share(run)
    if inside is None or 1.0 - inside <= OUTSIDE:
        return
    outside = run.step_ns.median - run.device_ns
    yield Finding(
        rule=RULE.name,
        severity="medium",
        title=f"At least {percent(1.0 - inside)} of the step is spent outside operators",
        explanation=f"In {quoted(run)} a step takes {text(run.step_ns.median, 'ns')}, its operators {text(run.device_ns, 'ns')}. "
        f"The other {text(outside, 'ns')} are Python, autograd's bookkeeping, data loading, and threads waiting.",
        advice="Make operators larger or fewer: a larger batch, torch.compile, fewer small modules. A faster operator saves "
        "little here.",
        evidence=(
            Evidence(
                name="share outside operators", value=100.0 * (1.0 - inside), unit="percent", where=run.config.name
            ),
            Evidence(name="median step", value=run.step_ns.median, unit="ns", where=run.config.name),
            Evidence(name="operator time", value=run.device_ns, unit="ns", where=run.config.name),
        ),
        weight=1.0 - inside,
    )


RULE = Rule("host_overhead", DOC, check)
