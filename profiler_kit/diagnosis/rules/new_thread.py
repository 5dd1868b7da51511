"""A forward pass that is slow the first time in every new thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.pairs import measured_runs
from profiler_kit.diagnosis.phrases import factor_text, join_list, join_sentences, quoted_name
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.diagnosis.timing import ratio
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import text

# A thread starts with cold caches and an empty queue. A factor of five means that cuDNN selects algorithms again.
MIN_FACTOR: Final = 5.0
# The start of a thread takes a fraction of this.
MIN_EXTRA_NS: Final = 1_000_000
# From here on, the delay of every new thread is visible to a user.
LONG_EXTRA_NS: Final = 1_000_000_000

DOC = f"""
Fires if the first forward pass in a new thread takes more than {MIN_FACTOR:g}x as long as a steady pass in that thread, and at
least {text(MIN_EXTRA_NS, "ns")} longer, although the main thread has run the same shapes before.

- `medium`: the baseline is affected, and the first pass takes at least {text(LONG_EXTRA_NS, "ns")} longer.
- `low`: otherwise.

cuDNN caches its execution plans per thread. A new thread selects them again, and with `cudnn.benchmark=True` it repeats the
algorithm search. A server with one thread per request has this delay in every request; `nn.DataParallel`, which starts threads in
every step, has it in every step. The creation of a cuDNN handle is not part of the measured time.

The rule yields one finding: for the baseline if it is affected, else for the run with the longest delay. It names the other runs.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for the baseline or the run with the longest delay."""
    slow_runs = [(run, factor) for run in measured_runs(report) if (factor := _factor(run)) is not None]
    if not slow_runs:
        return
    baseline = report.baseline()
    slowest = max(slow_runs, key=lambda item: _extra_ns(item[0]))
    run, factor = next((item for item in slow_runs if item[0] is baseline), slowest)
    assert run.new_thread is not None  # it has a factor
    first_ns, steady_ns = run.new_thread.first_ns, run.new_thread.steady_ns
    others = [
        f"{quoted_name(other)} ({factor_text(other_factor)})" for other, other_factor in slow_runs if other is not run
    ]
    yield new_finding(
        severity="medium" if run is baseline and first_ns - steady_ns >= LONG_EXTRA_NS else "low",
        title=f"New threads start slowly: their first forward pass takes {factor_text(factor)} as long as later ones "
        f"({text(first_ns, 'ns')}, then {text(steady_ns, 'ns')})",
        explanation=join_sentences(
            f"In {quoted_name(run)} the main thread had run the same shapes before. cuDNN caches its execution plans "
            "per thread, so a new thread "
            f"{'repeats the algorithm search' if run.config.benchmark else 'selects its algorithms again'}.",
            f"The same holds for {join_list(others)}." if others else "",
        ),
        advice="Reuse threads (a pool of fixed size, warmed up once). DataParallel starts new threads in every step; "
        "DistributedDataParallel does not.",
        evidence=(
            Evidence(name="first pass over steady pass", value=factor, unit="ratio", where=run.config.name),
            *(
                item
                for other, _ in slow_runs
                if (thread := other.new_thread) is not None
                for item in evidence_of(
                    other.config.name,
                    ("first pass in a new thread", thread.first_ns, "ns"),
                    ("steady pass in the new thread", thread.steady_ns, "ns"),
                )
            ),
        ),
        weight=1.0 - 1.0 / factor,
    )


def _factor(run: ConfigRun) -> float | None:
    """Return first pass over steady pass in a new thread; None if it is unknown or below the limits."""
    if run.new_thread is None or _extra_ns(run) < MIN_EXTRA_NS:
        return None
    factor = ratio(run.new_thread.first_ns, run.new_thread.steady_ns)
    return factor if factor is not None and factor > MIN_FACTOR else None


def _extra_ns(run: ConfigRun) -> int:
    return run.new_thread.first_ns - run.new_thread.steady_ns if run.new_thread is not None else 0


RULE = Rule("new_thread", DOC, check, "note")
